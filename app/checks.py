"""What `doctor` checks on the dashboard's side.

Here: data directory, database, disk, token. Beyond: broker, port, dashboard, other hosts' workers.
"""

import os
import shutil
import sqlite3
import stat
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from app.api.auth import token_path
from app.serve.publish import check_for_workers, check_publishing
from app.stack import running_stack
from core import VERSION
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
    try:
        check_for_workers()
    except UserError as exc:
        found, _, fix = str(exc).partition(". ")
        return finding("pages", found, fix, needed_for="workers of other hosts")
    if stack and stack.get("who"):
        return finding("pages", str(stack["who"]), needed_for=needed)
    try:
        return finding("pages", check_publishing("127.0.0.1", is_asked=False), needed_for=needed)
    except UserError as exc:
        found, _, fix = str(exc).partition(". ")
        remedy = fix or "Fix or remove the secrets file; see docs/permissions.md"
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
        error = str(exc)
        fix = next((f for part, f in _FIXES if part in error), _DAMAGED)
        return finding("database", error, fix, needed_for="everything")
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


BROKER_TIMEOUT_S = 3
DASHBOARD_TIMEOUT_S = 10.0
MAX_CLOCK_SKEW_S = 10.0
_CLOCK_FIX = "Set both clocks by NTP: timedatectl set-ntp true"
_VERSION_FIX = "Install the same version on both hosts"


def broker(url: str) -> list[dict[str, Any]]:
    """Say whether the broker answers, and keeps the queue over a restart; never a password."""
    shown = url.rsplit("@", 1)[-1]
    if url.startswith("filesystem://"):
        return [finding("broker", "embedded, in the data directory", needed_for="the queue")]
    if not url.startswith(("redis://", "rediss://", "redis+socket://")):
        fix = "Write WARPBOARD_BROKER as redis://:PASSWORD@HOST:6379/0, or unset it"
        return [finding("broker", f"{shown} is not a Redis URL", fix, needed_for="the queue")]
    return _redis(url, shown)


def _redis(url: str, shown: str) -> list[dict[str, Any]]:
    import redis

    fix = "Start Redis, or unset WARPBOARD_BROKER to use the embedded broker"
    try:
        client = redis.Redis.from_url(
            url.replace("redis+socket://", "unix://"),
            socket_connect_timeout=BROKER_TIMEOUT_S,
            socket_timeout=BROKER_TIMEOUT_S,
        )
        client.ping()
        kept = client.info("persistence").get("aof_enabled")
    except redis.exceptions.AuthenticationError as exc:
        fix = "Write Redis's own password into the URL: redis://:PASSWORD@HOST:6379/0"
        return [finding("broker", f"{shown}: {exc}", fix, needed_for="the queue")]
    except redis.exceptions.NoPermissionError:
        kept = None
    except (redis.exceptions.RedisError, OSError, ValueError) as exc:
        return [finding("broker", f"{shown}: {exc}", fix, needed_for="the queue")]
    checks = [finding("broker", shown, needed_for="the queue")]
    if kept is None:
        return checks
    fix = "" if kept else "Start Redis with --appendonly yes (at once: CONFIG SET appendonly yes)"
    found = "appends to a file" if kept else f"{shown} forgets the queue when it ends"
    return [*checks, finding("broker memory", found, fix, needed_for="the queue after a restart")]


def port(number: int, *, is_ours: bool) -> dict[str, Any]:
    """Say whether `up` can listen on a port of this host, or a Warpboard does already."""
    from app.stack import check_port

    if is_ours:
        return finding("port", "the dashboard of this data directory runs", needed_for="up")
    try:
        check_port("127.0.0.1", number)
    except UserError as exc:
        if _health(f"http://127.0.0.1:{number}"):
            return finding("port", f"a Warpboard listens on {number}", needed_for="up")
        fix = f"`warpboard up --port N`, or end what listens: ss -ltnp 'sport = :{number}'"
        return finding("port", str(exc).partition(";")[0], fix, needed_for="up")
    return finding("port", f"{number} is free", needed_for="up")


def dashboard(url: str, token_file: Path) -> list[dict[str, Any]]:
    """Say whether the dashboard answers, takes this token, and agrees on version and time."""
    import httpx

    def found(text: str, fix: str = "") -> dict[str, Any]:
        return finding("dashboard", f"{url}: {text}", fix, needed_for="workers")

    try:
        token = token_file.read_text().strip()
    except OSError as exc:
        fix = "Name the file with --token-file; `warpboard token LABEL` makes a token"
        return [found(f"{token_file}: {exc.strerror}", fix)]
    headers = {"Authorization": f"Bearer {token}"}
    where = url.rstrip("/") + "/api/v1"
    try:
        with httpx.Client(headers=headers, timeout=DASHBOARD_TIMEOUT_S, trust_env=False) as client:
            answer = client.get(f"{where}/runs", params={"limit": 1})
            theirs = _health(url)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as exc:
        fix = "Start it with `warpboard up`, or correct the address or the network"
        return [found(str(exc), fix)]
    agreement = [
        _clock("the dashboard", _skew_s(answer.headers)),
        _version("the dashboard", theirs),
    ]
    others = [check for check in agreement if check is not None]
    if answer.status_code in (401, 429):
        fix = "Make a token on its host with `warpboard token LABEL` and put it into that file"
        return [found(f"the token in {token_file} is not taken", fix), *others]
    if answer.status_code != 200:
        return [found(f"answered {answer.status_code}", "Is it a Warpboard? See its log"), *others]
    return [found("takes the token"), *others]


def workers(data: DataDir) -> list[dict[str, Any]]:
    """Say which workers that are online have another version, or another time."""
    from db.connection import opened
    from db.devices import online_workers

    if not data.db_path.exists():
        return []
    try:
        with opened(data.db_path, is_reader=True) as db:
            known = online_workers(db)
    except (AppError, OSError, sqlite3.Error):
        return []  # the check of the database says why
    checks = []
    for worker_id, version, info in known:
        who = f"worker {worker_id} on {info.get('host_label') or 'an unknown host'}"
        checks += [_version(who, version), _clock(who, info.get("clock_skew_s"))]
    return [check for check in checks if check is not None]


def _version(who: str, version: str | None) -> dict[str, Any] | None:
    if version is None:
        return None
    fix = "" if version == VERSION else _VERSION_FIX
    found = f"{who} is version {version}" + (f", this is {VERSION}" if fix else "")
    return finding("version", found, fix, needed_for="jobs on several hosts")


def _clock(who: str, skew_s: float | None) -> dict[str, Any] | None:
    if skew_s is None:
        return None
    fix = _CLOCK_FIX if abs(skew_s) > MAX_CLOCK_SKEW_S else ""
    way = "behind" if skew_s > 0 else "ahead"
    found = f"{who} is {abs(skew_s):.0f} s {way}" if fix else f"{who} has the same time"
    return finding("clock", found, fix, needed_for="times of runs and log lines")


def _skew_s(headers: Any) -> float | None:
    """Return how far another host's clock is behind ours, by the Date of its answer."""
    try:
        return time.time() - parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None


def _health(url: str) -> str | None:
    """Return the version of the Warpboard that answers there, if one does."""
    import httpx

    try:
        with httpx.Client(timeout=DASHBOARD_TIMEOUT_S, trust_env=False) as client:
            answer = client.get(url.rstrip("/") + "/api/v1/health").json()
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ValueError):
        return None
    return str(answer["version"]) if isinstance(answer, dict) and "version" in answer else None
