"""Jobs that ran more than once and what changed in them, as pages read it."""

import streamlit as st

from analysis.compare.records import Difference
from analysis.history.line import MIN_RUNS, Change, History, Line
from analysis.runview import Job
from app.history import load_history, what_changed
from app.ui.cached import database, until_changed
from core.config import data_dir
from db import history


@until_changed(st.cache_data, max_entries=8)
def list_jobs(query: str = "", *, min_runs: int = 2) -> list[Job]:
    """Return jobs measured more than once, the newest first; QuerySyntaxError."""
    with database() as db:
        return history.jobs(db, query or None, min_runs=min_runs)


@st.cache_resource(ttl=1800, max_entries=256, show_spinner=False)
def _history(_job: Job, key: tuple[str, str, int, str, str]) -> History:
    with database() as db:
        return load_history(db, data_dir(), _job)


def fetch_history(job: Job) -> History:
    """Return a job's lines over time; recomputed when a run is added or deleted."""
    place = str(data_dir().db_path)
    return _history(
        job, (place, f"{job.key} {job.gpu_model}", job.num_runs, job.newest_at, job.name)
    )


@st.cache_resource(ttl=1800, max_entries=256, show_spinner=False)
def _what_changed(_change: Change, key: tuple[str, str, str]) -> tuple[Difference, ...]:
    with database() as db:
        return what_changed(db, data_dir(), _change)


def fetch_differences(change: Change) -> tuple[Difference, ...]:
    """Return what differs between the last run before a change and the first after it."""
    place = str(data_dir().db_path)
    return _what_changed(change, (place, change.before[-1], change.after[0]))


MAX_WATCHED_JOBS = 100


def new_changes(num_new: int) -> list[tuple[History, Line, Change]]:
    """Return what changed in the newest runs of the newest jobs, the largest change first."""
    jobs = list_jobs(min_runs=MIN_RUNS)[:MAX_WATCHED_JOBS]
    changes = [
        (past, line, change)
        for past in map(fetch_history, jobs)
        for line in past.lines
        if (change := line.since(num_new)) is not None
    ]
    return sorted(changes, key=lambda f: -abs(f[2].percent))
