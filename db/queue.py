"""Changes to the queue on request of people and workers: claim, cancel, retry, reorder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from core.states import ACTIVE, RunStatus
from db.clock import utc_now
from db.devices import device_name, devices
from db.lifecycle import add_events, move

_NUM_GPUS = "coalesce(spec ->> '$.params.gpus', 1)"
"""SQL: how many GPUs of one host a run needs at once."""
ANY_NUMBER = 1 << 30
"""Ranks that a CPU can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that a worker may now start."""

    run_id: str
    spec: Mapping[str, Any]
    attempt: int


def claim_run(
    db: Database,
    run_id: str,
    *,
    worker_id: str,
    gpu_id: str | None,
    task_id: str | None,
    num_gpus: int = ANY_NUMBER,
) -> Claim | None:
    """Claim a queued run for a worker; None when it is not queued (any more).

    None also when the run needs more than the `num_gpus` GPUs of the worker's host.

    The guard is in the UPDATE: of two workers that got the same message one wins.
    """
    with db.atomic():
        taken = move(
            db,
            RunStatus.CLAIMED,
            "id = ? AND cancel_requested = 0 AND spec IS NOT NULL"
            f" AND (device_id IS NULL OR device_id = ?) AND {_NUM_GPUS} <= ?",
            [run_id, gpu_id, num_gpus],
            event=f"claimed by {worker_id}",
            fields={"worker_id": worker_id, "gpu_id": gpu_id, "task_id": task_id}
            | {"started_at": utc_now(), "finished_at": None, "error": None, "progress": {}},
            is_new_attempt=True,
        )
        if not taken:
            return None
        row = db.execute("SELECT spec, attempt FROM runs WHERE id = ?", [run_id]).fetchone()
    return Claim(run_id=run_id, spec=json.loads(row[0]), attempt=row[1])


def claimed_before(db: Database, worker_id: str, task_id: str) -> Claim | None:
    """Return what this attempt to claim already got, if its answer was lost."""
    row = db.execute(
        "SELECT id, spec, attempt FROM runs"
        " WHERE status = 'claimed' AND worker_id = ? AND task_id = ?",
        (worker_id, task_id),
    ).fetchone()
    return Claim(run_id=row[0], spec=json.loads(row[1]), attempt=row[2]) if row else None


def is_any_at_work(db: Database) -> bool:
    """Say whether a job is with a worker, or is being read."""
    states = json.dumps([str(state) for state in ACTIVE - {RunStatus.QUEUED}])
    row = db.execute(
        "SELECT EXISTS (SELECT 1 FROM runs WHERE status IN (SELECT value FROM json_each(?)))",
        [states],
    ).fetchone()
    return bool(row[0])


def request_cancel(db: Database, run_id: str) -> str:
    """Cancel a queued run at once or ask a running one's worker to stop; return the new status.

    UserError when the run has already ended.
    """
    with db.atomic():
        is_cancelled = move(
            db,
            RunStatus.CANCELLED,
            "id = ? AND status = 'queued'",
            [run_id],
            event="cancelled while queued",
            fields={"finished_at": utc_now(), "cancel_requested": 0},
        )
        if is_cancelled:
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


def retry(db: Database, run_id: str) -> None:
    """Put an ended run (not a done one) back into the queue; UserError otherwise.

    It waits for the physical GPU that its spec names. A run of a sweep stays on the one that it ran
    on, where the model has several: its neighbours are compared with it, and cards differ. The
    caller sends the queue message.
    """
    with db.atomic():
        device = _device_of_retry(db, run_id)
        model = db.execute("SELECT spec ->> '$.gpu' FROM runs WHERE id = ?", [run_id]).fetchone()
        where = f" for {device_name(devices(db), device)}" if device else ""
        emptied = ("error", "oom", "worker_id", "finished_at", "started_at")
        moved = move(
            db,
            RunStatus.QUEUED,
            "id = ? AND spec IS NOT NULL",
            [run_id],
            event=f"queued again{where}",
            fields=dict.fromkeys(emptied)
            | {"cancel_requested": 0, "progress": {}}
            | {"gpu_model": model and model[0], "device_id": device},
        )
        if not moved:
            raise UserError(f"run {run_id} is {_status(db, run_id)}: it cannot be run again")


def _device_of_retry(db: Database, run_id: str) -> str | None:
    row = db.execute(
        "SELECT spec ->> '$.device', gpu_id, spec ->> '$.gpu',"
        " (SELECT count(*) FROM runs n WHERE n.sweep_id = r.sweep_id) FROM runs r WHERE id = ?",
        (run_id,),
    ).fetchone()
    if row is None or row[0]:
        return row[0] if row else None
    _, gpu_id, model, num_neighbours = row
    online = {d.id for d in devices(db) if d.model == model and d.is_online}
    return gpu_id if num_neighbours > 1 and len(online) > 1 and gpu_id in online else None


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


def gpus_of_worker(db: Database, worker_id: str, model: str) -> int:
    """Return how many GPUs of a model a worker registered: what one job can have of its host."""
    if model == "cpu":
        return ANY_NUMBER
    row = db.execute(
        "SELECT count(*) FROM gpus WHERE worker_id = ? AND model = ?", (worker_id, model)
    ).fetchone()
    return int(row[0])


def most_gpus_of_a_host(db: Database, model: str) -> int:
    """Return how many GPUs of a model the largest worker registered; 0 where none did."""
    row = db.execute(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM gpus"
        " WHERE worker_id IS NOT NULL AND model = ? GROUP BY worker_id)",
        (model,),
    ).fetchone()
    return int(row[0] or 0)


def front_of_queue(
    db: Database, run_id: str, gpu_id: str | None = None, num_gpus: int = ANY_NUMBER
) -> str | None:
    """Return the queued run that is first in line for a GPU of the model of `run_id`.

    A message says "one more run for this queue": which one is decided here, by position, so that
    order does not depend on the broker and a run can be moved up. Runs that wait for another
    physical GPU than `gpu_id`, or need more GPUs than the host's `num_gpus`, are passed over.
    """
    row = db.execute(
        "SELECT id FROM runs WHERE status = 'queued' AND cancel_requested = 0"
        " AND gpu_model = (SELECT gpu_model FROM runs WHERE id = ?)"
        f" AND (device_id IS NULL OR device_id = ?) AND {_NUM_GPUS} <= ?"
        " ORDER BY position, id LIMIT 1",
        (run_id, gpu_id, num_gpus),
    ).fetchone()
    return row[0] if row else None


def waiting_place(db: Database, run_id: str) -> tuple[str, str | None] | None:
    """Return `(gpu_model, device)` that a queued run waits for; None when it is not queued."""
    row = db.execute(
        "SELECT gpu_model, device_id FROM runs WHERE id = ? AND status = 'queued'", (run_id,)
    ).fetchone()
    return (row[0], row[1]) if row else None


def _status(db: Database, run_id: str) -> str:
    row = db.execute("SELECT status FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise UserError(f"run {run_id!r} does not exist")
    return str(row[0])
