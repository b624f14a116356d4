"""What studies and predictions read is worked out ahead, and never beside a job."""

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import anyio
import pytest
from sqlite_utils import Database

from analysis.runview import RunView
from analysis.studies import list_studies, run_study
from analysis.studies.engine.readings import Reading
from app import ahead, kept
from app.serve import ahead as keeper
from core.config import DataDir
from core.spec import JobSpec
from db import fetch, readings, runs
from db.connection import opened
from tests.app.conftest import with_decodes
from tests.conftest import ROOT

MEASURES = {name for study in list_studies() for name in study.measures}


@pytest.fixture
def data(tmp_path: Path, example_captures: Path) -> DataDir:
    return with_decodes(tmp_path, example_captures)


@pytest.fixture
def db(data: DataDir) -> Iterator[Database]:
    with opened(data.db_path) as database:
        yield database


def names_kept(db: Database) -> set[str]:
    return {name for (name,) in db.execute("SELECT DISTINCT what FROM readings")}


def put_to_work(db: Database) -> str:
    run_id = runs.insert_run(db, spec=JobSpec(workload="gemm"), name="at work")
    write(db, "UPDATE runs SET status = 'running' WHERE id = ?", run_id)
    return run_id


def write(db: Database, sql: str, *values: str) -> None:
    with db.atomic():
        db.conn.execute(sql, values)


def test_every_reading_of_every_run_is_kept_once_worked_out_ahead(
    data: DataDir, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead.work_ahead(data)
    assert names_kept(db) >= MEASURES

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a run was read whole again")

    ids = [run_id for (run_id,) in db.execute("SELECT id FROM runs ORDER BY id")]
    whole = fetch.run_views(db, data, ids)
    views = fetch.run_views(db, data, ids, leave_out=fetch.ALL_BUT_SAMPLES)
    monkeypatch.setattr(kept, "readings_of", never)
    kept.with_readings(db, data, views, sorted(MEASURES), {})
    assert run_study("top-kernels", views).pivots == run_study("top-kernels", whole).pivots


def test_nothing_is_worked_out_beside_a_job(data: DataDir, db: Database) -> None:
    run_id = put_to_work(db)
    ahead.work_ahead(data)
    assert names_kept(db) == set()
    write(db, "UPDATE runs SET status = 'failed' WHERE id = ?", run_id)
    ahead.work_ahead(data)
    assert names_kept(db) >= MEASURES


def test_a_run_that_cannot_be_read_keeps_no_other_back(
    data: DataDir, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = [run_id for (run_id,) in db.execute("SELECT id FROM runs ORDER BY id")]
    real = kept.readings_of

    def odd(view: RunView, name: str) -> tuple[Reading, ...]:
        if view.run.id == first:
            raise KeyError("a column that no table has")
        return real(view, name)

    monkeypatch.setattr(kept, "readings_of", odd)
    ahead.work_ahead(data)

    rows = db.execute(
        "SELECT DISTINCT run_id FROM readings WHERE what IN (?, ?)", sorted(MEASURES)[:2]
    )
    assert others and {run_id for (run_id,) in rows} == set(others)
    assert readings.lacking(db, "ahead", ahead._made_of(db), newest=99) == []


def test_work_that_takes_long_ends_as_soon_as_a_job_begins(data: DataDir, db: Database) -> None:
    slow = "import time; from app import ahead; ahead.work_ahead = lambda data: time.sleep(60)\n"
    words = [sys.executable, "-c", f"{slow}ahead.main(['--data', {str(data.root)!r}])"]
    with subprocess.Popen(words, cwd=ROOT) as process:
        try:
            time.sleep(3)
            assert process.poll() is None
            put_to_work(db)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def test_a_process_is_started_for_many_runs_alone_and_not_beside_a_job(
    data: DataDir, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ahead.is_worth_a_process(db) == 0
    monkeypatch.setattr(ahead, "FEWEST_RUNS", 2)
    assert ahead.is_worth_a_process(db) == 2
    run_id = put_to_work(db)
    assert ahead.is_worth_a_process(db) == 0
    write(db, "DELETE FROM runs WHERE id = ?", run_id)
    ahead.work_ahead(data)
    assert ahead.is_worth_a_process(db) == 0


def test_a_run_that_was_written_again_waits_again(
    data: DataDir, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "FEWEST_RUNS", 1)
    ahead.work_ahead(data)
    write(db, "UPDATE runs SET summary = '{}' WHERE name = 'decode_eager'")
    assert ahead.is_worth_a_process(db) == 1


def test_the_server_starts_the_process_once_runs_stop_coming(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = chain([3, 9, 9, 0, 12, 12, 12], repeat(0))
    started: list[str] = []

    async def run(words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        started.append(words[-1])
        return subprocess.CompletedProcess(words, len(started) - 1, b"", b"broken")

    monkeypatch.setattr(keeper, "INTERVAL_S", 0.0)
    monkeypatch.setattr(keeper, "_num_waiting", lambda _: next(seen))
    monkeypatch.setattr(anyio, "run_process", run)

    async def until_all_is_seen() -> None:
        with anyio.move_on_after(0.5):
            await keeper.keep_ahead(data)

    anyio.run(until_all_is_seen)
    assert started == [str(data.root)] * 2  # of 9, of 12; what failed is not begun again
