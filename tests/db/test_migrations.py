"""The schema grows without losing what is stored."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database

from captures.identity import device_salt
from captures.private import hashed
from core.spec import JobSpec
from db.connection import connect
from db.migrations import migrations


def test_applying_twice_changes_nothing(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db")
    before = db.schema

    migrations.apply(db)

    assert db.schema == before


def older_database(path: Path, stop_before: str) -> Database:
    """Return a database as it was before a migration, with one run."""
    old = Database(path)
    migrations.apply(old, stop_before=stop_before)
    old.execute(
        "INSERT INTO runs (id, name, source, status, created_at)"
        " VALUES ('r1', 'kept', 'imported', 'done', '2026-11-27T00:00:00Z')"
    )
    return old


def test_first_release_keeps_its_runs_through_all_migrations(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = older_database(path, "m002_headline_numbers_and_tokens")
    old.conn.commit()
    old.close()

    row = connect(path).execute("SELECT name, summary, latency_ms FROM runs").fetchone()

    assert tuple(row) == ("kept", "{}", None)


def test_variation_stored_as_milliseconds_becomes_a_fraction(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = older_database(path, "m007_variation_is_a_fraction")
    for name in ("latency_cv", "latency_std"):
        old.execute(
            "INSERT INTO metrics (run_id, pass, phase, name, value, unit)"
            " VALUES ('r1', 'clean', '', ?, 0.1, 'ms')",
            [name],
        )
    old.conn.commit()
    old.close()

    rows = connect(path).execute("SELECT name, unit FROM metrics ORDER BY name").fetchall()

    assert [tuple(r) for r in rows] == [("latency_cv", "fraction"), ("latency_std", "ms")]


def test_stored_runs_get_the_idle_share_of_their_clean_pass(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = older_database(path, "m008_idle_of_the_program_itself")
    summary = {"idle_frac": 0.61, "latency_ms": {"median": 4.76}}
    old.execute("UPDATE runs SET summary = ?", [json.dumps(summary)])
    old.execute(
        "INSERT INTO captures (id, run_id, pass, process, kind, tool, file_name, bytes, sha256)"
        " VALUES (1, 'r1', 'nsys', 0, 'nsys_sqlite', 'nsys', 'a', 1, 'x')"
    )
    for name, kernel_ns in (("BENCHMARK/iteration_0", 4_300_000), ("iteration_1", 4_500_000)):
        old.execute(
            "INSERT INTO phases (run_id, capture_id, pass, path, process, num_ranges, kernel_ns,"
            " num_kernels, attribution, first_start_ns)"
            " VALUES ('r1', 1, 'nsys', ?, 0, 1, ?, 5, 'launch_thread', 0)",
            [name, kernel_ns],
        )
    old.conn.commit()
    old.close()

    text, column = connect(path).execute("SELECT summary, idle_frac FROM runs").fetchone()

    found = json.loads(text)
    assert column == found["idle_frac"] == pytest.approx(1 - 4.4 / 4.76)
    assert (found["idle_source"], found["profiled_idle_frac"]) == ("clean", 0.61)


def test_gpus_of_files_lose_their_uuids_and_keep_their_runs_and_peaks(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    uuid = "GPU-554a6988-03dd-6206-3dd1-f43fb60a3ed0"
    keys = [f"import/{uuid}", "import/H-0123456789ABCDEF01234567", "import/NVIDIA H200", uuid]
    old = older_database(path, "m016_hashed_uuids")
    for number, key in enumerate(keys):
        old.execute(
            "INSERT INTO gpus (id, model, uuid, probed_at) VALUES (?, 'H200', ?, '')", [key, uuid]
        )
        old.execute(
            "INSERT INTO gpu_peaks (gpu_id, name, value, unit, measured_at)"
            " VALUES (?, 'copy', ?, 'B/s', '')",
            [key, number],
        )
    old.execute("UPDATE runs SET gpu_id = ?", [keys[0]])
    old.conn.commit()
    old.close()

    db = connect(path)

    rows = db.execute("SELECT value, gpu_id FROM gpu_peaks ORDER BY value").fetchall()
    first, second, by_model, worker = [row[1] for row in rows]
    assert first == f"import/{hashed(uuid, device_salt(tmp_path))}" and "554a" not in first
    assert second.startswith("import/D-") and (by_model, worker) == (keys[2], keys[3])
    assert db.execute("SELECT gpu_id FROM runs").fetchone()[0] == first
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_several_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.db" for n in range(4)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        names = [set(pool.map(_last_migration, [path] * 4)) for path in paths]

    newest = migrations.pending(Database(memory=True))[-1].name
    assert names == [{newest}] * 4


def _last_migration(path: Path) -> str:
    with closing(connect(path)) as db:
        return migrations.applied(db)[-1].name


def test_a_new_database_that_another_process_has_begun_to_write_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new.db"
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("time.sleep", lambda _: other.rollback())

    with closing(connect(path)) as db:
        assert migrations.pending(db) == []
    other.close()


def test_jobs_are_named_without_what_only_names_an_execution(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = older_database(path, "m017_same_job")
    for number, params in enumerate(({"size": 1, "name": "a", "seed": 1}, {"size": 1, "seed": 2})):
        old.execute(
            "INSERT INTO runs (id, name, source, status, created_at, workload, params,"
            " comparable_hash, gpu_model) VALUES (?, 'x', 'imported', 'done',"
            " '2026-11-27T00:00:00Z', 'decode', ?, ?, 'cpu')",
            [f"n{number}", json.dumps(params), f"old{number}"],
        )
        old.execute(
            "INSERT INTO baselines VALUES (?, 'cpu', ?, ?)",
            [f"old{number}", f"n{number}", f"2026-11-2{number}T00:00:00Z"],
        )
    old.conn.commit()
    old.close()

    db = connect(path)

    hashes = {h for (h,) in db.execute("SELECT comparable_hash FROM runs WHERE id LIKE 'n%'")}
    assert hashes == {JobSpec(workload="decode", params={"size": 1}).comparable_hash}
    pinned = db.execute("SELECT comparable_hash, run_id FROM baselines").fetchall()
    assert [tuple(row) for row in pinned] == [(*hashes, "n1")]
