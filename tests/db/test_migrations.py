"""The schema grows without losing what is stored."""

from pathlib import Path

from sqlite_utils import Database

from db.connection import connect
from db.migrations import migrations


def test_applying_twice_changes_nothing(tmp_path: Path) -> None:
    db = connect(tmp_path / "a.db")
    before = db.schema

    migrations.apply(db)

    assert db.schema == before


def test_first_release_keeps_its_runs_through_all_migrations(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old = Database(path)
    migrations.apply(old, stop_before="m002_headline_numbers_and_tokens")
    old.execute(
        "INSERT INTO runs (id, name, source, status, created_at)"
        " VALUES ('r1', 'kept', 'imported', 'done', '2026-11-27T00:00:00Z')"
    )
    old.conn.commit()
    old.close()

    row = connect(path).execute("SELECT name, summary, latency_ms FROM runs").fetchone()

    assert tuple(row) == ("kept", "{}", None)
