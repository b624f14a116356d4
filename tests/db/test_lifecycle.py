"""Every change of a run's status goes by the table of moves."""

import re
from collections.abc import Callable
from itertools import pairwise, product

import pytest
from sqlite_utils import Database

from core.config import ROOT
from core.states import MOVES, RunStatus
from db.fetch import run_row
from db.handover import hand_in, interrupt_lost, interrupt_stale
from db.lifecycle import move
from db.queue import claim_run
from db.status import events

MakeRun = Callable[..., str]


def moves_in_log(db: Database, run_id: str) -> list[tuple[RunStatus, RunStatus]]:
    """Return the changes of status that a run's log tells of."""
    words = {"queued again": "queued"}
    told = [
        words.get(message, message.split()[0].rstrip(":"))
        for message in events(db, run_id).query("kind == 'state'")["message"]
    ]
    return list(pairwise(RunStatus(t) for t in told))


@pytest.mark.parametrize(("source", "target"), list(product(RunStatus, RunStatus)))
def test_only_moves_of_the_table_are_made(
    db: Database, make_run: MakeRun, source: RunStatus, target: RunStatus
) -> None:
    run_id = make_run()
    db.conn.execute("UPDATE runs SET status = ? WHERE id = ?", (str(source), run_id))

    moved = move(db, target, "id = ?", [run_id], event=str(target))

    assert moved == ([run_id] if target in MOVES[source] else [])
    assert run_row(db, run_id).status == (target if moved else source)


def test_no_other_statement_changes_a_status() -> None:
    raw = re.compile(r"SET\s+(?:[^\"']*,\s*)?status\s*=", re.IGNORECASE)
    rooms = ("db", "app", "worker", "analysis", "core")
    files = [path for room in rooms for path in (ROOT / room).rglob("*.py")]

    found = {str(path.relative_to(ROOT)) for path in files if raw.search(path.read_text())}

    assert found == {"db/lifecycle.py"}


def test_a_bundle_of_a_run_whose_start_was_never_told_makes_allowed_moves(
    db: Database, make_run: MakeRun
) -> None:
    run_id = make_run()
    claim_run(db, run_id, worker_id="w1", gpu_id=None, task_id="t")

    assert hand_in(db, run_id, 1) == "ingesting"
    made = moves_in_log(db, run_id)
    assert made[-1] == ("running", "ingesting")
    assert all(target in MOVES[source] for source, target in made)


def test_a_run_that_is_read_is_not_interrupted(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    claim_run(db, run_id, worker_id="w1", gpu_id=None, task_id="t")
    hand_in(db, run_id, 1)

    assert interrupt_stale(db, worker_id="w1") == []
    assert interrupt_lost(db, "w1", []) == []
    assert run_row(db, run_id).status == "ingesting"
