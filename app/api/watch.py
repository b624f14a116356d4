"""Give up runs whose worker fell silent, remind ingest of waiting runs, and remove leftovers.

Silence is measured with this process's monotonic clock from when it last heard of a worker, or from
its own start: neither a jump of the wall clock nor a restart of the dashboard interrupts a run.
Leftovers are uploads of ended runs, imports that failed and half-written files.
"""

import logging
import shutil
import time
from pathlib import Path

import anyio
import anyio.to_thread

from app.api.state import EMBEDDED_SILENCE_S, REMOTE_SILENCE_S, ApiState
from core.config import DataDir
from core.errors import AppError
from db import Database, handover
from db.handover import AWAITING, run_status
from db.workers import worker_stopped, workers_with_active_runs

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


LOG = logging.getLogger("warpboard.watch")
INTERVAL_S = 2.0
CLEAN_S = 3600.0
MAX_LATE_S = 3.0
REMIND_INGEST_S = 15.0
"A message to ingest may be lost with Redis's last second, or with the process that had it."


async def watch(state: ApiState) -> None:
    """Look for silent workers until cancelled."""
    while True:
        slept_s = time.monotonic()
        await anyio.sleep(INTERVAL_S)
        if time.monotonic() - slept_s > INTERVAL_S + MAX_LATE_S:
            state.hear_again()  # this process was suspended: no heartbeat could arrive
        try:
            await anyio.to_thread.run_sync(give_up_silent, state)
            await anyio.to_thread.run_sync(remind_ingest, state)
            await anyio.to_thread.run_sync(tidy, state)
        except AppError as exc:
            LOG.warning("%s", exc)
        except Exception:  # top-level handler of a background task: it must not end
            LOG.exception("watching workers and ingest failed")


def tidy(state: ApiState) -> None:
    """Look at the disk, and now and then remove leftovers."""
    disk = disk_state(state.data_dir)
    if disk != state.disk:
        LOG.warning("the disk with %s is %s", state.data_dir.root, disk)
        state.disk = disk
    if time.monotonic() - state.cleaned_s > CLEAN_S:
        state.cleaned_s = time.monotonic()
        clean_uploads(state.database(), state.data_dir)


def give_up_silent(state: ApiState) -> list[str]:
    """Interrupt the runs of workers that have been silent too long; return the runs."""
    db: Database = state.database()
    now = time.monotonic()
    interrupted: list[str] = []
    for worker_id, is_embedded in workers_with_active_runs(db):
        limit_s = EMBEDDED_SILENCE_S if is_embedded else REMOTE_SILENCE_S
        if worker_id in state.asking:
            continue  # it waits for our answer
        if now - state.seen_s.get(worker_id, state.started_s) > limit_s:
            interrupted += handover.interrupt_stale(db, worker_id=worker_id)
            worker_stopped(db, worker_id)
            LOG.warning("worker %s is silent; interrupted %s", worker_id, interrupted)
    return interrupted


def remind_ingest(state: ApiState) -> str | None:
    """Tell ingest again of a run that has been next for a while; return it.

    A message too many does no harm: what is read is not read again.
    """
    waiting = handover.runs_to_ingest(state.database())
    now = time.monotonic()
    run_id, since_s = state.ingest_waits
    if not waiting or waiting[0] != run_id:
        state.ingest_waits = (waiting[0] if waiting else "", now)
        return None
    if now - since_s < REMIND_INGEST_S:
        return None
    state.ingest_waits = (run_id, now)
    state.send_ingest(run_id)
    return run_id
