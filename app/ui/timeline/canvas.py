"""The kernel timeline: a canvas in the page, drawn from Arrow columns; no build step, no iframe.

A memory curve can be laid over it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from analysis.colours import category_colour
from analysis.iterations import iteration_of, top_phase
from analysis.memory_curve import rows_to_keep
from analysis.readers.memory.roles import kind_of_phase
from analysis.readers.memory.sites import EARLIER
from app.ui.timeline.load import Timeline
from app.ui.timeline.window import Window

_HERE = Path(__file__).parent
_HTML = """
<div class="wrap">
  <div class="tools">
    <button type="button" data-do="reset">Whole run</button>
    <button type="button" data-do="in" aria-label="Zoom in">+</button>
    <button type="button" data-do="out" aria-label="Zoom out">&minus;</button>
    <button type="button" data-do="left" aria-label="Move left">&larr;</button>
    <button type="button" data-do="right" aria-label="Move right">&rarr;</button>
    <span class="note"></span>
  </div>
  <canvas tabindex="0" role="img"></canvas>
  <div class="tip" role="status"></div>
</div>
"""

_COMPONENT = st.components.v2.component(
    "warpboard_timeline",
    html=_HTML,
    css=(_HERE / "canvas.css").read_text(encoding="utf-8"),
    js=(_HERE / "canvas.js").read_text(encoding="utf-8"),
)

_KIND_CATEGORY = {"memcpy": "copy", "memset": "fill", "graph": "unknown"}
_HOST_COLOURS = {
    "API call": "#d55e00",
    "operator": "#56b4e9",
    "Python": "#009e73",
    "library": "#7a68c8",
}
_MAX_STEPS = 4_000
_MAX_MEMORY_POINTS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is drawn beside the streams; each part may be absent."""

    host: Timeline | None = None
    "What host threads did, as lanes."
    host_view: Window | None = None
    "The window of it that is asked for."
    steps: pd.DataFrame | None = None
    "STEP_COLUMNS of the run's steps, on the spans' clock."
    memory: pd.DataFrame | None = None
    "time_ns, allocated_bytes, on the spans' clock."


def draw_timeline(
    timeline: Timeline,
    view: Window,
    *,
    categories: Mapping[str, str],
    short_names: Mapping[str, str],
    key: str,
    asked: tuple[float, float] | None,
    beside: Beside,
    marked: frozenset[str] = frozenset(),
) -> tuple[tuple[float, float] | None, str | None]:
    """Draw one window; return the window the reader zoomed to, and the kernel clicked, or None.

    `categories` and `short_names` map full kernel names; a transfer is coloured as what it is.
    All but the `marked` kernels are pale, if there are any.
    """
    kinds = zip(timeline.names, timeline.kinds, strict=True)
    classes = [_KIND_CATEGORY.get(k) or categories.get(n, "unknown") for n, k in kinds]
    names = [short_names.get(n, n)[:160] for n in timeline.names]
    spans, lanes, api_lanes, is_merged = view.spans, list(timeline.lanes), [], view.is_merged
    if beside.host is not None and beside.host_view is not None:
        spans = pd.concat([spans, _host_spans(timeline, beside.host, beside.host_view)])
        api_lanes = [len(lanes) + i for i, n in enumerate(beside.host.lanes) if n.endswith("calls")]
        lanes += beside.host.lanes
        names += [n[:160] for n in beside.host.names]
        classes += beside.host.kinds
        is_merged = is_merged or beside.host_view.is_merged
    palette = sorted(set(classes))
    rows, ranges = _rows(timeline, view, beside.steps)
    meta: dict[str, Any] = {
        "lanes": lanes,
        "numStreams": len(timeline.lanes),
        "apiLanes": api_lanes,
        "rows": rows,
        "names": names,
        "paths": list(timeline.paths),
        "classes": [palette.index(c) for c in classes],
        "palette": [
            {"name": c, "colour": _HOST_COLOURS.get(c) or category_colour(c)} for c in palette
        ],
        "extent": float(timeline.extent_ns),
        "asked": list(asked) if asked else None,
        "merged": is_merged,
        "total": view.num_spans,
        "rangeNames": ranges["name"].to_list(),
        "memory": _memory(timeline, beside.memory),
        "marked": [n in marked for n in timeline.names] if marked else None,
    }
    result = _COMPONENT(
        key=key,
        data={"spans": spans, "ranges": ranges.drop(columns="name"), "meta": meta},
        on_window_change=lambda: None,
        on_selected_change=lambda: None,
    )
    chosen = result.window
    zoomed = (float(chosen[0]), float(chosen[1])) if chosen else None
    selected = result.selected
    is_kernel = selected is not None and int(selected) < len(timeline.names)
    return zoomed, timeline.names[int(selected)] if is_kernel else None


def host_window(timeline: Timeline, host: Timeline, at: tuple[float, float]) -> tuple[float, float]:
    """Return a window of the spans' time on the host rows' own axis."""
    shift = host.origin_ns - timeline.origin_ns
    return at[0] - shift, at[1] - shift


def _host_spans(timeline: Timeline, host: Timeline, view: Window) -> pd.DataFrame:
    shift = host.origin_ns - timeline.origin_ns
    return view.spans.assign(
        start=view.spans["start"] + shift,
        lane=(view.spans["lane"] + len(timeline.lanes)).astype("int32"),
        name=(view.spans["name"] + len(timeline.names)).astype("int32"),
    )


def _rows(
    timeline: Timeline, view: Window, steps: pd.DataFrame | None
) -> tuple[list[str], pd.DataFrame]:
    """Return the rows over the streams and what they hold: the steps first, then the ranges."""
    if steps is None or not len(steps):
        return list(timeline.range_rows), view.ranges
    shown = steps.head(_MAX_STEPS)
    start = shown["start_ns"].to_numpy(float) - timeline.origin_ns
    end = shown["end_ns"].to_numpy(float) - timeline.origin_ns
    labels = [
        f"step {n}" + ("" if regular else f", left out: {reason}")
        for n, regular, reason in zip(
            shown["step"], shown["is_regular"], shown["reason"], strict=True
        )
    ]
    ruler = pd.DataFrame({"start": start, "dur": end - start, "row": 0, "name": labels})
    below = view.ranges.assign(row=view.ranges["row"] + 1)
    joined = pd.concat([ruler, below], ignore_index=True) if len(below) else ruler
    return ["steps", *timeline.range_rows], joined.astype({"row": "int32"})


def _memory(timeline: Timeline, points: pd.DataFrame | None) -> dict[str, list[float]] | None:
    if points is None or len(points) < 2:
        return None
    kept = points.iloc[rows_to_keep([points["allocated_bytes"]], _MAX_MEMORY_POINTS)]
    return {
        "time": (kept["time_ns"].to_numpy(float) - timeline.origin_ns).tolist(),
        "bytes": kept["allocated_bytes"].astype(float).tolist(),
    }


def laid_over(points: pd.DataFrame, steps: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return time_ns (on the steps' clock) and allocated_bytes, and how many steps they cover.

    `steps`: STEP_COLUMNS of one process. Nothing, and 0, where either has no steps.
    """
    nothing = points.iloc[:0][["time_ns", "allocated_bytes"]]
    if points.empty or steps.empty:
        return nothing, 0
    points = points[points["device"] == points["device"].iloc[0]]
    regular = steps[steps["is_regular"].astype(bool)]
    known = [isinstance(p, str) and top_phase(p) not in ("", EARLIER) for p in points["phase"]]
    inside = points[known].sort_values("time_ns", kind="stable")
    if inside.empty or regular.empty:
        return nothing, 0
    edges = _edges(inside)
    num = min(len(edges) - 1, len(regular))
    targets = regular.tail(num)
    parts = []
    for i, (start, end) in enumerate(zip(targets["start_ns"], targets["end_ns"], strict=True)):
        first, last = edges[i], edges[i + 1]
        part = inside[(inside["time_ns"] >= first) & (inside["time_ns"] < last)]
        scale = (end - start) / max(1, last - first)
        moved = start + (part["time_ns"].to_numpy(np.float64) - first) * scale
        allocated = part["allocated_bytes"].to_numpy()
        parts.append(pd.DataFrame({"time_ns": moved, "allocated_bytes": allocated}))
    return pd.concat(parts, ignore_index=True), num


def _edges(points: pd.DataFrame) -> list[int]:
    """Return where the steps begin, and the end of the last.

    Numbered ranges tell, else the first forward pass after an optimizer's step; without either it
    is one step.
    """
    times = points["time_ns"].to_numpy(np.int64)
    end = int(times[-1]) + 1
    names = [iteration_of(p) for p in points["phase"]]
    begins = [
        int(t)
        for t, name, before in zip(times, names, ["", *names[:-1]], strict=True)
        if name and name != before
    ]
    return [*(begins or [int(times[0]), *_after_optimizer(points, times)]), end]


def _after_optimizer(points: pd.DataFrame, times: np.ndarray) -> list[int]:
    begins, is_after = [], False
    for phase, time_ns in zip(points["phase"], times.tolist(), strict=True):
        kind = kind_of_phase(phase)
        if kind == "forward" and is_after:
            begins.append(int(time_ns))
        is_after = kind == "optimizer" or (is_after and kind != "forward")
    return begins
