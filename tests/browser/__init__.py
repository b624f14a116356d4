"""A package, so that what its journeys share ends before a process goes on to other tests.

Playwright's event loop runs from its start to its end: none can be run beside it.
"""
