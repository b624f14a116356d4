"""Runs, GPUs and what this server holds, as pages read them; no page opens the database itself."""

from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.api.cleanup import disk_state
from app.ui.cached import database, until_changed, until_written
from core.config import DataDir, data_dir
from core.spec import JobSpec
from db import fetch, runs, status


@until_changed(st.cache_resource, max_entries=48)
def fetch_view(run_id: str) -> RunView:
    """Return a run with its measurements, not to be changed; UserError when it does not exist."""
    with database() as db:
        return fetch.run_view(db, data_dir(), run_id)


@until_written(st.cache_data, max_entries=64)
def list_runs(
    query: str = "",
    *,
    sort: str = "created_at",
    descending: bool = True,
    limit: int = 100,
    offset: int = 0,
) -> tuple[pd.DataFrame, int]:
    """Return one page of matching runs and how many match; QuerySyntaxError, UserError."""
    with database() as db:
        frame = runs.list_runs(
            db, query or None, sort=sort, descending=descending, limit=limit, offset=offset
        )
        return frame, runs.count_runs(db, query or None)


@until_written(st.cache_data, ttl=20, max_entries=4)
def list_gpus() -> pd.DataFrame:
    """Return the registered GPUs with their peaks, newest state within 20 s."""
    with database() as db:
        return status.gpus(db)


def has_runs() -> bool:
    """Say whether any run is stored."""
    return list_runs(limit=1)[1] > 0


def disk_note() -> str:
    """Return the consequence of a nearly full disk; "" while there is room."""
    state = disk_state(data_dir())
    if state == "full":
        return (
            "The disk is full: captures are refused and finished runs wait for "
            "import. Nothing is lost; delete runs or add space."
        )
    return "The disk is nearly full: delete runs or add space." if state == "low" else ""


@until_written(st.cache_data, max_entries=4)
def newest_against_baselines() -> pd.DataFrame:
    """Return, for each pinned baseline, the newest other run of the same measurement."""
    with database() as db:
        return status.newest_against_baselines(db)


def paths() -> DataDir:
    """Return the data directory of this server."""
    return data_dir()


def fetch_views(run_ids: tuple[str, ...]) -> list[RunView]:
    """Return several runs with their measurements."""
    return [fetch_view(run_id) for run_id in run_ids]


def submit(jobs: list[JobSpec], *, name: str | None) -> list[str]:
    """Queue jobs and tell the workers; return the run ids. AppError when the broker is away."""
    from app.submit import submit_jobs

    with database() as db:
        return list(submit_jobs(db, data_dir(), jobs, name=name).run_ids)


def load_demo() -> int:
    """Load the example runs; return how many there are. Loading again changes nothing."""
    from app.demo.load import load_demo as load

    return len(load(data_dir(), lambda name: None))


def worker_note() -> str:
    """Return the state of the embedded worker; "" if it is running, or if there is none."""
    from app.stack import running_stack

    stack = running_stack(data_dir()) or {}
    note = str(stack.get("worker") or "")
    return "" if note in ("running", "off") else note


EXPORTS = (
    ("Markdown", "md", "text/markdown"),
    ("CSV", "csv", "text/csv"),
    ("JSON", "json", "application/json"),
    ("One-file HTML", "html", "text/html"),
)


def export(result: Any, suffix: str) -> str:
    """Return a comparison or study as the text of a file of that kind."""
    from analysis import export as writers

    write = {
        "md": writers.to_markdown,
        "csv": writers.to_csv,
        "json": writers.to_json,
        "html": writers.to_html,
    }
    return write[suffix](result)


@until_changed(st.cache_resource, max_entries=64)
def fetch_verdict(run_id: str) -> Any:
    """Return what limits a run (analysis.verdict.RunVerdict)."""
    from analysis.verdict import run_verdict

    return run_verdict(fetch_view(run_id))
