"""The command line: one command a module, found by name, heavy imports inside functions."""
