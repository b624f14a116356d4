"""Records, states, configuration and GPU facts for every other room. Standard library only."""

VERSION = "0.1.0"
"""Product version; worker and dashboard compare it, see `worker/client.py`."""
