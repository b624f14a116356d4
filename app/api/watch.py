"""Give up runs whose worker has fallen silent, so that the queue goes on.

Silence is measured with this process's monotonic clock from when it last heard of a worker, or from
its own start: neither a jump of the wall clock nor a restart of the dashboard interrupts a run.
"""

import logging
import time

import anyio
import anyio.to_thread
from sqlite_utils import Database

from app.api.state import EMBEDDED_SILENCE_S, REMOTE_SILENCE_S, ApiState
from db import handover
from db.workers import worker_stopped, workers_with_active_runs

LOG = logging.getLogger("warpboard.watch")
INTERVAL_S = 2.0


async def watch(state: ApiState) -> None:
    """Look for silent workers until cancelled."""
    while True:
        await anyio.sleep(INTERVAL_S)
        try:
            await anyio.to_thread.run_sync(give_up_silent, state)
        except Exception:  # the border of a background task: it must not end
            LOG.exception("looking for silent workers failed")


def give_up_silent(state: ApiState) -> list[str]:
    """Interrupt the runs of workers that have been silent too long; return the runs."""
    db: Database = state.database()
    now = time.monotonic()
    interrupted: list[str] = []
    for worker_id, is_embedded in workers_with_active_runs(db):
        limit_s = EMBEDDED_SILENCE_S if is_embedded else REMOTE_SILENCE_S
        if now - state.seen_s.get(worker_id, state.started_s) > limit_s:
            interrupted += handover.interrupt_stale(db, worker_id=worker_id)
            worker_stopped(db, worker_id)
            LOG.warning("worker %s is silent; interrupted %s", worker_id, interrupted)
    return interrupted
