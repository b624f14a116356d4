"""From a worker to the results: progress, hand-in, and giving up runs whose worker is gone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from core.queues import job_queue
from core.states import RunStatus
from db.clock import seconds_ago, utc_now
from db.lifecycle import add_events, move

CLAIM_GRACE_S = 8.0
AWAITING = ("claimed", "running", "interrupted")
"""A run in these states takes the bundle of its present attempt."""


def interrupt_stale(
    db: Database, *, worker_id: str | None = None, older_than: str | None = None
) -> list[str]:
    """Mark claimed and running runs as interrupted and return them.

    Those of one worker that is known to be gone, or of every worker not seen since `older_than`.
    """
    if worker_id is not None:
        where, params = "worker_id = ?", [worker_id]
        why = f"the worker {worker_id} ended in the middle of the run"
    elif older_than is not None:
        where = (
            "worker_id IN (SELECT id FROM workers WHERE seen_at < ?)"
            " AND coalesce(started_at, '') < ?"
        )
        params = [older_than, older_than]
        why = "the worker has not been heard of"
    else:
        raise ValueError("name a worker or an age")
    return _interrupt(db, where, params, why)


def interrupt_lost(db: Database, worker_id: str, running: Sequence[str]) -> list[str]:
    """Mark what a live worker should be running, and says it is not, as interrupted.

    Its process for the run was killed. Runs claimed in the last seconds are left alone: the worker
    may have written its heartbeat before it had the claim.
    """
    why = "the process that ran it ended"
    now = utc_now()  # a start after it was written before the clock jumped back
    marks = ", ".join("?" * len(running))
    where = f"worker_id = ? AND NOT started_at BETWEEN ? AND ? AND id NOT IN ({marks})"
    return _interrupt(db, where, [worker_id, seconds_ago(CLAIM_GRACE_S), now, *running], why)


def _interrupt(db: Database, where: str, params: Sequence[Any], why: str) -> list[str]:
    """Interrupt the selected runs that a worker has."""
    return move(
        db,
        RunStatus.INTERRUPTED,
        f"status IN ('claimed', 'running') AND {where}",
        params,
        event=f"interrupted: {why}",
        fields={"error": why, "finished_at": utc_now()},
    )


def waiting_for(
    db: Database, worker_id: str, older_than_s: float
) -> list[tuple[str, str, str | None]]:
    """Return `(run_id, gpu_model, device)` of the first run of each queue of this worker."""
    row = db.execute("SELECT queues FROM workers WHERE id = ?", [worker_id]).fetchone()
    queues = set(json.loads(row[0])) if row else set()
    waiting = db.execute(
        "SELECT id, gpu_model, device_id FROM runs r WHERE status = 'queued' AND position ="
        " (SELECT min(position) FROM runs f WHERE f.status = 'queued'"
        " AND f.gpu_model = r.gpu_model AND f.device_id IS r.device_id)"
        " AND NOT created_at BETWEEN ? AND ?",
        [seconds_ago(older_than_s), utc_now()],
    ).fetchall()
    return [tuple(run) for run in waiting if job_queue(run[1], run[2]) in queues]


def start_running(db: Database, run_id: str, attempt: int, progress: Mapping[str, Any]) -> bool:
    """Record progress of the current attempt; False if the run no longer belongs to it."""
    with db.atomic():
        mine = "id = ? AND attempt = ?"
        move(db, RunStatus.RUNNING, mine, [run_id, attempt], event="running")
        if progress:
            db.conn.execute(
                "UPDATE runs SET progress = ? WHERE id = ? AND attempt = ? AND status = 'running'",
                (json.dumps(dict(progress)), run_id, attempt),
            )
        row = db.execute("SELECT attempt, status FROM runs WHERE id = ?", [run_id]).fetchone()
    return row is not None and row[0] == attempt and row[1] in ("running", "claimed")


def take_events(
    db: Database,
    run_id: str,
    attempt: int,
    progress: Mapping[str, Any],
    events: Sequence[tuple[str | None, str, str]],
) -> bool:
    """Note progress and `(at, kind, message)` of a run at work; return whether it should stop.

    Nothing is written where there is nothing new: a worker asks several times a second.
    """
    row = db.execute(
        "SELECT attempt, status, cancel_requested, progress FROM runs WHERE id = ?", [run_id]
    ).fetchone()
    if row is None or row[0] != attempt:
        return True
    status, is_cancelled, known = row[1:]
    is_news = bool(progress) and json.dumps(dict(progress)) != known
    if status == "running" and not is_news and not events:
        return bool(is_cancelled)
    with db.atomic():
        is_ours = start_running(db, run_id, attempt, progress)
        # A worker that was cut off for too long finishes what it has begun, and delivers it.
        is_ours = is_ours or is_given_up(db, run_id, attempt)
        if is_ours:
            add_events(db, run_id, events)
    return not is_ours or bool(is_cancelled)


def awaited_status(db: Database, run_id: str, attempt: int | None) -> str:
    """Return the run's status when a bundle of this attempt may come; one of AWAITING if it is new.

    UserError when the run is gone, waits to be run again, or belongs to a newer attempt.
    """
    row = db.execute("SELECT status, attempt FROM runs WHERE id = ?", [run_id]).fetchone()
    if row is None:
        raise UserError(f"run {run_id!r} does not exist")
    status, present = row
    if attempt is not None and attempt != present:
        raise UserError(f"run {run_id}: attempt {attempt} was given up for {present}")
    if status == "queued":
        raise UserError(f"run {run_id}: attempt {present} was given up, it is queued again")
    return str(status)


def is_given_up(db: Database, run_id: str, attempt: int) -> bool:
    """Say whether this attempt was given up only for silence: its bundle is still accepted."""
    row = db.execute("SELECT attempt, status FROM runs WHERE id = ?", [run_id]).fetchone()
    return row is not None and tuple(row) == (attempt, "interrupted")


def hand_in(db: Database, run_id: str, attempt: int | None) -> str:
    """Move a run whose bundle is here to `ingesting` and return the status it then has.

    `ingesting` also when it already was; an ended run keeps its status (the bundle came twice). A
    bundle of an attempt that was given up is taken as long as nothing newer has begun. UserError
    when the run belongs to a newer attempt.
    """
    with db.atomic():
        status = awaited_status(db, run_id, attempt)
        if status not in AWAITING:
            return status
        if status == RunStatus.CLAIMED:  # no word of its progress came through, but it ran
            move(db, RunStatus.RUNNING, "id = ?", [run_id], event="running")
        # What was to be cancelled was the job; from here on it is the reading of its captures.
        fields = {"error": None, "cancel_requested": 0}
        move(db, RunStatus.INGESTING, "id = ?", [run_id], event="ingesting", fields=fields)
    return "ingesting"


def runs_to_ingest(db: Database) -> list[str]:
    """Return the runs whose bundle is here and not yet read."""
    rows = db.execute("SELECT id FROM runs WHERE status = 'ingesting' ORDER BY started_at, id")
    return [row[0] for row in rows]


def run_exists(db: Database, run_id: str) -> bool:
    """Say whether there is such a run."""
    return db.execute("SELECT 1 FROM runs WHERE id = ?", [run_id]).fetchone() is not None


def run_status(db: Database, run_id: str) -> str | None:
    """Return a run's status; None when there is no such run."""
    row = db.execute("SELECT status FROM runs WHERE id = ?", [run_id]).fetchone()
    return row[0] if row else None
