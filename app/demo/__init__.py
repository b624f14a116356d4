"""Example runs: real captures, and what they measured (`demo.toml`)."""
