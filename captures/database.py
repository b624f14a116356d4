"""Open a foreign SQLite file without running anything in it or beside it.

SQLite obeys a rollback journal that lies beside a database: it writes to the database, and deletes
the file that the journal calls its super-journal. So a foreign file is opened only as `immutable`,
which looks at nothing beside it. A journal or write-ahead log that belongs to the export is
replayed on a private copy under a name that no journal knows.
Source: https://www.sqlite.org/fileformat2.html (3 and 4), https://www.sqlite.org/atomiccommit.html.
"""

import os
import secrets
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from core.errors import CaptureError

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_SIDE_ENDS = ("-wal", "-journal")


def immutable_uri(path: Path) -> str:
    """Return the URI that opens exactly this file, read-only, and nothing beside it."""
    return f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"


def open_immutable(path: Path) -> sqlite3.Connection:
    """Open a foreign database for reading; nothing is written, locked or recovered."""
    conn = sqlite3.connect(immutable_uri(path), uri=True, isolation_level=None)
    conn.execute("PRAGMA trusted_schema=OFF")
    conn.execute("PRAGMA query_only=ON")
    return conn


def sidecars(path: Path) -> tuple[Path, ...]:
    """Return the write-ahead log and the rollback journal that lie beside a database, if any."""
    beside = (path.with_name(path.name + end) for end in _SIDE_ENDS)
    return tuple(side for side in beside if _is_plain_file(side) and side.stat().st_size)


def recovered_copy(path: Path, folder: Path) -> Path:
    """Copy a database with its log or journal into `folder` and replay it there.

    CaptureError for a journal that names a super-journal: SQLite would delete the file of that
    name, and no export has one. sqlite3.Error where the replay fails.
    """
    copy = folder / f"{secrets.token_hex(8)}.sqlite"
    shutil.copyfile(path, copy)
    for side in sidecars(path):
        beside = copy.with_name(copy.name + side.name[len(path.name) :])
        shutil.copyfile(side, beside, follow_symlinks=False)
        if beside.name.endswith("-journal"):
            _refuse_super_journal(path, beside)
    with closing(sqlite3.connect(copy)) as conn:
        conn.execute("PRAGMA trusted_schema=OFF")
        conn.execute("PRAGMA journal_mode=DELETE")
    return copy


def _refuse_super_journal(path: Path, journal: Path) -> None:
    """The record of a super-journal is the journal's end: its last 8 bytes are the magic again."""
    with journal.open("rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - len(_JOURNAL_MAGIC), 0))
        has_record = file.read() == _JOURNAL_MAGIC
    if has_record:
        raise CaptureError(
            path,
            "the journal beside it names another file, which SQLite would delete",
            f"Remove {path.name}-journal, or export the report again",
        )


def _is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
