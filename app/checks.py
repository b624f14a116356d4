"""What `doctor` checks on the dashboard's side: data directory, database, broker, disk."""

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from app.api.auth import token_path
from app.stack import running_stack
from core.config import DataDir, broker_url
from core.errors import AppError

MIN_FREE_BYTES = 2 * 10**9
BROKER_TIMEOUT_S = 3
DASHBOARD_TIMEOUT_S = 10.0


def dashboard_checks(data: DataDir) -> list[dict[str, Any]]:
    """Return the checks; each has name, is_ok, found, fix, needed_for."""
    checks = [_data_directory(data), _database(data), _disk(data), _broker(data)]
    url = os.environ.get("WARPBOARD_DASHBOARD") or (running_stack(data) or {}).get("url")
    return [*checks, *([_dashboard(url, token_path(data))] if url else [])]


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
    except (AppError, OSError) as exc:
        found = str(exc) if isinstance(exc, AppError) else f"{data.root}: {exc.strerror}"
        return _check("data", False, found, fix, "everything")
    return _check("data", True, str(data.root), fix, "everything")


def _database(data: DataDir) -> dict[str, Any]:
    from db.connection import opened
    from db.status import integrity

    fix = "Move the file away and restore a copy; captures can be imported again"
    try:
        with opened(data.db_path) as db:
            faults = integrity(db)
    except (AppError, OSError, sqlite3.Error) as exc:
        return _check("database", False, str(exc), fix, "everything")
    return _check("database", not faults, "; ".join(faults) or "sound", fix, "everything")


def _disk(data: DataDir) -> dict[str, Any]:
    try:
        free = shutil.disk_usage(data.root).free
    except OSError as exc:
        return _check("disk", False, str(exc.strerror), "Choose another --data folder", "captures")
    found = f"{free / 1e9:.1f} GB free"
    return _check("disk", free >= MIN_FREE_BYTES, found, "Delete old runs or add space", "captures")


def _broker(data: DataDir) -> dict[str, Any]:
    url = broker_url(data)
    shown = url.rsplit("@", 1)[-1]  # never a password
    fix = "Start Redis, or unset WARPBOARD_BROKER to use the embedded broker"
    if url.startswith("filesystem://"):
        return _check("broker", True, "embedded, in the data directory", fix, "the queue")
    if not url.startswith(("redis://", "rediss://", "redis+socket://")):
        fix = "Write WARPBOARD_BROKER as redis://:PASSWORD@HOST:6379/0, or unset it"
        return _check("broker", False, f"{shown} is no Redis URL", fix, "the queue")
    from kombu import Connection

    try:
        with Connection(url, connect_timeout=BROKER_TIMEOUT_S) as connection:
            connection.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S)
    except Exception as exc:  # every transport has errors of its own; all mean the same here
        return _check("broker", False, f"{shown}: {exc}", fix, "the queue")
    return _check("broker", True, shown, fix, "the queue")


def _dashboard(url: str, token_file: Path) -> dict[str, Any]:
    """Say whether the dashboard answers, and takes this token, as a worker would ask it."""
    import httpx

    def found(text: str, fix: str) -> dict[str, Any]:
        return _check("dashboard", not fix, f"{url}: {text}", fix, "workers")

    try:
        token = token_file.read_text().strip()
    except OSError as exc:
        fix = "Name the file with --token-file; `warpboard token LABEL` makes a token"
        return found(f"{token_file}: {exc.strerror}", fix)
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with httpx.Client(headers=headers, timeout=DASHBOARD_TIMEOUT_S, trust_env=False) as client:
            answer = client.get(f"{url.rstrip('/')}/api/v1/runs", params={"limit": 1})
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as exc:
        return found(str(exc), "Start it with `warpboard up`, or mend the address and the network")
    if answer.status_code in (401, 429):
        fix = "Make a token on its host with `warpboard token LABEL` and put it into that file"
        return found(f"the token in {token_file} is not taken", fix)
    if answer.status_code != 200:
        return found(f"answered {answer.status_code}", "Is it a Warpboard? See its log")
    return found("takes the token", "")
