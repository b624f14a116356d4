"""What people attach to a run: tags, notes, and the pin that makes it a baseline."""

from collections.abc import Iterable

from sqlite_utils import Database

from core.errors import UserError
from db.clock import utc_now

MAX_TAG_CHARS = 64
MAX_NOTES_CHARS = 20_000


def set_tags(
    db: Database, run_id: str, add: Iterable[str], remove: Iterable[str] = ()
) -> list[str]:
    """Add and remove tags and return what the run then has, sorted; UserError for a bad tag."""
    added = [_tag(t) for t in add]
    with db.atomic():
        db.conn.executemany(
            "INSERT OR IGNORE INTO tags (run_id, tag) VALUES (?, ?)", [(run_id, t) for t in added]
        )
        db.conn.executemany(
            "DELETE FROM tags WHERE run_id = ? AND tag = ?", [(run_id, t.strip()) for t in remove]
        )
    rows = db.execute("SELECT tag FROM tags WHERE run_id = ? ORDER BY tag", (run_id,))
    return [row[0] for row in rows]


def _tag(text: str) -> str:
    tag = text.strip()
    if not tag or len(tag) > MAX_TAG_CHARS or any(c in ',"' or c.isspace() for c in tag):
        raise UserError(
            f"tag: {text!r} is not a word of 1 to {MAX_TAG_CHARS} characters without comma or quote"
        )
    return tag


def set_notes(db: Database, run_id: str, notes: str) -> None:
    """Replace a run's notes; UserError when they are too long."""
    if len(notes) > MAX_NOTES_CHARS:
        raise UserError(f"notes: {len(notes)} characters are more than {MAX_NOTES_CHARS}")
    db.conn.execute("UPDATE runs SET notes = ? WHERE id = ?", (notes, run_id))
    db.conn.commit()


def pin(db: Database, run_id: str) -> None:
    """Make a run the baseline of its workload, params and GPU; it replaces the earlier one."""
    row = db.execute(
        "SELECT comparable_hash, gpu_model, status FROM runs WHERE id = ?", (run_id,)
    ).fetchone()
    if row is None or row[2] not in ("done", "oom"):
        raise UserError(f"run {run_id}: only a finished run can be a baseline")
    if row[0] is None:
        raise UserError(
            f"run {run_id}: its workload is not known; import it with --set workload=NAME to pin it"
        )
    db.table("baselines").upsert(
        {
            "comparable_hash": row[0],
            "gpu_model": row[1] or "",
            "run_id": run_id,
            "pinned_at": utc_now(),
        },
        pk=("comparable_hash", "gpu_model"),
    )


def unpin(db: Database, run_id: str) -> None:
    """Take a run's baseline mark away."""
    db.conn.execute("DELETE FROM baselines WHERE run_id = ?", (run_id,))
    db.conn.commit()
