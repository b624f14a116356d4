"""The ingest process: a Celery worker on the `ingest` queue, one run at a time.

`python -m app.ingest_worker [--data DIR] [--check]`. At its start it takes up what a killed
ingest process left behind.
"""

import argparse
import logging
import os
import sys

from celery.signals import worker_ready

from app.ingest import ingest
from app.submit import Sender
from core.config import broker_url, data_dir
from core.python import module_command, with_rooms
from core.queues import INGEST_QUEUE, INGEST_RUN_TASK
from db.connection import opened
from db.handover import runs_to_ingest
from worker.celery_app import make_app

LOG = logging.getLogger("warpboard.ingest")
DATA = data_dir()
app = make_app("warpboard.ingest", broker_url(DATA), DATA.root)
CHECK_TIMEOUT_S = 5.0


@app.task(name=INGEST_RUN_TASK)
def ingest_run_task(run_id: str) -> None:
    """Read one run; see `app.ingest.ingest`."""
    ingest(data_dir(), run_id)


@worker_ready.connect
def _take_up(**_: object) -> None:
    """Send messages for runs whose message, or reader, was lost."""
    sender = Sender(DATA)
    with opened(DATA.db_path) as db:
        waiting = runs_to_ingest(db)
    for run_id in waiting:
        LOG.info("run %s: taken up again", run_id)
        sender.send_ingest(run_id)


def main(argv: list[str] | None = None) -> int:
    """Run the worker until it is stopped; with --check, report whether one answers."""
    parser = argparse.ArgumentParser(prog="python -m app.ingest_worker", description=__doc__)
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--check", action="store_true", help="exit with 0 when one answers")
    options = parser.parse_args(argv)
    if options.check:
        answers = app.control.ping(timeout=CHECK_TIMEOUT_S)
        names = [name for answer in answers for name in answer]
        return 0 if any(name.startswith("ingest@") for name in names) else 1
    os.umask(0o077)
    if options.data:
        os.environ["WARPBOARD_DATA"] = options.data
    os.execve(sys.executable, _command(), with_rooms(os.environ))


def _command() -> list[str]:
    """Return the Celery command; a fresh process, so that settings come from the environment."""
    return [
        *module_command("celery", "-A", "app.ingest_worker", "worker"),
        *("--pool", "prefork", "--concurrency", "1", "-O", "fair", "--max-tasks-per-child", "50"),
        *("--queues", INGEST_QUEUE, "--hostname", "ingest@%h", "--loglevel", "WARNING"),
        *("--without-gossip", "--without-mingle"),
    ]


if __name__ == "__main__":
    sys.exit(main())
