"""Comparison of runs: what differs, is it faster, is it real, and where the time went."""
