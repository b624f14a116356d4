"""Find the commit that made a program slower or faster."""
