"""Remove leftovers: uploads of ended runs, imports that failed, half-written files."""

import logging
import shutil
import time
from pathlib import Path

from core.config import DataDir
from db import Database
from db.handover import AWAITING, run_status

LOG = logging.getLogger("warpboard.watch")
MAX_AGE_S = 24 * 3600.0
LOW_BYTES = 2 * 2**30
FULL_BYTES = 256 * 2**20
"Below it uploads are refused and finished runs wait to be read."


def disk_state(data_dir: DataDir) -> str:
    """Return `ok`, `low` or `full`, of the disk with the data directory."""
    free = shutil.disk_usage(data_dir.root).free
    return "full" if free < FULL_BYTES else "low" if free < LOW_BYTES else "ok"


def clean_uploads(db: Database, data_dir: DataDir) -> list[str]:
    """Remove what has lain in `uploads` for long and belongs to no run that waits; return names.

    A run that was given up for silence may still deliver, so its folder stays while that is so.
    """
    removed = []
    for path in sorted(data_dir.uploads.iterdir()):
        status = run_status(db, path.name)
        is_awaited = status in AWAITING or status == "ingesting"
        if is_awaited and status != "interrupted":
            continue
        limit_s = MAX_AGE_S * (30 if is_awaited else 1)
        if time.time() - _newest_s(path) < limit_s:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed.append(path.name)
    if removed:
        LOG.warning("removed %d old uploads", len(removed))
    return removed


def _newest_s(path: Path) -> float:
    """Return when something in a folder was last written."""
    times = [path.lstat().st_mtime]
    if path.is_dir() and not path.is_symlink():
        times += [entry.lstat().st_mtime for entry in path.rglob("*")]
    return max(times)
