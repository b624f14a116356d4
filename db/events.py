"""The log of a run: state changes, progress stages and lines of output."""

from collections.abc import Iterable

from sqlite_utils import Database

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
