"""What a comparison overlays: samples, memory, roofline, and each GPU against its own peaks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import pandas as pd
import streamlit as st

from analysis.colours import RUN_A, SERIES_COLOURS
from analysis.compare.labels import WORDS
from analysis.compare.records import Comparison
from analysis.roofline import counter_points
from analysis.runview import RunView
from app.charts.compare import throughputs
from app.charts.memory import memory_overlay
from app.charts.roofline import roofline
from app.charts.samples import distribution
from app.ui.format import duration, gpu_name, percent, ratio
from app.ui.run.counters import model_point, roofs
from app.ui.tables import show_table
from app.ui.widgets import chart, plain_markdown

_MOST_SITES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A run with its label and colour, the same in every overlay."""

    side: str
    label: str
    colour: str
    view: RunView


def shown_runs(a: Sequence[RunView], b: Sequence[RunView]) -> list[Shown]:
    """Return every run of both sides; a side of several numbers them: `B2: name`."""
    colours = cycle((RUN_A, *SERIES_COLOURS))
    return [
        Shown(
            side=side,
            label=f"{side}{i + 1 if len(views) > 1 else ''}: {view.run.name}",
            colour=next(colours),
            view=view,
        )
        for side, views in (("A", a), ("B", b))
        for i, view in enumerate(views)
    ]


def overlays(a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Draw samples, memory, roofline and counters of all runs of both sides in the same axes."""
    runs = shown_runs(a, b)
    samples = [(r.label, r.colour, r.view.samples) for r in runs if len(r.view.samples)]
    memory = [(r.label, r.colour, r.view.memory_points) for r in runs]
    memory = [m for m in memory if m[2]["time_ns"].nunique() > 1]
    if samples:
        st.subheader("Samples", anchor=False)
        st.caption(
            "Clean pass, one box per process: what matters is the noise "
            "between processes, not within one."
        )
        chart(distribution(samples), alt="Latency samples of all runs by process")
    if memory:
        st.subheader("Memory over time", anchor=False)
        chart(memory_overlay(memory), alt="Allocated memory of all runs over time")
    _rooflines(runs)
    _counters(runs)


def _rooflines(runs: Sequence[Shown]) -> None:
    points = [_marked(counter_points(r.view.counters), r) for r in runs]
    models = [(r, m) for r in runs if (m := model_point(r.view)) is not None]
    known = [p for p in points if len(p)]
    if not known and not models:
        return
    st.subheader("Roofline", anchor=False)
    shapes = (
        ("Circles: kernels of A; squares: kernels of B; from counters; area is time. ")
        if known
        else ""
    )
    diamonds = "Diamonds: whole iterations, from the cost model." if models else ""
    st.caption(shapes + diamonds + (_without(runs, points) if known else ""))
    chart(
        roofline(
            pd.concat(known, ignore_index=True) if known else points[0],
            _ceilings(runs),
            [(r.label, *m[1:]) for r, m in models],
            [r.colour for r, _ in models],
        ),
        alt="Kernels of all runs under the ceilings",
    )


def _counters(runs: Sequence[Shown]) -> None:
    columns = ["short_name", "category", "sm_pct", "memory_pct", "duration_ns"]
    points = [
        _marked(r.view.counters[columns].dropna().rename(columns={"short_name": "label"}), r)
        if len(r.view.counters)
        else r.view.counters
        for r in runs
    ]
    known = [p for p in points if len(p)]
    if not known:
        return
    st.subheader("Counters", anchor=False)
    st.caption(
        "Share of the GPU's compute and memory throughput that each profiled "
        "kernel reaches: kernels at the lower left are latency-bound. Circles: "
        "A; squares: B; area is time." + _without(runs, points)
    )
    chart(
        throughputs(pd.concat(known, ignore_index=True)),
        alt="Compute against memory throughput of the kernels of all runs",
    )


def _marked(points: pd.DataFrame, run: Shown) -> pd.DataFrame:
    return points.assign(side=run.side, run=run.label, colour=run.colour)


def _without(runs: Sequence[Shown], points: Sequence[pd.DataFrame]) -> str:
    missing = [r.label for r, p in zip(runs, points, strict=True) if p.empty]
    return plain_markdown(f" No counters of {', '.join(missing)}.") if missing else ""


def _ceilings(runs: Sequence[Shown]) -> pd.DataFrame:
    """Return the roofs of every GPU of these runs, named by the GPU where there are several."""
    gpus = {r.view.run.gpu_model for r in runs}
    ceilings = [
        roofs(r.view).assign(gpu=r.view.run.gpu_model if len(gpus) > 1 else "") for r in runs
    ]
    return pd.concat(ceilings, ignore_index=True).drop_duplicates()


def scoreboard(comparison: Comparison) -> None:
    """Draw each run's latency as a share of what its own GPU was measured to reach."""
    if not comparison.scoreboard:
        return
    device = WORDS[comparison.device].device
    shares = {
        "of measured bandwidth": [r.bandwidth_frac for r in comparison.scoreboard],
        "of measured compute peak": [r.compute_frac for r in comparison.scoreboard],
        "of datasheet bandwidth": [r.datasheet_bandwidth_frac for r in comparison.scoreboard],
        "of datasheet compute peak": [r.datasheet_compute_frac for r in comparison.scoreboard],
    }
    known = {name: values for name, values in shares.items() if any(v is not None for v in values)}
    st.subheader(f"Against each {device}'s own peaks" if known else "Latencies", anchor=False)
    table = pd.DataFrame(
        {
            "run": [r.label for r in comparison.scoreboard],
            device: [gpu_name(r.gpu) for r in comparison.scoreboard],
            "latency": [duration(r.latency_ms * 1e6) for r in comparison.scoreboard],
            "to the first": [ratio(r.relative_latency) for r in comparison.scoreboard],
            **{name: [percent(v) for v in values] for name, values in known.items()},
            "note": [r.error or "" for r in comparison.scoreboard],
        }
    )
    if not any(r.error for r in comparison.scoreboard):
        table = table.drop(columns="note")
    show_table(
        table,
        most_px=420,
        alt=f"Latency of each run and its share of the peaks of its {device}",
    )
    is_measured = {"of measured bandwidth", "of measured compute peak"} & set(known)
    if not is_measured and comparison.device != "cpu":
        st.caption(
            "Shares of measured peaks need a workload with a cost model and "
            "peaks measured on that GPU (`./warpboard doctor --measure` on its "
            "host)."
        )


def memory_sites(comparison: Comparison) -> None:
    """Draw live allocations at the peaks by allocation site, the largest change first."""
    if not comparison.memory:
        return
    st.subheader("Memory at the peak, by allocation site", anchor=False)
    table = pd.DataFrame(
        {
            "site": [m.site for m in comparison.memory],
            "A MB": [m.a_bytes / 1e6 for m in comparison.memory],
            "B MB": [m.b_bytes / 1e6 for m in comparison.memory],
            "difference MB": [m.delta_bytes / 1e6 for m in comparison.memory],
            "A blocks": [m.a_count for m in comparison.memory],
            "B blocks": [m.b_count for m in comparison.memory],
        }
    ).head(_MOST_SITES)
    show_table(
        table,
        most_px=420,
        alt="Bytes alive at the peak by allocation site on both sides",
    )
