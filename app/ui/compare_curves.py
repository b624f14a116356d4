"""What a comparison overlays: samples, memory, roofline, and each GPU against its own peaks."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from analysis.compare import Comparison
from analysis.roofline import counter_points
from analysis.runview import RunView
from app.charts.memory import memory_overlay
from app.charts.roofline import roofline
from app.charts.samples import distribution
from app.ui.colours import RUN_A, RUN_B
from app.ui.format import UNKNOWN, duration, fixed_format, percent, ratio
from app.ui.run_counters import model_point, roofs
from app.ui.widgets import chart, show_table, table_height

_MOST_SITES = 200


def overlays(a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Draw samples, memory and roofline of both sides in the same axes, where they have them."""
    sides = [("A", RUN_A, v) for v in a] + [("B", RUN_B, v) for v in b]
    samples = [(f"{s}: {v.run.name}", c, v.samples) for s, c, v in sides if len(v.samples)]
    memory = [(f"{s}: {v.run.name}", c, v.memory_points) for s, c, v in sides]
    memory = [m for m in memory if m[2]["time_ns"].nunique() > 1]
    if samples:
        st.subheader("Samples", anchor=False)
        st.caption("Clean pass, one box a process: noise between processes counts, not inside one.")
        chart(distribution(samples), alt="Latency samples of both sides by process")
    if memory:
        st.subheader("Memory over time", anchor=False)
        chart(memory_overlay(memory), alt="Allocated memory of both sides over time")
    _rooflines(a[0], b[0])


def _rooflines(a: RunView, b: RunView) -> None:
    sides = (("A", a), ("B", b))
    points = [counter_points(v.counters).assign(side=s) for s, v in sides]
    models = [(f"{s}: {m[0]}", m[1], m[2]) for s, v in sides if (m := model_point(v)) is not None]
    known = [p for p in points if len(p)]
    if not known and not models:
        return
    st.subheader("Roofline", anchor=False)
    missing = [s for (s, _), p in zip(sides, points, strict=True) if p.empty]
    shapes = "Circles: kernels of A, squares: of B, by counters. Diamonds: whole iterations."
    st.caption(shapes + (f" No counters on side {' and '.join(missing)}." if missing else ""))
    ceilings = pd.concat([roofs(v) for _, v in sides], ignore_index=True).drop_duplicates()
    both = pd.concat(known, ignore_index=True) if known else points[0]
    chart(roofline(both, ceilings, models), alt="Kernels of both sides under the ceilings")


def scoreboard(found: Comparison) -> None:
    """Draw each run's latency as a share of what its own GPU was measured to reach."""
    if not found.scoreboard:
        return
    st.subheader("Against each GPU's own peaks", anchor=False)
    rows = [
        {
            "run": r.label,
            "GPU": r.gpu,
            "latency": duration(r.latency_ms * 1e6),
            "to the first": ratio(r.relative_latency),
            "of its bandwidth": percent(r.bandwidth_frac),
            "of its compute": percent(r.compute_frac),
            "note": r.error or "",
        }
        for r in found.scoreboard
    ]
    right = st.column_config.TextColumn(alignment="right")
    numeric = ("latency", "to the first", "of its bandwidth", "of its compute")
    show_table(
        pd.DataFrame(rows).drop(columns=[] if any(r["note"] for r in rows) else ["note"]),
        column_config=dict.fromkeys(numeric, right),
        height=table_height(rows, 420),
        alt="Latency of each run and its share of the measured peaks of its GPU",
    )
    if all(r.bandwidth_frac is None and r.compute_frac is None for r in found.scoreboard):
        st.caption(
            f"{UNKNOWN}: no measured peak, or no cost model. `./warpboard doctor --measure` on the "
            "GPU's host measures the peaks."
        )


def memory_sites(found: Comparison) -> None:
    """Draw what lived at the peaks by allocation site, the largest change first."""
    if not found.memory:
        return
    st.subheader("Memory at the peak, by allocation site", anchor=False)
    table = pd.DataFrame(
        {
            "site": [m.site for m in found.memory],
            "A MB": [m.a_bytes / 1e6 for m in found.memory],
            "B MB": [m.b_bytes / 1e6 for m in found.memory],
            "difference MB": [m.delta_bytes / 1e6 for m in found.memory],
            "A blocks": [m.a_count for m in found.memory],
            "B blocks": [m.b_count for m in found.memory],
        }
    ).head(_MOST_SITES)
    number = st.column_config.NumberColumn
    show_table(
        table,
        height=table_height(table, 420),
        column_config={
            "site": st.column_config.TextColumn(width="large"),
            "A MB": number(format=fixed_format(table["A MB"], most=2)),
            "B MB": number(format=fixed_format(table["B MB"], most=2)),
            "difference MB": number(
                format=fixed_format(table["difference MB"], most=2, signed=True)
            ),
        },
        alt="Bytes alive at the peak by allocation site on both sides",
    )
