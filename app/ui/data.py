"""What pages read of runs, jobs, comparisons, spans and GPUs; no page opens the database itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from analysis.compare.offered import Offer, offers
from analysis.compare.records import Difference
from analysis.history.line import MIN_RUNS, Change, History, Line
from analysis.runview import Job, RunRow, RunView
from analysis.span_file import is_whole
from app.api.watch import disk_state
from app.history import load_history, what_changed
from app.ui.cached import database, until_changed, until_written, written_ns
from app.ui.timeline.load import Place, Timeline, load_host_rows, load_timeline, num_host_rows
from app.ui.timeline.window import Window, window
from core.config import DataDir, data_dir
from core.errors import AppError
from core.spec import JobSpec
from db import fetch, history, runs, status
from db.history import Begun

if TYPE_CHECKING:
    from analysis.compare.labels import RanOn


@until_changed(st.cache_data, max_entries=48)
def _experiments(run_id: str) -> dict[str, Any]:
    from app.advice import advice_of_several

    with database() as db:
        (advice,) = advice_of_several(db, data_dir(), [run_id])
    return advice


def fetch_advice(run_id: str) -> dict[str, Any]:
    """Return the experiments of a run (`app.advice.advice_of`); why none can be queued is new."""
    from app.advice import why_not_tried

    advice = _experiments(run_id)
    with database() as db:
        return advice | {"not_tried": why_not_tried(db, fetch.run_row(db, run_id))}


@st.cache_data(ttl=900, max_entries=2, show_spinner="Predicting every measured pair")
def _score(key: int) -> dict[str, Any]:
    from app.score import score_document

    with database() as db:
        return score_document(db, data_dir())


def fetch_score() -> dict[str, Any]:
    """Return the score of all predictions; it is new where runs or predictions are."""
    from db.predictions import score_stamp

    with database() as db:
        return _score(score_stamp(db))


@st.cache_resource(ttl=900, max_entries=16, show_spinner=False)
def _advice_lately(run_ids: tuple[str, ...], place: str) -> list[dict[str, Any]]:
    from app.advice import advice_of_several

    with database() as db:
        return advice_of_several(db, data_dir(), run_ids)


def fetch_advice_lately(run_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the experiments of runs, at most 15 minutes old: for a page that lists many."""
    return _advice_lately(run_ids, str(data_dir().db_path))


@until_changed(st.cache_data, max_entries=4)
def begun_comparisons() -> list[Begun]:
    """Return the newest comparisons begun by running two jobs alternately."""
    with database() as db:
        return history.begun_comparisons(db)


MAX_OFFERED_FROM = 400


@until_changed(st.cache_data, max_entries=4)
def offered_comparisons(limit: int = 12) -> tuple[Offer, ...]:
    """Return the groups of stored runs that differ in one field."""
    measured = finished_runs("status:done", limit=MAX_OFFERED_FROM)
    return offers([run for run in measured if run.workload], limit=limit)


def finished_runs(query: str, limit: int) -> list[RunRow]:
    """Return the newest runs that match, as far as a list of runs knows them."""
    with database() as db:
        rows = runs.list_rows(db, query, limit=limit)
    known = ("id", "name", "source", "status", "workload", "params", "gpu_model")
    return [RunRow(**{name: row[name] for name in known if name in row}) for row in rows]


def resolve_side(text: str) -> tuple[str, ...]:
    """Return the runs of one side: ids or names with commas between, or a filter; UserError."""
    with database() as db:
        return tuple(runs.resolve_runs(db, text))


def resolve_sides(a: str, b: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the runs of both sides; side A may be `last:N`, good runs of B's job. UserError."""
    side_b = resolve_side(b)
    with database() as db:
        return tuple(history.resolve_base(db, a, side_b)), side_b


@until_changed(st.cache_resource, max_entries=32, show_spinner="Comparing")
def fetch_comparison(a: tuple[str, ...], b: tuple[str, ...], metric: str) -> Any:
    """Return the comparison of two sides (analysis.compare.Comparison); UserError."""
    from analysis.compare.engine import compare

    return compare(fetch_views(a), fetch_views(b), metric=metric)


def metric_names(a: str, b: str) -> "tuple[list[str], RanOn]":
    """Return the metrics that both sides have, and where these ran.

    The most telling metric is first; latency is last where a side has none. What is stored a second
    time under another name (`kernel_time_ns`) is left out.
    """
    try:
        ids = (
            resolve_sides(a, b) if a and b else tuple(resolve_side(text) for text in (a, b) if text)
        )
        return _metric_names(ids)
    except AppError:
        return ["latency"], "gpu"


@until_changed(st.cache_data, max_entries=64)
def _metric_names(ids: tuple[tuple[str, ...], ...]) -> "tuple[list[str], RanOn]":
    from analysis.compare.labels import device_of
    from analysis.compare.metrics import common
    from analysis.definitions import COMPARED

    sides = [fetch_views(side) for side in ids]
    names = common(*sides) if len(sides) == 2 else []
    again = {definition.key for definition in COMPARED.values()} - set(COMPARED)
    names = [n for n in names if n not in again and not n.startswith("latency_")]
    device = device_of([view for side in sides for view in side])
    return names if "latency" in names else [*names, "latency"], device


KeptTimeline = tuple[Timeline, Window]


@st.cache_resource(ttl=1800, max_entries=3, show_spinner="Reading the timeline")
def _timeline(
    paths: tuple[str, ...], changed_ns: tuple[int, ...], ranks: tuple[tuple[Place, int], ...]
) -> KeptTimeline | None:
    timeline = load_timeline(tuple(Path(p) for p in paths), dict(ranks))
    return None if timeline is None else (timeline, window(timeline))


def _kept(view: RunView) -> tuple[Path, ...]:
    return tuple(p for p in view.span_paths if is_whole(p))


def fetch_timeline(view: RunView) -> KeptTimeline | None:
    """Return a run's spans and the window of all of them; None when there are none.

    Both stay in memory for the last three runs: the first view of a long run is merged once.
    """
    paths = _kept(view)
    changed_ns = tuple(written_ns(p) for p in paths)
    return _timeline(tuple(map(str, paths)), changed_ns, _ranks_of_spans(view))


@until_changed(st.cache_data, max_entries=8)
def _phase_kernels(run_id: str, changed_ns: tuple[int, ...]) -> Any:
    from analysis.per_step import phase_kernels

    view = fetch_view(run_id)
    return phase_kernels(_kept(view), view.by_step.steps)


def fetch_phase_kernels(view: RunView) -> tuple[pd.DataFrame, int | None]:
    """Return a run's kernels by phase and how many steps they are the mean of; None: totals."""
    changed_ns = tuple(written_ns(p) for p in _kept(view))
    frame, num_steps = _phase_kernels(view.run.id, changed_ns)
    return frame, num_steps


@st.cache_resource(ttl=1800, max_entries=3, show_spinner="Reading host calls")
def _host_rows(paths: tuple[str, ...], changed_ns: tuple[int, ...]) -> KeptTimeline | None:
    timeline = load_host_rows(tuple(Path(p) for p in paths))
    return None if timeline is None else (timeline, window(timeline))


def fetch_host_rows(view: RunView) -> KeptTimeline | None:
    """Return the activity of a run's host threads, as lanes; None if it was not stored."""
    paths = _kept(view)
    return _host_rows(tuple(map(str, paths)), tuple(written_ns(p) for p in paths))


def count_host_rows(view: RunView) -> int:
    """Return how many API calls, operators and functions of host threads a run keeps."""
    return num_host_rows(_kept(view))


def _ranks_of_spans(view: RunView) -> tuple[tuple[Place, int], ...]:
    """Return the rank of each file of spans and GPU in it; () for a run of one rank."""
    rows = view.ranks.get("ranks", [])
    stored = view.captures[view.captures["spans_path"].notna()]
    files = dict(zip(stored["file_name"], stored["spans_path"], strict=True))
    return tuple(
        ((Path(files[row["file_name"]]).name, row["device"]), row["rank"])
        for row in rows
        if len(rows) > 1 and row["file_name"] in files
    )


def timeline_window(kept: KeptTimeline, asked: tuple[float, float] | None) -> Window:
    """Return a window with a margin of half its width, so that small pans need no request."""
    timeline, whole = kept
    if asked is None:
        return whole
    margin = (asked[1] - asked[0]) / 2
    return window(timeline, asked[0] - margin, asked[1] + margin)


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
