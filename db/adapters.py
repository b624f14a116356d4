"""How SQLite takes numpy's numbers, which frames hold."""

import sqlite3
import sys


def take_numbers() -> None:
    """Register numpy's numbers where numpy is loaded: without it there are none."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    for kind in (numpy.int64, numpy.int32, numpy.bool_):
        sqlite3.register_adapter(kind, int)
    sqlite3.register_adapter(numpy.float64, float)
