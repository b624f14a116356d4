"""Parts of the harness: ranges, timing, out of memory, compile state, environment, passes."""
