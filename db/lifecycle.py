"""The life cycle of a run: every change of its status goes through `move`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlite_utils import Database

from core.states import RunStatus, sources_of
from db.events import add_events

UPDATABLE = frozenset(
    {"worker_id", "task_id", "gpu_id", "gpu_model", "device_id", "started_at", "finished_at"}
    | {"error", "oom", "progress", "cancel_requested"}
)
"""The columns of a run that may change together with its status."""


def move(
    db: Database,
    to: RunStatus,
    where: str,
    params: Sequence[Any],
    *,
    event: str,
    fields: Mapping[str, Any] | None = None,
    is_new_attempt: bool = False,
) -> list[str]:
    """Move the runs that `where` selects to `to` and return those that moved, with one log line.

    The table of moves is checked inside the UPDATE: a run whose status may not become `to` stays as
    it is, and of two callers at most one moves it. ValueError for a column that is not UPDATABLE.
    """
    fields = fields or {}
    if unknown := set(fields) - UPDATABLE:
        raise ValueError(f"a change of status cannot set {sorted(unknown)}")
    sources = [str(s) for s in sources_of(to)]
    values = [json.dumps(v) if isinstance(v, Mapping) else v for v in fields.values()]
    sets = "".join(f", {column} = ?" for column in fields)
    sets += ", attempt = attempt + 1" if is_new_attempt else ""
    with db.atomic():
        rows = db.execute(
            f"UPDATE runs SET status = ?{sets} WHERE ({where})"
            f" AND status IN ({', '.join('?' * len(sources))}) RETURNING id, attempt",
            (str(to), *values, *params, *sources),
        ).fetchall()
        for run_id, attempt in rows:
            add_events(
                db,
                run_id,
                [(None, "state", f"{event}, attempt {attempt}" if is_new_attempt else event)],
            )
    return [run_id for run_id, _ in rows]


def transition(db: Database, run_id: str, to: RunStatus | str, **fields: Any) -> bool:
    """Move one run to `to` with these columns; say whether the table of moves allowed it."""
    target = RunStatus(to)
    event = f"{target}: {fields['error']}" if fields.get("error") else str(target)
    return bool(move(db, target, "id = ?", [run_id], event=event, fields=fields))
