"""What span files hold of a run: timeline, host rows, kernels by phase.

Their key is the Parquet files, not the database.
"""

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from app.ui.cached import until_changed, written_ns
from app.ui.data import fetch_view
from app.ui.timeline.load import Place, Timeline, load_host_rows, load_timeline, num_host_rows
from app.ui.timeline.window import Window, window

KeptTimeline = tuple[Timeline, Window]


@st.cache_resource(ttl=1800, max_entries=3, show_spinner="Reading the timeline")
def _timeline(
    paths: tuple[str, ...], changed_ns: tuple[int, ...], ranks: tuple[tuple[Place, int], ...]
) -> KeptTimeline | None:
    timeline = load_timeline(tuple(Path(p) for p in paths), dict(ranks))
    return None if timeline is None else (timeline, window(timeline))


def fetch_timeline(view: RunView) -> KeptTimeline | None:
    """Return a run's spans and the window of all of them; None when there are none.

    Both stay in memory for the last three runs: the first view of a long run is merged once.
    """
    paths = tuple(p for p in view.span_paths if p.exists())
    changed_ns = tuple(written_ns(p) for p in paths)
    return _timeline(tuple(map(str, paths)), changed_ns, _ranks_of_spans(view))


@until_changed(st.cache_data, max_entries=8)
def _phase_kernels(run_id: str, changed_ns: tuple[int, ...]) -> Any:
    from analysis.per_step import phase_kernels

    view = fetch_view(run_id)
    return phase_kernels([p for p in view.span_paths if p.exists()], view.by_step.steps)


def fetch_phase_kernels(view: RunView) -> tuple[pd.DataFrame, int | None]:
    """Return a run's kernels by phase and how many steps they are the mean of; None: totals."""
    changed_ns = tuple(written_ns(p) for p in view.span_paths if p.exists())
    frame, num_steps = _phase_kernels(view.run.id, changed_ns)
    return frame, num_steps


@st.cache_resource(ttl=1800, max_entries=3, show_spinner="Reading host calls")
def _host_rows(paths: tuple[str, ...], changed_ns: tuple[int, ...]) -> KeptTimeline | None:
    timeline = load_host_rows(tuple(Path(p) for p in paths))
    return None if timeline is None else (timeline, window(timeline))


def fetch_host_rows(view: RunView) -> KeptTimeline | None:
    """Return the activity of a run's host threads, as lanes; None if it was not stored."""
    paths = tuple(p for p in view.span_paths if p.exists())
    return _host_rows(tuple(map(str, paths)), tuple(written_ns(p) for p in paths))


def count_host_rows(view: RunView) -> int:
    """Return how many API calls, operators and functions of host threads a run keeps."""
    return num_host_rows(tuple(p for p in view.span_paths if p.exists()))


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
