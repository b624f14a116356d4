"""The server: who may connect, under which names, and what is served where."""
