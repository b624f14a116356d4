"""Open the database. One connection a call or a thread; nothing is shared.

A transaction takes the write lock at its beginning. numpy's numbers are stored as numbers.
"""

import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

from sqlite_utils import Database

from core.errors import UserError
from core.gpus import fits_gpu
from db.migrations import migrations


class WritingDatabase(Database):
    """Waits for other writers where a transaction begins.

    SQLite refuses at once, without waiting, to let a transaction write that has read before another
    process wrote ("database is locked"). Every `atomic` block of ours writes in the end.
    """

    @contextmanager
    def atomic(self) -> Iterator[Database]:
        """Run a block as one transaction; nested blocks use savepoints, as in sqlite-utils."""
        if self.conn.in_transaction:
            with super().atomic():
                yield self
            return
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            yield self
            self.conn.execute("COMMIT")
        except BaseException:
            self.rollback()
            raise


BUSY_TIMEOUT_S = 30.0


def connect(path: Path, *, is_reader: bool = False) -> Database:
    """Open (creating and migrating if needed) with WAL, foreign keys on and a 30 s busy wait.

    A reader may also open a read-only database. UserError when the file
    cannot be opened, or is not a sound SQLite database.
    """
    if is_reader and path.exists() and not is_writable(path):
        return open_read_only(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_new = not path.exists()
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
        if is_new:  # not by opening it: closing a file drops this process's locks on it
            path.chmod(0o600)
    except (OSError, sqlite3.OperationalError) as exc:
        raise UserError(f"{path}: cannot be opened ({exc}); choose another --data folder") from exc
    try:
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.create_function("gpu_fits", 2, fits_gpu, deterministic=True)
        db = WritingDatabase(connection, execute_plugins=False)
        if _schema(db, path) not in _known_sound:
            _bring_up_to_date(db, path)
            _known_sound.add(_schema(db, path))
    except sqlite3.OperationalError as exc:
        connection.close()
        raise UserError(f"{path}: cannot be used ({exc}); see `warpboard doctor`") from exc
    except sqlite3.DatabaseError as exc:
        connection.close()
        raise UserError(f"{path}: not a database ({exc}); choose another --data folder") from exc
    return db


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Turn WAL on, which the file keeps.

    SQLite refuses it at once, without the busy wait, while another process does so to a new file.
    """
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(0.01)


_known_sound: set[tuple[str, int, int, int]] = set()
"""Files, with the state of their schema, that need no change: a page opens the same one often."""


def _schema(db: Database, path: Path) -> tuple[str, int, int, int]:
    """Return what is another where the file is another, or any process migrated it."""
    (version,) = db.conn.execute("PRAGMA schema_version").fetchone()
    try:
        (num_applied,) = db.conn.execute("SELECT count(*) FROM _sqlite_migrations").fetchone()
    except sqlite3.OperationalError:  # a new file
        num_applied = 0
    return str(path), path.stat().st_ino, version, num_applied


def _bring_up_to_date(db: Database, path: Path) -> None:
    _check_age(db, path)
    if migrations.pending(db):
        with db.atomic():  # another process may do the same now: the second finds nothing left
            migrations.apply(db)


def is_writable(path: Path) -> bool:
    """Say whether this process may write a database and the files that SQLite keeps beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def open_read_only(path: Path) -> Database:
    """Open a database where nothing may be written; UserError if it needs to be updated first."""
    try:
        connection = _reader(path)
        connection.execute("PRAGMA query_only=ON")
        connection.create_function("gpu_fits", 2, fits_gpu, deterministic=True)
        db = WritingDatabase(connection, execute_plugins=False)
        _check_age(db, path)
        pending = migrations.pending(db)
    except (OSError, sqlite3.DatabaseError) as exc:
        raise UserError(f"{path}: cannot be read ({exc}); see `warpboard doctor`") from exc
    if pending:
        why = "made by an older Warpboard, and nothing may be written here to update it"
        raise UserError(f"{path}: {why}; copy the data folder to where you may write")
    return db


def _reader(path: Path) -> sqlite3.Connection:
    """Return a connection for reading.

    SQLite reads a WAL database only with its index, which another process keeps beside it or which
    it cannot make here. Then the file is whole without a log, and is copied together with one.
    """
    log = path.with_name(path.name + "-wal")
    where = f"file:{quote(str(path))}?mode=ro"
    connection = sqlite3.connect(where, uri=True, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection
    except sqlite3.OperationalError:
        connection.close()
    if log.exists() and log.stat().st_size > 0:
        return _copied(path, log)
    return sqlite3.connect(where + "&immutable=1", uri=True, check_same_thread=False)


def _copied(path: Path, log: Path) -> sqlite3.Connection:
    """Return a database in memory with what file and log hold."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(log.name))
        with closing(sqlite3.connect(copy)) as source:
            target = sqlite3.connect(":memory:", check_same_thread=False)
            source.backup(target)
    return target


@cache
def _known_migrations() -> frozenset[str]:
    """Return the names of all changes of the schema: those that an empty database lacks."""
    return frozenset(
        m.name for m in migrations.pending(Database(memory=True, execute_plugins=False))
    )


def _check_age(db: Database, path: Path) -> None:
    """Refuse a database with changes that this version does not know; it stays as it is."""
    newer = [m.name for m in migrations.applied(db) if m.name not in _known_migrations()]
    if newer:
        db.close()
        what = f"{path}: made by a newer Warpboard (it has {newer[-1]})"
        raise UserError(f"{what}; update this one, or choose another --data folder")


@contextmanager
def opened(path: Path, *, is_reader: bool = False) -> Iterator[Database]:
    """Open for one block and close; see `connect`."""
    db = connect(path, is_reader=is_reader)
    try:
        yield db
    finally:
        db.close()


def take_numbers() -> None:
    """Register numpy's numbers where numpy is loaded: without it there are none."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    for kind in (numpy.int64, numpy.int32, numpy.bool_):
        sqlite3.register_adapter(kind, int)
    sqlite3.register_adapter(numpy.float64, float)
