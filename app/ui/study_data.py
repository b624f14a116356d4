"""Studies and their pictures, as pages read them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from analysis.runview import RunView
from app.pictures import LOOK, Finished, Thumbnail, read_pictures, write_pictures
from app.ui.cached import database, until_changed
from core.config import data_dir
from db import fetch, runs

if TYPE_CHECKING:
    from analysis.studies import StudyTable


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStudy:
    """A study of the runs that were chosen, and of how many."""

    result: "StudyTable"
    num_shown: int
    num_runs: int
    "Runs that fit the study and the filter."
    fixed: Mapping[str, Sequence[str]]
    "Parameters of which one value was chosen, where the runs have several."


_ENDED = "status:done,oom"


@until_changed(st.cache_resource, max_entries=24, show_spinner="Filling the tables")
def fetch_study(name: str, query: str, published: bool, every: bool) -> OpenedStudy:
    """Return a study of the newest runs that match, of one grid unless `every`; UserError."""
    from analysis.studies import find_study, run_study
    from analysis.studies.engine.run import one_grid, taking_part
    from app.kept import MAX_STUDY_RUNS

    study = find_study(name)
    wanted = ",".join(study.filters.get("workload", ()))
    terms = " ".join(t for t in (query, f"workload:{wanted}" if wanted else "", _ENDED) if t)
    views = _study_views(terms, MAX_STUDY_RUNS, study.measures)
    mine = taking_part(study, views)
    shown, fixed = (mine, {}) if every else one_grid(study, mine)
    result = run_study(name, views if every else shown, published=published)
    return OpenedStudy(result=result, num_shown=len(shown), num_runs=len(mine), fixed=fixed)


def _study_views(terms: str, limit: int, measures: Sequence[str]) -> list[RunView]:
    """Return the newest runs that match, with the readings of these measures alone."""
    from app.kept import with_readings

    kept = _kept_study_views()
    with database() as db:
        ids = [row["id"] for row in runs.list_rows(db, terms, limit=limit)]
        missing = [run_id for run_id in ids if run_id not in kept]
        bare = fetch.run_views(db, data_dir(), missing, leave_out=fetch.ALL_BUT_SAMPLES)
        kept |= dict(zip(missing, bare, strict=True))
        views = [kept[run_id] for run_id in ids]
        with_readings(db, data_dir(), views, measures, _whole_study_views())
    return views


@until_changed(st.cache_resource, max_entries=1)
def _kept_study_views() -> dict[str, RunView]:
    return {}


@until_changed(st.cache_resource, max_entries=1, ttl=120)
def _whole_study_views() -> dict[str, RunView]:
    """Return what was read whole lately: the gallery works out one study after another."""
    return {}


MAX_PICTURED_RUNS = 300


@st.cache_resource(max_entries=4)
def _thumbnails(db_path: str) -> dict[str, tuple[Finished, Thumbnail]]:
    """Return the pictures of studies that were made, with what they were made of."""
    return read_pictures(data_dir().pictures_path)


def _finished() -> Finished:
    """Return what the pictures of studies depend on: the finished runs, and how they are drawn."""
    with database() as db:
        count, newest = db.execute(
            "SELECT count(*), coalesce(max(finished_at), '') FROM runs"
            " WHERE status IN ('done', 'oom')"
        ).fetchone()
    return (LOOK, int(count), str(newest))


def kept_thumbnails() -> dict[str, Thumbnail]:
    """Return the pictures that were made, by study, also those of fewer runs than there are now."""
    return {name: made for name, (_, made) in _thumbnails(str(data_dir().db_path)).items()}


def old_thumbnails(names: Iterable[str]) -> set[str]:
    """Return the studies that have no picture of the runs that there are now."""
    now, kept = _finished(), _thumbnails(str(data_dir().db_path))
    return {name for name in names if name not in kept or kept[name][0] != now}


def fetch_thumbnail(name: str) -> Thumbnail:
    """Make the picture of a study from the newest runs, published figures beside; keep it."""
    from analysis.studies import drawn_cells, find_study
    from app.charts.thumbnail import thumbnail

    now = _finished()
    study = find_study(name)
    wanted = study.filters.get("workload", ())
    views = _study_views(_ENDED, MAX_PICTURED_RUNS, study.measures)
    mine = [v for v in views if not wanted or v.run.workload in wanted]
    picture = thumbnail(drawn_cells(name, mine))
    kept = _thumbnails(str(data_dir().db_path))
    kept[name] = (now, picture)
    write_pictures(data_dir().pictures_path, kept)
    return picture
