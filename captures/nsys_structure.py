"""Make a connection harmless, and find structural damage while a file is being read."""

import re
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.errors import CaptureError

MAX_TEXT_BYTES = 64 << 20
CHECK_LIMIT_S = 120.0
"""After this long the structure check is given up: no sound file of a loadable size needs it."""
_VALUE_FINDING = re.compile(r"(TEXT|NUMERIC) value in |constraint failed")
"Findings that reading judges itself. A NULL where none may be is a row of another table."
DAMAGED = "The file is damaged or incomplete: export the report again"


def harden(conn: sqlite3.Connection) -> None:
    """Forbid writing, schema functions and giant values; read text that is not UTF-8."""
    conn.text_factory = lambda raw: raw.decode("utf-8", "replace")
    conn.execute("PRAGMA trusted_schema=OFF")
    conn.execute("PRAGMA query_only=ON")
    conn.execute("PRAGMA mmap_size=0")
    conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)


def _without_functions(action: int, *_: str | None) -> int:
    """The check evaluates generated columns of the file; no export's has functions to call."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_FUNCTION else sqlite3.SQLITE_OK


LARGE_FILE_BYTES = 32 << 20
LARGE_TABLE_ROWS = 100_000
"""In a large file tables of so many rows are counted: SQLite's own check decodes every cell."""


class StructureCheck:
    """Check the structure beside the reading: it finds pages that are lost, twice or foreign.

    Reading alone meets only what is malformed on its way: a lost page would change a sum unseen.
    """

    def __init__(self, uri: str, num_bytes: int) -> None:
        self._finding: str | None = None
        self._num_bytes = num_bytes
        self._conn = sqlite3.connect(uri, uri=True, check_same_thread=False)
        harden(self._conn)
        self._conn.execute("PRAGMA ignore_check_constraints=ON")
        deadline = time.monotonic() + CHECK_LIMIT_S
        self._conn.set_progress_handler(lambda: time.monotonic() > deadline, 1_000_000)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            is_large = self._num_bytes >= LARGE_FILE_BYTES
            checked = tables_to_check(self._conn) if is_large else None
            self._conn.set_authorizer(_without_functions)
            for argument in ["20"] if checked is None else checked:
                rows = self._conn.execute(f"PRAGMA quick_check({argument})").fetchall()
                findings = (" ".join(str(row[0]).split()) for row in rows if row[0] != "ok")
                self._finding = next((f for f in findings if not _VALUE_FINDING.search(f)), None)
                if self._finding is not None:
                    return
        except sqlite3.OperationalError as exc:
            self._finding = None if "interrupt" in str(exc) else str(exc)
        except (sqlite3.Error, UnicodeError) as exc:
            # SQLite's message quotes names of the file, which may be no text.
            self._finding = str(exc)

    def raise_if_damaged(self, path: Path) -> None:
        """Wait for the check; CaptureError with SQLite's finding."""
        self._thread.join()
        if self._finding is not None:
            raise CaptureError(path, f"SQLite finds it damaged ({self._finding})", DAMAGED)

    def stop(self) -> None:
        with suppress(sqlite3.Error):
            self._conn.interrupt()
        self._thread.join()
        self._conn.close()


def tables_to_check(conn: sqlite3.Connection) -> list[str] | None:
    """Return the tables that SQLite is to check one by one; None for the whole file.

    The profiler only ever appends: its tables hold the rows first, first + 1, ... last. One that
    still does, by number and by sum, has lost no page and reads none twice.
    """
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    to_check = []
    try:
        for (name,) in conn.execute(query).fetchall():
            table = '"' + name.replace('"', '""') + '"'
            count = _one(conn, table, "count(*)")
            if count < LARGE_TABLE_ROWS:
                to_check.append(table)
            elif not _is_gapless(conn, table, count):
                return None
    except sqlite3.Error as exc:
        if "interrupt" in str(exc):
            raise
        return None
    return to_check


def _is_gapless(conn: sqlite3.Connection, table: str, count: int) -> bool:
    values = ("min(_rowid_)", "max(_rowid_)", "sum(_rowid_)")
    first, last, total = (_one(conn, table, value) for value in values)
    return (last - first + 1, (first + last) * count) == (count, 2 * total)


def _one(conn: sqlite3.Connection, table: str, value: str) -> Any:
    return conn.execute(f"SELECT {value} FROM {table} NOT INDEXED").fetchone()[0]
