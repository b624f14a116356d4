"""Moves of the queue that people and workers ask for: claim, cancel, retry, order."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from db.clock import utc_now
from db.events import add_events


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that a worker may now start."""

    run_id: str
    spec: Mapping[str, Any]
    attempt: int


def claim_run(
    db: Database, run_id: str, *, worker_id: str, gpu_id: str | None, task_id: str | None
) -> Claim | None:
    """Claim a queued run for a worker; None when it is not queued (any more).

    The guard is in the UPDATE: of two workers that got the same message one wins.
    """
    with db.atomic():
        row = db.execute(
            "UPDATE runs SET status = 'claimed', attempt = attempt + 1, worker_id = ?, gpu_id = ?,"
            " task_id = ?, started_at = ?, finished_at = NULL, error = NULL, progress = '{}'"
            " WHERE id = ? AND status = 'queued' AND cancel_requested = 0 AND spec IS NOT NULL"
            " RETURNING spec, attempt",
            (worker_id, gpu_id, task_id, utc_now(), run_id),
        ).fetchone()
        if row is None:
            return None
        add_events(db, run_id, [(None, "state", f"claimed by {worker_id}, attempt {row[1]}")])
    return Claim(run_id=run_id, spec=json.loads(row[0]), attempt=row[1])


def claimed_before(db: Database, worker_id: str, task_id: str) -> Claim | None:
    """Return what this very try to claim already got: its answer was lost on the way."""
    row = db.execute(
        "SELECT id, spec, attempt FROM runs"
        " WHERE status = 'claimed' AND worker_id = ? AND task_id = ?",
        (worker_id, task_id),
    ).fetchone()
    return Claim(run_id=row[0], spec=json.loads(row[1]), attempt=row[2]) if row else None


def request_cancel(db: Database, run_id: str) -> str:
    """Cancel a queued run at once, ask the worker of a running one; return the status after it.

    UserError when the run has already ended.
    """
    with db.atomic():
        queued = db.conn.execute(
            "UPDATE runs SET status = 'cancelled', finished_at = ?, cancel_requested = 0"
            " WHERE id = ? AND status = 'queued'",
            (utc_now(), run_id),
        ).rowcount
        if queued:
            add_events(db, run_id, [(None, "state", "cancelled while queued")])
            return "cancelled"
        asked = db.conn.execute(
            "UPDATE runs SET cancel_requested = 1"
            " WHERE id = ? AND status IN ('claimed', 'running', 'ingesting')",
            (run_id,),
        ).rowcount
        status = _status(db, run_id)
        if not asked:
            raise UserError(f"run {run_id} is {status}: there is nothing to cancel")
        add_events(db, run_id, [(None, "state", "cancel requested")])
    return status


def cancel_requested(db: Database, run_id: str) -> bool:
    """Say whether somebody asked to cancel this run."""
    row = db.execute("SELECT cancel_requested FROM runs WHERE id = ?", (run_id,)).fetchone()
    return bool(row and row[0])


def retry(db: Database, run_id: str) -> None:
    """Put an ended run (not a done one) back into the queue; UserError otherwise.

    The caller sends the queue message.
    """
    with db.atomic():
        moved = db.conn.execute(
            "UPDATE runs SET status = 'queued', cancel_requested = 0, error = NULL, oom = NULL,"
            " worker_id = NULL, finished_at = NULL, started_at = NULL, progress = '{}'"
            " WHERE id = ? AND spec IS NOT NULL"
            " AND status IN ('failed', 'cancelled', 'interrupted', 'oom')",
            (run_id,),
        ).rowcount
        if not moved:
            raise UserError(f"run {run_id} is {_status(db, run_id)}: it cannot be run again")
        add_events(db, run_id, [(None, "state", "queued again")])


def move_up(db: Database, run_id: str) -> None:
    """Move a queued run to the front of the queue; UserError when it is not queued."""
    with db.atomic():
        moved = db.conn.execute(
            "UPDATE runs SET position = (SELECT min(position) - 1 FROM runs)"
            " WHERE id = ? AND status = 'queued'",
            (run_id,),
        ).rowcount
        if not moved:
            raise UserError(f"run {run_id} is {_status(db, run_id)}: only a queued run can move up")


def front_of_queue(db: Database, run_id: str) -> str | None:
    """Return the queued run that is first in line for the GPU model of `run_id`.

    A message says "one more run for this queue": which one is decided here, by position, so that
    order does not depend on the broker and a run can be moved up.
    """
    row = db.execute(
        "SELECT id FROM runs WHERE status = 'queued' AND cancel_requested = 0"
        " AND gpu_model = (SELECT gpu_model FROM runs WHERE id = ?) ORDER BY position, id LIMIT 1",
        (run_id,),
    ).fetchone()
    return row[0] if row else None


def _status(db: Database, run_id: str) -> str:
    row = db.execute("SELECT status FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise UserError(f"run {run_id!r} does not exist")
    return str(row[0])
