"""Records, states, configuration and GPU facts that every other room may import. Standard library only."""

VERSION = "0.1.0"
"""Product version; worker and dashboard compare it, see `worker/client.py`."""
