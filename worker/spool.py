"""Bundles that wait for the dashboard: nothing is deleted before every capture is acknowledged.

`spool/RUN_ID/` is a bundle; `.owner` in it holds the pid of the process at work on it, and
`delivery.json` marks it as complete. `spool/refused/` keeps what the dashboard will never take,
with the reason.
"""

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from worker.client import DashboardAway, DashboardClient, Refused
from worker.execute import write_json

LOG = logging.getLogger("warpboard.spool")
MARK = "delivery.json"
OWNER = ".owner"
CANCEL = ".cancel"
NEW = ".new-"
REFUSED = "refused"
MIN_FREE_BYTES = 32 * 2**20
KEEP_REFUSED_S = 30 * 86_400.0
KEEP_NEW_S = 86_400.0


def has_room(spool: Path) -> bool:
    """Say whether a run is worth starting: a full disk would fail one after the other."""
    return shutil.disk_usage(spool).free >= MIN_FREE_BYTES


def open_bundle(spool: Path, run_id: str) -> Path:
    """Return an empty folder for a run, owned by this process."""
    folder = spool / run_id
    shutil.rmtree(folder, ignore_errors=True)
    # Made whole under another name: a sweep must never see the folder without its owner.
    new = spool / f"{NEW}{run_id}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    (new / OWNER).write_text(_identity(os.getpid()) or "")
    return new.rename(folder)


def let_go(folder: Path) -> None:
    """Say that this process is done with a bundle: the next sweep delivers or drops it."""
    (folder / OWNER).unlink(missing_ok=True)


def seal(folder: Path, run_id: str) -> None:
    """Mark a bundle as complete: from now on it is delivered, by whichever process comes first."""
    write_json(folder / MARK, {"run_id": run_id})


def ask_to_cancel(spool: Path, run_id: str) -> None:
    """Leave a note for the process that executes the run; where the disk is full, another time."""
    if Path(run_id).name == run_id and (spool / run_id).is_dir():
        try:
            (spool / run_id / CANCEL).touch()
        except OSError as error:  # the next heartbeat asks again
            LOG.warning("run %s: not told to stop yet: %s", run_id, error)


def is_cancel_asked(folder: Path) -> bool:
    return (folder / CANCEL).exists()


def running_runs(spool: Path) -> list[str]:
    """Return the runs that a live process executes, or whose bundle waits to be delivered."""
    at_work = {p.parent.name for p in spool.glob(f"*/{OWNER}") if _owner_lives(p)}
    waiting = {p.parent.name for p in spool.glob(f"*/{MARK}") if p.parent.parent == spool}
    return sorted(at_work | waiting)


def _owner_lives(path: Path) -> bool:
    try:
        owner = path.read_text()
        return bool(owner) and _identity(int(owner.split()[0])) == owner
    except (OSError, ValueError):
        return False


def _identity(pid: int) -> str | None:
    """Return pid and start time of a live process: a pid alone may be another's by now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] == "Z" else f"{pid} {fields[19]}"


def deliver(folder: Path, client: DashboardClient) -> bool:
    """Upload a sealed bundle; True when it is acknowledged, or refused for good, and gone.

    Raises DashboardAway when it must be tried later; nothing is lost then.
    """
    run_id = json.loads((folder / MARK).read_text())["run_id"]
    manifest = json.loads((folder / "manifest.json").read_text())
    try:
        _upload_captures(folder, run_id, manifest, client)
        for _ in range(3):
            missing = set(client.finish(run_id, manifest))
            if not missing:
                shutil.rmtree(folder)
                return True
            _upload_captures(folder, run_id, manifest, client, only=missing)
    except Refused as refusal:
        if refusal.status == 401:  # the operator can fix the token
            raise DashboardAway(str(refusal)) from refusal
        _set_aside(folder, refusal)
        return True
    raise DashboardAway(f"run {run_id}: the dashboard still misses captures")


def _upload_captures(
    folder: Path,
    run_id: str,
    manifest: dict[str, Any],
    client: DashboardClient,
    only: set[str] | None = None,
) -> None:
    for record in manifest["passes"]:
        kept = []
        for capture in record["captures"]:
            try:
                if only is None or capture["sha256"] in only:
                    client.upload(run_id, folder / capture["file"], capture["sha256"])
                kept.append(capture)
            except Refused as refusal:
                if refusal.status != 413:
                    raise
                message = (
                    f"{capture['file']} ({capture['bytes']} bytes) is over the dashboard's limit"
                )
                warning = {"code": "capture_too_large", "message": message, "pass": record["pass"]}
                manifest["warnings"].append(warning)
        if len(kept) != len(record["captures"]):
            record["captures"] = kept
            write_json(folder / "manifest.json", manifest)


def _set_aside(folder: Path, refusal: Refused) -> None:
    LOG.warning("run %s: %s; its bundle is kept in spool/%s", folder.name, refusal, REFUSED)
    kept = folder.parent / REFUSED / folder.name
    kept.parent.mkdir(exist_ok=True)
    shutil.rmtree(kept, ignore_errors=True)
    shutil.move(folder, kept)
    (kept / "reason.txt").write_text(f"{refusal}\n")


def drop_old(spool: Path) -> None:
    """Remove refused bundles that were kept for long, and folders that were never begun."""
    refused = spool / REFUSED
    kept = [(p, KEEP_REFUSED_S) for p in (refused.iterdir() if refused.is_dir() else ())]
    kept += [(p, KEEP_NEW_S) for p in spool.glob(f"{NEW}*")]
    for path, age_s in kept:
        if time.time() - path.stat().st_mtime > age_s:
            LOG.warning("%s: dropped after %.0f days", path.name, age_s / 86_400)
            shutil.rmtree(path, ignore_errors=True)


def sweep(spool: Path, client: DashboardClient) -> int:
    """Deliver the sealed bundles that no live process has; return how many are left.

    Half-made ones of dead processes are dropped.
    """
    left = 0
    drop_old(spool)
    folders = (p for p in spool.iterdir() if p.is_dir() and p.name != REFUSED)
    for folder in sorted(p for p in folders if not p.name.startswith(NEW)):
        if _owner_lives(folder / OWNER):
            continue
        if not (folder / MARK).is_file():
            LOG.warning("run %s: its worker died before the bundle was complete", folder.name)
            shutil.rmtree(folder, ignore_errors=True)
            continue
        try:
            deliver(folder, client)
        except DashboardAway as error:
            LOG.info("run %s waits: %s", folder.name, error)
            left += 1
    return left
