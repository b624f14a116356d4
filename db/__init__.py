"""All SQL, and nothing but SQL.

sqlite-utils imports pandas where there is one, only to know its column types. That costs a command
that reads a few rows most of its time, so the first import of it, here, finds none. pandas itself
comes with the modules that make frames.
"""

import importlib
import sys
import threading

_HEAVY = ("pandas", "numpy")


def _import_sqlite_utils() -> None:
    """Import it without pandas, unless that is here already or another thread may import it."""
    if "sqlite_utils" in sys.modules or threading.active_count() > 1:
        return
    absent = [name for name in _HEAVY if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        importlib.import_module("sqlite_utils")
    finally:
        for name in absent:
            del sys.modules[name]


_import_sqlite_utils()

from sqlite_utils import Database  # noqa: E402

__all__ = ["Database"]
