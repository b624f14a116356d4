"""Work out what studies and predictions read of stored runs before somebody opens a page.

`python -m app.ahead [--data DIR]`: a process of its own, which gives way to every other one on the
host and ends where a job is to run: it must not stand beside what is measured.
"""

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from analysis.studies import list_studies
from app.kept import MAX_STUDY_RUNS, code_digest, with_readings
from app.score import score_document
from core.config import DataDir, data_dir
from core.python import module_command, with_rooms
from db import Database, changes, fetch, readings
from db.connection import opened
from db.queue import is_any_at_work

FEWEST_RUNS = 8
"""A page works out fewer by itself in the time that it has."""
_WHAT = "ahead"
"""Under this name a run says that all its readings were worked out."""
_AT_ONCE = 20
_LEAST_EAGER = 19
_LOOK_S = 0.5
_log = logging.getLogger(__name__)


def command(root: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment of the process that works ahead."""
    return module_command("app.ahead", "--data", str(root)), with_rooms(os.environ)


def is_worth_a_process(db: Database) -> int:
    """Return how many runs wait to be read, 0 where pages may as well, or a job is to run."""
    num_waiting = len(_waiting(db))
    return 0 if num_waiting < FEWEST_RUNS or is_any_at_work(db) else num_waiting


def work_ahead(data: DataDir) -> None:
    """Keep the readings of every measure of the newest runs, then all predictions."""
    measures = sorted({name for study in list_studies() for name in study.measures})
    with opened(data.db_path) as db:
        waiting = _waiting(db)
        for start in range(0, len(waiting), _AT_ONCE):
            if is_any_at_work(db):
                return
            _read(db, data, waiting[start : start + _AT_ONCE], measures)
        if not is_any_at_work(db):
            score_document(db, data)


def _waiting(db: Database) -> list[str]:
    return readings.lacking(db, _WHAT, _made_of(db), newest=MAX_STUDY_RUNS)


def _made_of(db: Database) -> str:
    return f"{code_digest()} {changes.classes(db)}"


def _read(db: Database, data: DataDir, run_ids: Sequence[str], measures: Sequence[str]) -> None:
    """Work out some runs; where that fails each alone, so that one does not keep others back."""
    of = _made_of(db)
    try:
        views = fetch.run_views(db, data, run_ids, leave_out=fetch.ALL_BUT_SAMPLES)
        with_readings(db, data, views, measures, {})
    except Exception as exc:  # a capture that nobody foresaw; the page of a study says so too
        if len(run_ids) > 1:
            for run_id in run_ids:
                _read(db, data, [run_id], measures)
            return
        _log.warning("%s: %s: %s", run_ids[0], type(exc).__name__, exc)
    readings.say_done(db, _WHAT, of, run_ids)


def _end_beside_a_job(data: DataDir) -> None:
    """End this process at once where a job is at work; the rest is worked out another time."""
    with opened(data.db_path, is_reader=True) as db:
        while not is_any_at_work(db):
            time.sleep(_LOOK_S)
    os._exit(0)


def main(argv: list[str] | None = None) -> int:
    """Work until all is done or a job is to run."""
    parser = argparse.ArgumentParser(prog="python -m app.ahead", description=__doc__)
    parser.add_argument("--data", metavar="DIR")
    options = parser.parse_args(argv)
    os.nice(_LEAST_EAGER)
    data = data_dir(options.data)
    threading.Thread(target=_end_beside_a_job, args=[data], daemon=True).start()
    work_ahead(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
