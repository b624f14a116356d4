"""Damaged and hostile captures: `python -m bench.mutations`."""
