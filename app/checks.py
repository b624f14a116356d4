"""What `doctor` checks on the dashboard's side: data directory, database, broker, disk."""

import shutil
from typing import Any

from core.config import DataDir, broker_url
from core.errors import AppError

MIN_FREE_BYTES = 2 * 2**30
BROKER_TIMEOUT_S = 3


def dashboard_checks(data: DataDir) -> list[dict[str, Any]]:
    """Return the checks; each has name, is_ok, found, fix, needed_for."""
    return [_data_directory(data), _database(data), _disk(data), _broker(data)]


def _check(name: str, is_ok: bool, found: str, fix: str, needed_for: str) -> dict[str, Any]:
    fix = "" if is_ok else fix
    return {"name": name, "is_ok": is_ok, "found": found, "fix": fix, "needed_for": needed_for}


def _data_directory(data: DataDir) -> dict[str, Any]:
    fix = "Make it writable for this user, or name another with --data"
    try:
        data.ensure()
        probe = data.uploads / ".doctor"
        probe.write_text("")
        probe.unlink()
    except OSError as exc:
        return _check("data", False, f"{data.root}: {exc.strerror}", fix, "everything")
    return _check("data", True, str(data.root), fix, "everything")


def _database(data: DataDir) -> dict[str, Any]:
    from db.connection import opened
    from db.status import integrity

    fix = "Move the file away and restore a copy; captures can be imported again"
    try:
        with opened(data.db_path) as db:
            faults = integrity(db)
    except (AppError, OSError) as exc:
        return _check("database", False, str(exc), fix, "everything")
    return _check("database", not faults, "; ".join(faults) or "sound", fix, "everything")


def _disk(data: DataDir) -> dict[str, Any]:
    try:
        free = shutil.disk_usage(data.root).free
    except OSError as exc:
        return _check("disk", False, str(exc.strerror), "Choose another --data folder", "captures")
    found = f"{free / 2**30:.1f} GiB free"
    return _check("disk", free >= MIN_FREE_BYTES, found, "Delete old runs or add space", "captures")


def _broker(data: DataDir) -> dict[str, Any]:
    url = broker_url(data)
    shown = url.rsplit("@", 1)[-1]  # never a password
    fix = "Start Redis, or unset WARPBOARD_BROKER to use the embedded broker"
    if url.startswith("filesystem://"):
        return _check("broker", True, "embedded, in the data directory", fix, "the queue")
    from kombu import Connection

    try:
        with Connection(url, connect_timeout=BROKER_TIMEOUT_S) as connection:
            connection.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S)
    except Exception as exc:  # every transport has errors of its own; all mean the same here
        return _check("broker", False, f"{shown}: {exc}", fix, "the queue")
    return _check("broker", True, shown, fix, "the queue")
