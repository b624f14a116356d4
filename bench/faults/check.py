"""What must hold after the campaign."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from core.config import DataDir
from core.states import FINAL
from db.connection import opened


def check(
    data: DataDir, run_ids: list[str], journal: Path, spools: list[Path], orphans: list[int]
) -> dict[str, Any]:
    """Return counts of what is wrong (all must be 0) and how the runs ended."""
    final = {str(s) for s in FINAL}
    with opened(data.db_path) as db:
        rows = dict(db.execute("SELECT id, status FROM runs").fetchall())
        captures = db.execute("SELECT run_id, file_name, sha256 FROM captures").fetchall()
        warned = {r[0] for r in db.execute("SELECT run_id FROM warnings")}
        integrity = [r[0] for r in db.execute("PRAGMA integrity_check")]
        dangling = db.execute("PRAGMA foreign_key_check").fetchall()
    starts = Counter(line.split()[0] for line in journal.read_text().splitlines())
    done = {r for r in run_ids if rows.get(r) == "done"}
    stored = {run_id for run_id, _, _ in captures}
    wrong = {
        "runs lost": sum(r not in rows for r in run_ids),
        "runs not in a final state": sum(rows.get(r) not in final for r in run_ids),
        "runs started twice": sum(n > 1 for n in starts.values()),
        "done without having been started": len(done - starts.keys()),
        "done without a capture, and no warning why": len(done - stored - warned),
        "captures unreadable or with another hash": sum(
            not _is_sound(data.captures / run_id / name, sha) for run_id, name, sha in captures
        ),
        "bundles that name a capture that is not stored": _num_incomplete(data, done, captures),
        "acknowledged captures that are gone": _num_gone(data),
        "bundles left in a spool": sum(_num_bundles(spool) for spool in spools),
        "processes left behind": len(orphans),
        "database faults": sum(text != "ok" for text in integrity) + len(dangling),
    }
    return {
        "wrong": wrong,
        "ended": dict(Counter(str(rows.get(r)) for r in run_ids)),
        "num_captures": len(captures),
        "num_started": len(starts),
    }


def _is_sound(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def _num_incomplete(data: DataDir, done: set[str], captures: list[Any]) -> int:
    """Count runs whose stored manifest names other captures than the database has."""
    wrong = 0
    for run_id in done:
        try:
            manifest = json.loads((data.captures / run_id / "manifest.json").read_text())
        except (OSError, ValueError):
            wrong += 1
            continue
        named = {c["sha256"] for p in manifest["passes"] for c in p["captures"]}
        wrong += named != {sha for owner, _, sha in captures if owner == run_id}
    return wrong


def _num_gone(data: DataDir) -> int:
    """Count captures of runs that were handed in but not read, and are not there as uploaded."""
    gone = 0
    for path in data.uploads.glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        named = {c["sha256"] for p in manifest["passes"] for c in p["captures"]}
        gone += sum(not _is_sound(path.parent / sha, sha) for sha in named)
    return gone


def _num_bundles(spool: Path) -> int:
    """Count the bundles in a spool, refused ones included."""
    own = [p for p in spool.iterdir() if p.is_dir() and p.name != "refused"]
    refused = spool / "refused"
    return len(own) + (len(list(refused.iterdir())) if refused.is_dir() else 0)


def log_faults(folder: Path) -> dict[str, int]:
    """Count lines of the logs that report a fault of ours."""
    texts = [p.read_text(errors="replace") for p in folder.rglob("*.log")]
    return {
        "database is locked": sum(t.count("database is locked") for t in texts),
        "internal error": sum(t.count("internal error") for t in texts),
    }
