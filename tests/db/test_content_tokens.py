"""What pages keep stays while only workers report, and is read anew once content is written."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from core.spec import JobSpec
from db import changes, readings, runs
from db.connection import opened
from db.workers import heartbeat, register_worker

GPU = {"model": "NVIDIA H200", "uuid": "GPU-1", "ordinal": 0}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path / "test.db") as database:
        register_worker(database, "w", version="1", queues=["gpu"], gpus=[GPU], info={})
        yield database


def job(db: Database, name: str = "a") -> str:
    spec = JobSpec(workload="decode", params={"batch": 1}, gpu="NVIDIA H200")
    return runs.insert_run(db, spec=spec, name=name)


def test_heartbeats_and_progress_leave_the_content(db: Database) -> None:
    run_id = job(db)
    before = changes.content(db)
    heartbeat(db, "w", [])
    db.conn.execute("UPDATE runs SET progress = '{\"done\": 3}', position = 7")
    db.conn.execute(
        "INSERT INTO events (run_id, at, kind, message) VALUES (?, '', 'log', 'x')", [run_id]
    )
    assert changes.content(db) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET summary = '{}'",
        "UPDATE runs SET status = 'done'",
        "UPDATE runs SET notes = 'x'",
        "DELETE FROM runs",
        "INSERT INTO tags SELECT id, 'paper' FROM runs",
        "INSERT INTO baselines SELECT 'h', 'm', id, '' FROM runs",
        "UPDATE gpus SET noise_floor_frac = 0.01",
        "INSERT INTO gpu_peaks SELECT id, 'copy_bytes_per_s', 1.0, 'B/s', '', NULL FROM gpus",
    ],
)
def test_every_write_of_what_pages_show_is_new_content(db: Database, statement: str) -> None:
    job(db)
    before = changes.content(db)
    db.conn.execute(statement)
    assert changes.content(db) != before


def test_another_class_of_a_kernel_name_tells_and_the_same_one_again_does_not(db: Database) -> None:
    write = (
        "INSERT INTO kernel_names VALUES ('k', 'k', ?, 'torch', 1.0, 'r') ON CONFLICT (name)"
        " DO UPDATE SET category = excluded.category, origin = excluded.origin"
    )
    db.conn.execute(write, ["gemm"])
    before = changes.classes(db), changes.content(db)
    db.conn.execute(write, ["gemm"])
    assert (changes.classes(db), changes.content(db)) == before
    db.conn.execute(write, ["softmax"])
    assert changes.classes(db) != before[0]
    assert changes.content(db) != before[1]


def test_a_run_that_is_written_again_has_another_revision_and_the_others_keep_theirs(
    db: Database,
) -> None:
    first, second = job(db), job(db, "b")
    before = readings.revisions(db, [first, second])
    db.conn.execute("UPDATE runs SET summary = '{\"num_kernels\": 3}' WHERE id = ?", [first])
    after = readings.revisions(db, [first, second])
    assert after[first] != before[first]
    assert after[second] == before[second]


def test_what_was_made_of_something_else_is_not_given(db: Database) -> None:
    run_id = job(db)
    readings.keep(db, [(run_id, "latency", "old", [1.5])])
    assert readings.kept(db, {run_id: "old"}, ["latency"]) == {run_id: {"latency": [1.5]}}
    assert readings.kept(db, {run_id: "new"}, ["latency"]) == {run_id: {}}


def test_what_is_kept_of_a_run_goes_with_it(db: Database) -> None:
    run_id = job(db)
    readings.keep(db, [(run_id, "latency", "x", [1.5]), ("gone", "latency", "x", [2.5])])
    runs.delete_runs(db, [run_id])
    assert db.execute("SELECT count(*) FROM readings").fetchone() == (0,)
