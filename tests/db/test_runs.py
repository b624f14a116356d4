"""Runs: states, listing, finding, deleting."""

import sqlite3
from collections.abc import Callable

import pytest
from sqlite_utils import Database

from core.config import DataDir
from core.errors import UserError
from core.states import MOVES, RunStatus
from db.connection import connect, opened
from db.fetch import run_row
from db.lifecycle import transition
from db.runs import (
    delete_runs,
    list_runs,
    pin,
    resolve_run,
    resolve_runs,
    set_notes,
    set_tags,
    unpin,
)
from db.status import events


@pytest.mark.parametrize("source", RunStatus)
@pytest.mark.parametrize("target", RunStatus)
def test_transition_allows_exactly_the_moves_of_the_table(
    db: Database, make_run: Callable[..., str], source: RunStatus, target: RunStatus
) -> None:
    run_id = make_run()
    db.table("runs").update(run_id, {"status": str(source)})

    moved = transition(db, run_id, target)

    assert moved is (target in MOVES[source])
    assert run_row(db, run_id).status == (target if moved else source)


def test_transition_writes_the_reason_to_the_log(
    db: Database, make_run: Callable[..., str]
) -> None:
    run_id = make_run()

    transition(db, run_id, "failed", error="no such GPU")

    assert events(db, run_id)["message"].tolist() == ["queued", "failed: no such GPU"]
    assert run_row(db, run_id).error == "no such GPU"


def test_transition_refuses_a_column_that_is_not_its_own(
    db: Database, make_run: Callable[..., str]
) -> None:
    with pytest.raises(ValueError, match="name"):
        transition(db, make_run(), "failed", name="x")


def test_list_is_sorted_with_unknown_numbers_last(
    db: Database, make_run: Callable[..., str]
) -> None:
    slow, fast, unknown = make_run("slow"), make_run("fast"), make_run("unknown")
    db.table("runs").update(slow, {"latency_ms": 3.0})
    db.table("runs").update(fast, {"latency_ms": 1.0})

    down = list_runs(db, sort="latency_ms")["id"].tolist()
    up = list_runs(db, sort="latency_ms", descending=False)["id"].tolist()

    assert down == [slow, fast, unknown]
    assert up == [fast, slow, unknown]


def test_list_refuses_a_column_to_sort_by(db: Database) -> None:
    with pytest.raises(UserError, match="latency_ms"):
        list_runs(db, sort="1; DROP TABLE runs")


def test_empty_list_keeps_the_dtypes(db: Database) -> None:
    frame = list_runs(db)

    assert str(frame["latency_ms"].dtype) == "float64"
    assert str(frame["kernel_time_ns"].dtype) == "Int64"


def test_run_is_found_by_id_start_and_name(db: Database, make_run: Callable[..., str]) -> None:
    run_id = make_run("one of a kind")

    assert resolve_run(db, run_id) == run_id
    assert resolve_run(db, run_id[:10]) == run_id
    assert resolve_run(db, "one of a kind") == run_id


def test_name_of_several_runs_lists_them(db: Database, make_run: Callable[..., str]) -> None:
    first, second = make_run("twin"), make_run("twin")

    with pytest.raises(UserError) as caught:
        resolve_run(db, "twin")

    assert first in str(caught.value)
    assert second in str(caught.value)


@pytest.mark.parametrize("text", ["", "nothing", "%", "r_"])
def test_text_that_names_no_run_says_so(
    db: Database, make_run: Callable[..., str], text: str
) -> None:
    make_run()

    with pytest.raises(UserError, match="no run"):
        resolve_run(db, text)


def test_filter_names_the_finished_runs(db: Database, make_run: Callable[..., str]) -> None:
    done = make_run("done", compile="none")
    make_run("waiting", compile="none")
    db.table("runs").update(done, {"status": "done"})

    assert resolve_runs(db, "compile:none") == [done]


def test_deleting_takes_everything_that_belongs_to_the_run(
    db: Database, make_run: Callable[..., str]
) -> None:
    run_id = make_run()
    set_tags(db, run_id, ["x"])

    delete_runs(db, [run_id])

    tables = ("runs", "events", "tags")
    assert [db.table(t).count for t in tables] == [0, 0, 0]


def test_run_at_work_is_not_deleted(db: Database, make_run: Callable[..., str]) -> None:
    run_id = make_run()
    transition(db, run_id, "claimed")

    with pytest.raises(UserError, match="cancel it"):
        delete_runs(db, [run_id])


def test_tags_and_notes(db: Database, make_run: Callable[..., str]) -> None:
    run_id = make_run()

    assert set_tags(db, run_id, ["b", "a"]) == ["a", "b"]
    assert set_tags(db, run_id, [], ["a"]) == ["b"]
    set_notes(db, run_id, "why")

    assert (run_row(db, run_id).tags, run_row(db, run_id).notes) == (("b",), "why")


@pytest.mark.parametrize("tag", ["", "two words", "a,b", 'a"b', "x" * 65])
def test_tag_that_a_filter_could_not_name_is_refused(
    db: Database, make_run: Callable[..., str], tag: str
) -> None:
    with pytest.raises(UserError, match="tag"):
        set_tags(db, make_run(), [tag])


def test_pin_replaces_the_earlier_baseline_of_the_same_measurement(
    db: Database, make_run: Callable[..., str]
) -> None:
    old, new = make_run("old"), make_run("new")
    for run_id in (old, new):
        db.table("runs").update(run_id, {"status": "done"})
        pin(db, run_id)

    assert (run_row(db, old).is_baseline, run_row(db, new).is_baseline) == (False, True)
    unpin(db, new)
    assert not run_row(db, new).is_baseline


def test_only_a_finished_run_is_pinned(db: Database, make_run: Callable[..., str]) -> None:
    with pytest.raises(UserError, match="finished"):
        pin(db, make_run())


def test_file_that_is_no_database_is_named(data_dir: DataDir) -> None:
    data_dir.db_path.write_text("not a database, but long enough to be looked at " * 40)

    with pytest.raises(UserError, match=r"warpboard\.db"):
        connect(data_dir.db_path)


def test_two_connections_write_without_being_locked_out(
    data_dir: DataDir, db: Database, make_run: Callable[..., str]
) -> None:
    run_id = make_run()

    with opened(data_dir.db_path) as other:
        transition(other, run_id, "claimed")
        transition(db, run_id, "running")
        assert run_row(other, run_id).status == "running"


def test_tables_are_strict_and_foreign_keys_hold(db: Database) -> None:
    loose = db.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        " AND strict = 0 AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '_sqlite%'"
    ).fetchall()

    assert loose == []
    with pytest.raises(sqlite3.IntegrityError):
        db.conn.execute("INSERT INTO tags VALUES ('no such run', 'x')")
