"""Have what pages read of stored runs worked out ahead, while nothing else is to be done."""

import logging
import subprocess

import anyio
import anyio.to_thread

from core.config import DataDir
from db.connection import opened

LOG = logging.getLogger("warpboard.ahead")
INTERVAL_S = 5.0


async def keep_ahead(data_dir: DataDir) -> None:
    """Start the process that works ahead wherever runs wait for it, until cancelled.

    Not while their number changes: runs that are being loaded come by the hundred.
    """
    before, failed = 0, 0
    while True:
        await anyio.sleep(INTERVAL_S)
        try:
            now = await anyio.to_thread.run_sync(_num_waiting, data_dir)
            if now and now == before != failed:
                failed = now if await _fails(data_dir) else 0
                now = 0
            before = now
        except Exception:  # top-level handler of a background task: pages do without it
            LOG.exception("working ahead of the pages failed")


def _num_waiting(data_dir: DataDir) -> int:
    from app.ahead import is_worth_a_process  # it loads what pages need: not before the server

    with opened(data_dir.db_path) as db:
        return is_worth_a_process(db)


async def _fails(data_dir: DataDir) -> bool:
    from app.ahead import command

    words, environment = command(data_dir.root)
    ended = await anyio.run_process(
        words, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        LOG.warning("working ahead of the pages ended: %s", " ".join(last))
    return ended.returncode != 0
