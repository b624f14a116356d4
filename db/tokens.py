"""Tokens of workers: made, listed, revoked, and what each may touch.

A token belongs to one worker: the first that registers with it. Workers of the dashboard's own host
share the token in its data directory, which has no row here.
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from core.errors import UserError
from core.foreign import checked_text
from db.clock import utc_now

EMBEDDED = "embedded"
"""The label of the token kept in the data directory."""


class NotYours(UserError):
    """Report a worker, GPU or run that another token has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as `token list` shows it; the token itself is not kept."""

    label: str
    created_at: str
    last_used_at: str | None
    worker_id: str | None
    "The worker that it is bound to; None until one registers."


def add_token(db: Database, token: str, label: str) -> None:
    """Store a token for a label, replacing the earlier one; only the SHA-256 is kept."""
    label = _plain(label)
    if label == EMBEDDED:
        raise UserError(f"label: {label!r} names the token of this host's own workers")
    digest = hashlib.sha256(token.encode()).hexdigest()
    with db.atomic():
        db.conn.execute("DELETE FROM worker_tokens WHERE label = ?", (label,))
        db.conn.execute(
            "INSERT OR REPLACE INTO worker_tokens (token_sha256, label, created_at)"
            " VALUES (?, ?, ?)",
            (digest, label, utc_now()),
        )


def _plain(label: str) -> str:
    """Return a label as it is compared: two that look alike by composed letters are one."""
    return checked_text(unicodedata.normalize("NFC", label), "label")


def tokens(db: Database) -> list[TokenRow]:
    """Return the accepted tokens, the newest last."""
    rows = db.query(
        "SELECT label, created_at, last_used_at, worker_id FROM worker_tokens ORDER BY created_at"
    )
    return [TokenRow(**row) for row in rows]


def revoke_token(db: Database, label: str) -> None:
    """Refuse a token from now on; UserError when there is none of that label."""
    label = _plain(label)
    with db.atomic():
        gone = db.conn.execute("DELETE FROM worker_tokens WHERE label = ?", (label,)).rowcount
    if not gone:
        known = ", ".join(row.label for row in tokens(db)) or "none"
        raise UserError(f"token {label!r} does not exist; there are: {known}")


def token_digests(db: Database) -> dict[str, str]:
    """Return the accepted tokens: SHA-256 -> label."""
    return dict(db.execute("SELECT token_sha256, label FROM worker_tokens").fetchall())


def note_use(db: Database, label: str) -> None:
    """Record that a token was used now."""
    with db.atomic():
        db.conn.execute(
            "UPDATE worker_tokens SET last_used_at = ? WHERE label = ?", (utc_now(), label)
        )


def bind_worker(db: Database, label: str, worker_id: str, gpu_ids: Sequence[str]) -> None:
    """Bind a token to the worker that registers with it; NotYours leaves everything as it was.

    NotYours when the token, the worker or one of the GPUs belongs to another.
    """
    owner = _owner(db, worker_id)
    if owner not in (None, label):
        raise NotYours(f"worker {worker_id!r} belongs to the token {owner!r}")
    if label != EMBEDDED:
        row = db.execute("SELECT worker_id FROM worker_tokens WHERE label = ?", [label]).fetchone()
        if row is None or row[0] not in (None, worker_id):
            raise NotYours(
                f"the token {label!r} belongs to another worker; a new one for this worker:"
                " `warpboard token LABEL` on the dashboard's host"
            )
        db.conn.execute(
            "UPDATE worker_tokens SET worker_id = ? WHERE label = ?", (worker_id, label)
        )
    for key in gpu_ids:
        row = db.execute("SELECT worker_id FROM gpus WHERE id = ?", [key]).fetchone()
        owner = _owner(db, row[0]) if row and row[0] != worker_id else None
        if owner not in (None, label):
            raise NotYours(
                f"the GPU {key} is worker {row[0]}'s, of the token {owner!r}; if it moved here:"
                f" `warpboard gpu remove {key}` on the dashboard's host"
            )


def check_worker(db: Database, label: str, worker_id: str) -> None:
    """Raise NotYours unless this worker registered with this token; UserError if it did not yet."""
    row = db.execute("SELECT token_label FROM workers WHERE id = ?", [worker_id]).fetchone()
    if row is None:
        raise UserError(f"worker {worker_id!r} is not registered")
    if row[0] != label:
        raise NotYours(f"worker {worker_id!r} is not one of the token {label!r}")


def check_run(
    db: Database,
    label: str,
    run_id: str,
    *,
    worker_id: str | None = None,
    gpu_uuid: str | None = None,
) -> None:
    """Raise NotYours when a run was claimed by a worker of another token.

    Also when it was claimed by another worker, or for another GPU, than a body names. A run that
    nobody has is left to the caller's own checks of status and attempt.
    """
    row = db.execute(
        "SELECT r.worker_id, w.token_label, g.uuid, json_extract(r.progress, '$.token') FROM runs r"
        " LEFT JOIN workers w ON w.id = r.worker_id LEFT JOIN gpus g ON g.id = r.gpu_id"
        " WHERE r.id = ?",
        [run_id],
    ).fetchone()
    if row is None:
        return
    if row[0] is None:
        if row[3] not in (None, label):
            raise NotYours(f"run {run_id} is not one of the token {label!r}")
        return
    if row[1] != label or worker_id not in (None, row[0]):
        raise NotYours(f"run {run_id} is not one of the token {label!r} and its worker")
    if gpu_uuid is not None and gpu_uuid != row[2]:
        raise NotYours(f"run {run_id} was not claimed for the GPU {gpu_uuid}")


def check_reading(db: Database, label: str, run_id: str | None = None) -> None:
    """Raise NotYours when a worker's token reads a run that is not its own, or all (None).

    A token that no worker registered with is a program's, which may read.
    """
    row = db.execute("SELECT worker_id FROM worker_tokens WHERE label = ?", [label]).fetchone()
    if row is None or row[0] is None:
        return
    owner = db.execute(
        "SELECT worker_id, json_extract(progress, '$.token') FROM runs WHERE id = ?", [run_id]
    ).fetchone()
    if owner is None or (owner[0] != row[0] and (owner[0] is not None or owner[1] != label)):
        raise NotYours(f"the token {label!r} is a worker's: it reads that worker's runs alone")


def _owner(db: Database, worker_id: Any) -> str | None:
    """Return the label of the token that has a worker, while that token is accepted."""
    row = db.execute(
        "SELECT token_label FROM workers WHERE id = ? AND (token_label = ? OR token_label IN"
        " (SELECT label FROM worker_tokens))",
        [worker_id, EMBEDDED],
    ).fetchone()
    return row[0] if row else None
