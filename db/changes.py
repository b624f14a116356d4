"""Tell whether what pages are made of has changed since it was read."""

from sqlite_utils import Database


def content(db: Database) -> int:
    """Return a number that is another after a write to runs, tags, predictions or GPUs.

    Heartbeats, logs, the progress of a run and its place in the queue leave it.
    """
    return _token(db, "content")


def classes(db: Database) -> int:
    """Return a number that is another after a stored kernel name got another class."""
    return _token(db, "classes")


def _token(db: Database, what: str) -> int:
    return int(db.execute("SELECT token FROM changes WHERE what = ?", [what]).fetchone()[0])
