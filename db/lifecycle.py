"""The life cycle of a run and its log: every change of its status goes through `move`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlite_utils import Database

from core.states import RunStatus, sources_of
from db.clock import utc_now

MAX_EVENTS_PER_RUN = 20_000
"A worker that logs without end must not fill the disk; the newest lines win."
PRUNE_EVERY = 500
"Lines of all runs between two looks at whether a run has too many."
MAX_MESSAGE_CHARS = 4_000


def add_events(db: Database, run_id: str, events: Iterable[tuple[str | None, str, str]]) -> None:
    """Append `(at, kind, message)`; `at` None is now. Kinds: state, progress, log."""
    now = utc_now()
    rows = [(run_id, at or now, kind, text[:MAX_MESSAGE_CHARS]) for at, kind, text in events]
    if not rows:
        return
    with db.atomic():
        db.conn.executemany(
            "INSERT INTO events (run_id, at, kind, message) VALUES (?, ?, ?, ?)", rows
        )
        (last_id,) = db.conn.execute("SELECT last_insert_rowid()").fetchone()
        # Finding the oldest line to keep reads all of them: not for every batch.
        if last_id // PRUNE_EVERY == (last_id - len(rows)) // PRUNE_EVERY:
            return
        db.conn.execute(
            "DELETE FROM events WHERE run_id = ? AND id <= (SELECT id FROM events WHERE run_id = ?"
            " ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (run_id, run_id, MAX_EVENTS_PER_RUN),
        )


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
