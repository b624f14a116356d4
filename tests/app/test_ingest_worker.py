"""Reading what a worker handed in, while the disk is full."""

import errno
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlite_utils import Database

from app import ingest as ingest_module
from app.ingest import MIN_FREE_BYTES, ingest, is_disk_full
from captures import sandbox
from core.config import DataDir
from core.errors import UserError
from core.spec import JobSpec
from db.fetch import run_row
from db.queue import request_cancel


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


@pytest.mark.child
def test_a_cancelled_reading_ends_and_the_run_says_so(
    data_dir: DataDir, db: Database, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bundle takes long: the child waits for what never comes."""
    uploads = data_dir.uploads / waiting
    uploads.mkdir(parents=True)
    entry = {"pass": "clean", "status": "ok", "captures": [], "result": {"samples_ns": [1]}}
    job = JobSpec(workload="decode", params={}).as_dict()
    manifest = {"schema_version": 1, "job": job, "status": "done", "passes": [entry]}
    (uploads / "manifest.json").write_text(json.dumps(manifest))
    request_cancel(db, waiting)
    real = sandbox.run_limited

    def never_ends(_: str, *given: Any, **options: Any) -> None:
        monkeypatch.setattr(sandbox, "_environment", slow)
        real("sleeper", *given, **options)

    environment = sandbox._environment

    def slow(scratch: Path) -> dict[str, str]:
        (scratch / "sleeper.py").write_text("import time\ndef main(*_): time.sleep(60)\n")
        found = environment(scratch)
        return found | {"PYTHONPATH": f"{found['PYTHONPATH']}:{scratch}"}

    monkeypatch.setattr("app.reading.run_limited", never_ends)
    ingest(data_dir, waiting)
    row = run_row(db, waiting)
    assert (row.status, row.error) == ("cancelled", "cancelled while its captures were read")
    assert not uploads.exists()


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
