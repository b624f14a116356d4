"""Reading what a worker handed in, while the disk is full."""

import errno
import shutil
import sqlite3
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from sqlite_utils import Database

from app import ingest as ingest_module
from app.ingest import MIN_FREE_BYTES, ingest, is_disk_full
from core.config import DataDir
from core.errors import UserError
from db.fetch import run_row


@pytest.fixture
def waiting(db: Database, make_run: Callable[..., str]) -> str:
    """Return a run whose bundle is here."""
    run_id = make_run()
    db.conn.execute("UPDATE runs SET status = 'ingesting' WHERE id = ?", [run_id])
    db.conn.commit()
    return run_id


def no_space(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_run_is_not_failed_by_a_disk_that_fills_while_it_is_read(
    data_dir: DataDir, db: Database, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_module, "_ingest", no_space)
    ingest(data_dir, waiting)
    assert run_row(db, waiting).status == "ingesting"


def test_run_is_not_begun_without_room(
    data_dir: DataDir, db: Database, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data_dir.root)._replace(free=MIN_FREE_BYTES - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    ingest(data_dir, waiting)
    assert run_row(db, waiting).status == "ingesting"
    begun = "SELECT count(*) FROM events WHERE run_id = ? AND kind = 'ingest'"
    assert db.execute(begun, [waiting]).fetchone()[0] == 0


def test_full_disk_is_found_behind_other_errors() -> None:
    try:
        try:
            no_space()
        except OSError as cause:
            raise UserError("could not be read") from cause
    except UserError as error:
        assert is_disk_full(error)
    assert is_disk_full(sqlite3.OperationalError("database or disk is full"))
    assert not is_disk_full(sqlite3.OperationalError("database is locked"))
    assert not is_disk_full(OSError(errno.EACCES, "Permission denied"))
