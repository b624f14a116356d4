"""Runs that are repeats of each other because their jobs ran in turn: A B A B."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlite_utils import Database

Job = tuple[str, str]
"""comparable_hash and gpu_model: what makes two runs the same measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Two sides of a comparison, oldest run first, with what ran in turn added."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    num_added: int
    num_waiting: int
    "Repeats that have not ended yet."


def find_repeats(db: Database, a: Sequence[str], b: Sequence[str]) -> Repeats:
    """Return both sides with the runs of their jobs in sweeps that hold both jobs. Read-only.

    Nothing is added to a side of several jobs, or of files, whose jobs nobody ran here.
    """
    job_a, job_b = _job(db, a), _job(db, b)
    if job_a is None or job_b is None or job_a == job_b:
        return Repeats(a=tuple(a), b=tuple(b), num_added=0, num_waiting=0)
    added_a, waiting_a = _in_turn(db, job_a, job_b, a)
    added_b, waiting_b = _in_turn(db, job_b, job_a, b)
    return Repeats(
        a=(*a, *added_a),
        b=(*b, *added_b),
        num_added=len(added_a) + len(added_b),
        num_waiting=waiting_a + waiting_b,
    )


def _job(db: Database, run_ids: Sequence[str]) -> Job | None:
    """Return the one job of these runs; None for several, or for a run that was not submitted."""
    marks = ",".join("?" * len(run_ids))
    rows = db.execute(
        f"SELECT DISTINCT comparable_hash, gpu_model, source FROM runs WHERE id IN ({marks})",
        list(run_ids),
    ).fetchall()
    if len(rows) != 1 or rows[0][2] != "submitted" or None in rows[0]:
        return None
    return rows[0][0], rows[0][1]


def _in_turn(db: Database, job: Job, other: Job, known: Sequence[str]) -> tuple[list[str], int]:
    """Return the finished runs of `job` beside runs of `other`, and how many have not ended."""
    rows = db.execute(
        "SELECT id, status FROM runs WHERE comparable_hash = ? AND gpu_model = ? AND sweep_id IN"
        " (SELECT sweep_id FROM runs WHERE comparable_hash = ? AND gpu_model = ?)"
        " ORDER BY created_at, rowid",
        [*job, *other],
    ).fetchall()
    done = [run_id for run_id, status in rows if status == "done" and run_id not in known]
    waiting = ("queued", "claimed", "running", "ingesting")
    return done, sum(status in waiting for _, status in rows)
