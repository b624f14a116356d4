"""What is worked out of stored runs once and kept in the database: readings and predictions.

Everything kept says what it was made of: the code, the run as it was written last, the classes of
kernel names, and the measured peaks that it is judged by. What was made of something else is worked
out again.
"""

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from analysis.runview import RunView
from analysis.studies.engine.measures import readings_of
from analysis.studies.engine.readings import Reading
from core.config import DataDir
from core.spec import canonical_json
from db import Database, changes, fetch, readings

ROOT = Path(__file__).resolve().parent.parent
CODE = ("analysis", "app", "core", "db", "workloads")
"""Packages that decide what is worked out."""
MAX_STUDY_RUNS = 1000
"""Newest runs that a study looks at."""
_log = logging.getLogger(__name__)


@cache
def code_digest() -> str:
    """Return a text that is another where the code is."""
    digest = hashlib.sha256()
    for package in CODE:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def made_of(db: Database, views: Sequence[RunView], *more: object) -> dict[str, str]:
    """Return for each run what is worked out of it depends on, as one short text."""
    revisions = readings.revisions(db, [view.run.id for view in views])
    common = (code_digest(), changes.classes(db), *more)
    return {
        view.run.id: hashlib.sha256(
            canonical_json([*common, revisions.get(view.run.id), dict(view.peaks)]).encode()
        ).hexdigest()[:24]
        for view in views
    }


def keep(db: Database, rows: Sequence[tuple[str, str, str, Any]]) -> None:
    """Keep what was worked out; where the database may not be written it is not kept."""
    try:
        readings.keep(db, rows)
    except sqlite3.OperationalError as exc:
        _log.warning("what was worked out is not kept: %s", exc)


def with_readings(
    db: Database,
    data_dir: DataDir,
    views: Sequence[RunView],
    measures: Sequence[str],
    whole: dict[str, RunView],
) -> None:
    """Give runs that came without their frames the readings of these measures.

    They are those that were kept; runs that lack one are read whole (into `whole`), and theirs are
    kept.
    """
    lacking = [v for v in views if any(("measure", m) not in v.worked_out for m in measures)]
    if not lacking:
        return
    of = made_of(db, lacking)
    known = readings.kept(db, of, measures)
    new = [v.run.id for v in lacking if len(known[v.run.id]) < len(measures)]
    unread = [run_id for run_id in new if run_id not in whole]
    read = fetch.run_views(db, data_dir, unread, leave_out=fetch.NOT_IN_A_STUDY)
    whole |= dict(zip(unread, read, strict=True))
    made = []
    for run_id in new:
        for name in (m for m in measures if m not in known[run_id]):
            values = [_plain(reading) for reading in readings_of(whole[run_id], name)]
            known[run_id][name] = values
            made.append((run_id, name, of[run_id], values))
    if made:
        keep(db, made)
    for view in lacking:
        for name, values in known[view.run.id].items():
            view.once(("measure", name), _given(values))


def _plain(reading: Reading) -> tuple[Any, ...]:
    return (reading.value, reading.extra, dict(reading.fields), reading.ci95)


def _given(values: Sequence[Sequence[Any]]) -> Callable[[], tuple[Reading, ...]]:
    return lambda: tuple(
        Reading(value=value, extra=extra, fields=fields, ci95=(ci95[0], ci95[1]) if ci95 else None)
        for value, extra, fields, ci95 in values
    )
