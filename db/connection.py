"""Open the database. One connection a call or a thread; nothing is shared."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from sqlite_utils import Database

from core.errors import UserError
from db.migrations import migrations
from db.writing import WritingDatabase

BUSY_TIMEOUT_S = 30.0

sqlite3.register_adapter(np.int64, int)
sqlite3.register_adapter(np.int32, int)
sqlite3.register_adapter(np.float64, float)
sqlite3.register_adapter(np.bool_, int)


def connect(path: Path) -> Database:
    """Open (creating and migrating if needed) with WAL, foreign keys on and a 30 s busy wait.

    UserError when the file cannot be opened, or is no sound SQLite database.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    except (OSError, sqlite3.OperationalError) as exc:
        raise UserError(f"{path}: cannot be opened ({exc}); choose another --data folder") from exc
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        db = WritingDatabase(connection)
        _check_age(db, path)
        if migrations.pending(db):
            migrations.apply(db)
    except sqlite3.OperationalError as exc:
        connection.close()
        raise UserError(f"{path}: cannot be used ({exc}); see `warpboard doctor`") from exc
    except sqlite3.DatabaseError as exc:
        connection.close()
        raise UserError(f"{path}: not a database ({exc}); choose another --data folder") from exc
    return db


@cache
def _known_migrations() -> frozenset[str]:
    """Return the names of all changes of the schema: those that an empty database lacks."""
    return frozenset(m.name for m in migrations.pending(Database(memory=True)))


def _check_age(db: Database, path: Path) -> None:
    """Refuse a database with changes that this version does not know; it stays as it is."""
    newer = [m.name for m in migrations.applied(db) if m.name not in _known_migrations()]
    if newer:
        db.close()
        what = f"{path}: made by a newer Warpboard (it has {newer[-1]})"
        raise UserError(f"{what}; update this one, or choose another --data folder")


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open for one block and close."""
    db = connect(path)
    try:
        yield db
    finally:
        db.close()
