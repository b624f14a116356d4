"""What `doctor` checks on the dashboard's side: data directory, database, disk, token, network."""

import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

from app.api.auth import token_path
from app.checks_network import broker, dashboard, port, workers
from app.serve.publish import check_publishing
from app.stack import running_stack
from core.config import DataDir, broker_url
from core.errors import AppError, UserError
from core.finding import finding

MIN_FREE_BYTES = 2 * 2**30
DEFAULT_PORT = 8501
_FIXES = (
    ("newer Warpboard", "Update this Warpboard, or name another folder with --data"),
    ("older Warpboard", "Start `warpboard up` once where the folder may be written"),
    ("locked", "Another program holds it: end that one (`fuser -v FILE` names it)"),
    ("cannot be opened", "Make its folder writable for this user, or name another with --data"),
)
_DAMAGED = "Move the file away and restore a copy; captures can be imported again"


def dashboard_checks(data: DataDir, port_wanted: int = DEFAULT_PORT) -> list[dict[str, Any]]:
    """Return the checks; each has name, is_ok, found, fix, needed_for."""
    stack = running_stack(data) if data.root.is_dir() else None
    checks = [_publishing(stack), _data_directory(data), _database(data), _disk(data), _token(data)]
    checks += [*broker(broker_url(data)), port(port_wanted, is_ours=stack is not None)]
    checks += workers(data)
    url = os.environ.get("WARPBOARD_DASHBOARD") or (stack or {}).get("url")
    return [*checks, *(dashboard(url, token_path(data)) if url else [])]


def _publishing(stack: dict[str, Any] | None) -> dict[str, Any]:
    """Say who reaches the pages that are served now, or that `up` would serve here."""
    needed = "people who may use the pages"
    if stack and stack.get("who"):
        return finding("pages", str(stack["who"]), needed_for=needed)
    try:
        return finding("pages", check_publishing("127.0.0.1", is_asked=False), needed_for=needed)
    except UserError as exc:
        found, _, fix = str(exc).partition(". ")
        remedy = fix or "Mend or remove the secrets file; see docs/permissions.md"
        return finding("pages", found, remedy, needed_for=needed)


def _data_directory(data: DataDir) -> dict[str, Any]:
    fix = "Make it writable for this user, or name another with --data"
    try:
        data.ensure()
        probe = data.uploads / ".doctor"
        probe.write_text("")
        probe.unlink()
    except (AppError, OSError) as exc:
        found = str(exc) if isinstance(exc, AppError) else f"{data.root}: {exc.strerror}"
        return finding("data", found, fix, needed_for="everything")
    return finding("data", str(data.root), needed_for="everything")


def _database(data: DataDir) -> dict[str, Any]:
    from db.connection import opened
    from db.status import integrity

    try:
        with opened(data.db_path, is_reader=True) as db:
            faults = integrity(db)
    except (AppError, OSError, sqlite3.Error) as exc:
        said = str(exc)
        fix = next((f for part, f in _FIXES if part in said), _DAMAGED)
        return finding("database", said, fix, needed_for="everything")
    fix = _DAMAGED if faults else ""
    return finding("database", "; ".join(faults) or "sound", fix, needed_for="everything")


def _disk(data: DataDir) -> dict[str, Any]:
    folder = next(p for p in (data.root, *data.root.parents) if p.exists())
    try:
        free = shutil.disk_usage(folder).free
    except OSError as exc:
        fix = "Choose another --data folder"
        return finding("disk", str(exc.strerror), fix, needed_for="captures")
    fix = "" if free >= MIN_FREE_BYTES else "Delete old runs or add space"
    return finding("disk", f"{free / 1e9:.1f} GB free", fix, needed_for="captures")


def _token(data: DataDir) -> dict[str, Any]:
    """Say whether the token's file is there and for its owner alone."""
    path: Path = token_path(data)
    try:
        mode = path.stat().st_mode
        is_empty = not path.read_text().strip()
    except FileNotFoundError:
        if not os.environ.get("WARPBOARD_TOKEN_FILE"):
            return finding("token", "none yet: the first start makes it", needed_for="workers")
        fix = "Name the file with --token-file; `warpboard token LABEL` makes a token"
        return finding("token", f"{path}: No such file or directory", fix, needed_for="workers")
    except OSError as exc:
        fix = f"Make it readable for this user: chown {os.getuid()} {path}"
        return finding("token", f"{path}: {exc.strerror}", fix, needed_for="workers")
    if is_empty:
        fix = "Put a token into it: `warpboard token LABEL` on the dashboard's host makes one"
        return finding("token", f"{path} is empty", fix, needed_for="workers")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        fix = f"chmod 600 {path}"
        return finding("token", f"{path} can be read by others", fix, needed_for="workers")
    return finding("token", f"{path}, for its owner alone", needed_for="workers")
