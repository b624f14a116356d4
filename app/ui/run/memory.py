"""A run's memory and its latency samples."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from analysis.colours import NEUTRAL
from analysis.definitions import tooltip
from analysis.iterations import top_phase
from analysis.readers.memory.sites import EARLIER
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts import memory as memory_charts
from app.charts import samples as sample_charts
from app.ui import style
from app.ui.format import UNKNOWN, bytes_, duration, many, percent, ratio
from app.ui.tables import show_table
from app.ui.widgets import Card, cards, chart
from core.states import Pass


def memory(view: RunView) -> None:
    """Draw memory over time, live allocations at the peak, and the failed allocation if any."""
    if view.memory_points.empty and view.memory_at_peak.empty:
        style.empty_state(
            "No memory recorded",
            "PyTorch records allocations only on CUDA devices, so a CPU run has none."
            if is_cpu_run(view)
            else "Run it again with the memory pass, or import a memory snapshot of your program.",
        )
        return
    _figures(view)
    if view.memory_points["time_ns"].nunique() > 1:
        device = _device(view.memory_points)
        points = _shown_part(view.memory_points[view.memory_points["device"] == device])
        chart(
            memory_charts.memory_timeline(
                points,
                phases=_bands(points),
                oom=_oom(view, points),
                name="from the driver" if is_driver(view) else "allocated",
            ),
            alt="Memory over time, peak marked",
        )
    if not view.memory_at_peak.empty:
        _at_peak(view.memory_at_peak)


def _shown_part(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of the steps, or of the whole recording where the reader wants that."""
    start_ns, end_ns = steps_window(points)
    inside = points["time_ns"].between(start_ns, end_ns)
    if inside.all():
        return points
    choice = st.segmented_control(
        "Show", ["Steps", "Whole recording"], default="Steps", key="memory_part", required=True
    )
    return points[inside] if choice == "Steps" else points


_LEAST_ZOOM = 0.9


def steps_window(points: pd.DataFrame) -> tuple[int, int]:
    """Return the stretch that the phases of the steps take, with a margin.

    All of the recording where that is most of it, or where it has no phases.
    """
    times = points["time_ns"].to_numpy(np.int64)
    first, last = int(times.min()), int(times.max())
    has_phase = np.array(
        [isinstance(p, str) and top_phase(p) not in ("", EARLIER) for p in points["phase"]], bool
    )
    if not has_phase.any():
        return first, last
    start, end = int(times[has_phase].min()), int(times[has_phase].max())
    if end - start > _LEAST_ZOOM * (last - first):
        return first, last
    margin = (end - start) // 50
    return max(first, start - margin), min(last, end + margin)


def _at_peak(sites: pd.DataFrame) -> None:
    st.markdown("**Live at the peak**")
    by = "phase"
    if sites["role"].notna().any():
        _role_cards(role_sums(sites))
        by = st.segmented_control(
            "By site, in", ["role", "phase"], default="role", key="peak_by", required=True
        )
    chart(
        memory_charts.at_peak(sites, by=str(by)),
        alt=f"Treemap of live memory at the peak by {by} and site",
    )
    _peak_table(sites)


NO_ROLE = "not known"
_ROLE_WORDS = {
    "parameters": "Allocated before the recording or while the model was built; "
    "without stacks, as many blocks of a size as there are "
    "gradients of that size.",
    "optimizer state": "Allocated in the optimizer's step and kept after it.",
    "gradients": "Allocated in the backward pass and kept after it.",
    "activations": "Allocated in the forward pass and kept for the backward pass or later layers.",
    "workspace": "Freed in the phase that allocated it.",
    NO_ROLE: "Not identified by a stack or a phase: data, buffers, library workspaces.",
}


def role_sums(sites: pd.DataFrame) -> pd.DataFrame:
    """Return role, bytes and count of the live allocations at the peak, largest first."""
    named = sites.assign(role=sites["role"].fillna(NO_ROLE))
    sums = named.groupby("role", as_index=False)[["bytes", "count"]].sum()
    return sums.sort_values("bytes", ascending=False, ignore_index=True)


def _role_cards(roles: pd.DataFrame) -> None:
    whole = float(roles["bytes"].sum()) or 1.0
    cards(
        [
            Card(
                label=str(r["role"]).capitalize(),
                value=bytes_(r["bytes"]),
                note=f"{percent(r['bytes'] / whole)} of the peak, {many(r['count'], 'block')}",
                definition=_ROLE_WORDS.get(str(r["role"]), ""),
            )
            for r in roles.to_dict("records")
        ]
    )


def is_driver(view: RunView) -> bool:
    """Say whether the curve is the driver's allocations, of which the allocator hands out parts."""
    return view.memory.get("source") in ("driver", "cuda_allocations")


def _figures(view: RunView) -> None:
    sources = view.summary.get("memory_sources") or {}
    items = [
        Card(
            label=label,
            value=bytes_(view.summary[key]),
            note=SOURCE_WORDS.get(sources.get(key, ""), ""),
            definition=tooltip(key),
        )
        for label, key in (
            ("Peak requested", "requested_bytes"),
            ("Peak allocated", "allocated_bytes"),
            ("Peak reserved", "reserved_bytes"),
            ("Taken from the driver", "driver_bytes"),
        )
        if view.summary.get(key) is not None
    ]
    source = view.memory.get("source", "snapshot")
    note = "requested, snapshot" if source == "snapshot" else SOURCE_WORDS.get(source, source)
    items += [
        Card(label=label, value=bytes_(view.memory[key]), note=note, definition=tooltip(name))
        for label, key, name in (
            ("Before the recording", "baseline_bytes", "memory.baseline_bytes"),
            ("After the recording", "final_bytes", "memory.final_bytes"),
        )
        if view.memory.get(key) is not None
    ]
    if items:
        cards(items)


SOURCE_WORDS = {
    "allocator": "PyTorch's counter, clean pass",
    "snapshot": "memory snapshot",
    "trace": "PyTorch trace",
    "driver": "driver allocations, nsys",
    "cuda_allocations": "driver allocations, nsys",
}
"""What recorded a memory figure, as a card says it."""


def _device(points: pd.DataFrame) -> int:
    devices = sorted(set(points["device"]))
    if len(devices) == 1:
        return int(devices[0])
    chosen = st.segmented_control(
        "Device", devices, default=devices[0], key="memory_device", required=True
    )
    return int(chosen)


def _bands(points: pd.DataFrame) -> list[tuple[str, float, float]]:
    """Return the stretches of equal phase inside an iteration; none where too many to read.

    Points without a phase (a free has no stack) between two of one phase belong to it.
    """
    phases = pd.Series([top_phase(p) if isinstance(p, str) else "" for p in points["phase"]])
    named = phases.where(phases != "")
    before, after = named.ffill(), named.bfill()
    phase = phases.where(before.isna() | (before != after), before)
    phase.index = points.index
    if not (phase != "").any():
        return []
    block = (phase != phase.shift()).cumsum()
    spans = (
        points.assign(phase=phase)
        .groupby(block.to_numpy())
        .agg(name=("phase", "first"), start=("time_ns", "min"), end=("time_ns", "max"))
    )
    spans = spans[spans["name"] != ""]
    is_few = len(spans) <= _MAX_BANDS
    return [(str(r.name_), r.start, r.end) for r in _renamed(spans)] if is_few else []


_MAX_BANDS = 120


def _renamed(spans: pd.DataFrame) -> Any:
    return spans.rename(columns={"name": "name_"}).itertuples()


def _oom(view: RunView, points: pd.DataFrame) -> tuple[float, str] | None:
    event = view.memory.get("oom") or {}
    oom = view.run.oom or event
    if not oom:
        return None
    at = event.get("time_ns", points["time_ns"].iloc[-1])
    asked = oom.get("requested_bytes")
    return float(at), f"out of memory: {bytes_(asked)} asked for"


def _peak_table(sites: pd.DataFrame) -> None:
    show_table(
        pd.DataFrame(
            {
                "site": sites["site"],
                "role": sites["role"].fillna(NO_ROLE),
                "phase": sites["phase"],
                "MB": sites["bytes"] / 1e6,
                "blocks": sites["count"],
            }
        ).head(500),
        most_px=360,
        alt="Live memory at the peak by allocation site",
    )


def samples(view: RunView) -> None:
    """Draw every latency sample, and what profiling cost."""
    if view.samples.empty:
        style.empty_state(
            "No clean pass",
            "Latency is measured without a profiler; captures alone do not contain it."
            if view.run.source == "imported" or view.run.status == "done"
            else "The run ended before latency was measured.",
        )
    else:
        left, right = st.columns([3, 2], gap="large")
        with left:
            st.markdown("**In order**")
            chart(sample_charts.by_iteration(view.samples), alt="Latency of each iteration")
        with right:
            st.markdown("**Spread by process**")
            chart(
                sample_charts.distribution([(view.run.name, NEUTRAL, view.samples)]),
                alt="Box and points of the latencies of each process",
            )
        style.facts(sample_facts(view))
    _parts(view)
    _overhead(view)


def _parts(view: RunView) -> None:
    """Draw what the clean pass timed of each step: the phases that the program marks or names."""
    rows = view.metrics
    if len(rows):
        rows = rows[(rows["name"] == "phase_latency") & (rows["pass"] == Pass.CLEAN)]
    if not len(rows):
        return
    st.markdown("**Parts of a step, in the clean pass**")
    latency = (view.summary.get("latency_ms") or {}).get("median")
    parts = [
        {
            "part": row.phase,
            "time": duration(row.value),
            "against the latency": ratio(row.value / latency / 1e6) if latency else UNKNOWN,
        }
        for row in rows.itertuples()
    ]
    show_table(pd.DataFrame(parts), alt="Median time of each part of a step, without a profiler")


def sample_facts(view: RunView) -> list[tuple[str, str]]:
    """Return the statistics of the clean samples, as shown below their charts."""
    latency = view.summary.get("latency_ms")
    if not isinstance(latency, dict):
        return []
    pairs = [
        (name, f"{duration(value * 1e6)}")
        for name, value in latency.items()
        if name in ("median", "mean", "std", "min", "max", "p95") and value is not None
    ]
    if latency.get("ci95"):
        low, high = latency["ci95"]
        pairs.insert(1, ("95 % interval", f"{duration(low * 1e6)} to {duration(high * 1e6)}"))
    if latency.get("cv") is not None:
        pairs.append(("coefficient of variation", percent(latency["cv"])))
    pairs.append(("samples", str(latency.get("n", len(view.samples)))))
    return pairs


def _overhead(view: RunView) -> None:
    if view.profiled_samples.empty:
        return
    st.markdown("**Under a profiler**")
    clean = view.samples["latency_ns"].median() if len(view.samples) else None
    rows = [
        {
            "pass": name,
            "iterations": len(part),
            "median": duration(part["latency_ns"].median()),
            "against the clean pass": ratio(part["latency_ns"].median() / clean)
            if clean
            else "\u2014",
        }
        for name, part in view.profiled_samples.groupby("pass")
    ]
    show_table(pd.DataFrame(rows), alt="Latency under each profiler")
