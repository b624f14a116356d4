"""What a comparison shows below the verdict: why, kernel by kernel, and the curves overlaid."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from analysis.compare import Comparison, Waterfall
from analysis.roofline import counter_points
from analysis.runview import RunView
from app.charts.compare import waterfall
from app.charts.memory import memory_overlay
from app.charts.roofline import roofline
from app.charts.samples import distribution
from app.ui import data, links
from app.ui.colours import RUN_A, RUN_B
from app.ui.run_counters import ceilings, model_point
from app.ui.widgets import (
    chart,
    export_buttons,
    plain_markdown,
    said_plainly,
    show_table,
    table_height,
)
from core.spec import JobSpec

REPEATS = 5


def actions(
    found: Comparison,
    ids_a: tuple[str, ...],
    ids_b: tuple[str, ...],
    a: Sequence[RunView],
    b: Sequence[RunView],
) -> None:
    """Draw repeats, export and share."""
    bar = st.container(horizontal=True)
    jobs = interleaved(a[0], b[0])
    if jobs and bar.button(
        f"Run {REPEATS} interleaved repeats",
        icon=":material/repeat:",
        type="primary" if found.verdict == "not_enough_samples" else "secondary",
        help="A B A B ...: drift of the machine then falls on both sides alike",
    ):
        _submit(jobs, a[0], b[0])
    with bar.popover("Export", icon=":material/download:"):
        export_buttons(found, f"compare-{ids_a[0]}-{ids_b[0]}")
    with bar.popover("Share", icon=":material/link:"):
        st.text("This comparison's address:")
        address = links.share_url(
            "compare", a=",".join(ids_a), b=",".join(ids_b), metric=found.metric
        )
        st.code(address, language=None, wrap_lines=True)


def interleaved(a: RunView, b: RunView) -> list[JobSpec]:
    """Return clean jobs in the order A B A B, or [] when a side cannot be run here."""
    if not all(v.run.workload and v.run.params and v.run.gpu_model for v in (a, b)):
        return []
    sides = [
        JobSpec(workload=str(v.run.workload), params=dict(v.run.params), gpu=str(v.run.gpu_model))
        for v in (a, b)
    ]
    return sides * REPEATS


def _submit(jobs: list[JobSpec], a: RunView, b: RunView) -> None:
    with said_plainly():
        data.submit(jobs, name=f"repeats of {a.run.name} and {b.run.name}")
    st.switch_page(links.QUEUE)


def differences(found: Comparison) -> None:
    """List the fields that differ, the intended one first."""
    if not found.differs:
        st.caption("No configuration field differs.")
        return
    num = len(found.differs)
    title = f"{num} field{'s differ' if num > 1 else ' differs'}"
    if found.intended:
        title += f", the variable is {found.intended.field}"
    with st.expander(plain_markdown(title), expanded=not found.comparable):
        show_table(
            pd.DataFrame(
                [
                    {"field": d.field, "A": d.a, "B": d.b, "effect": _EFFECTS[d.effect]}
                    for d in found.differs
                ]
            ),
            alt="Configuration fields that differ",
        )


_EFFECTS = {
    "intended": "what is compared",
    "breaks": "makes the ratio meaningless",
    "noted": "noted",
    "unknown": "known on one side only",
}


def waterfalls(found: Comparison) -> None:
    """Draw where the time went: the whole span, and kernel time by class."""
    both = [f for f in (found.waterfall, found.kernel_waterfall) if f is not None]
    falls = list({f.mode: f for f in both}.values())
    if not falls:
        return
    st.subheader("Where the time went", anchor=False)
    columns = st.columns(len(falls), gap="large") if len(falls) > 1 else [st.container()]
    for place, fall in zip(columns, falls, strict=True):
        with place:
            what = {"span": "first to last GPU operation", "kernel_time": "kernel time"}[fall.mode]
            per = ", per iteration" if fall.per == "iteration" else ", whole capture"
            st.caption(what + per)
            chart(_fall(fall, found, what), alt=f"Steps from A to B of the {what}")


def _fall(fall: Waterfall, found: Comparison, what: str) -> object:
    steps = [(bar.name, float(bar.delta_ns)) for bar in fall.bars]
    return waterfall(
        steps, start_ns=float(fall.total_a_ns), labels=(found.a.label, found.b.label), what=what
    )


def kernel_pairs(found: Comparison) -> None:
    """Draw the kernel matching table with how each pair was found."""
    if not found.kernels:
        return
    st.subheader("Kernel matching", anchor=False)
    rows = [
        {
            "A": k.a or "",
            "B": k.b or "",
            "class": k.category,
            "matched by": k.match,
            "confidence": k.confidence,
            "A \u00b5s": k.a_ns / 1e3,
            "B \u00b5s": k.b_ns / 1e3,
            "difference \u00b5s": k.delta_ns / 1e3,
            "A launches": k.a_count,
            "B launches": k.b_count,
            "range": k.path or "",
        }
        for k in found.kernels
    ]
    number = st.column_config.NumberColumn
    show_table(
        pd.DataFrame(rows),
        height=table_height(rows, 520),
        column_config={
            "A": st.column_config.TextColumn(width="medium"),
            "B": st.column_config.TextColumn(width="medium"),
            "confidence": number(format="%.2f", help="0 to 1"),
            "A \u00b5s": number(format="%.4g"),
            "B \u00b5s": number(format="%.4g"),
            "difference \u00b5s": number(format="%+.4g"),
        },
        alt="Kernels of A and B that do the same work",
    )
    st.caption("An empty cell has no partner: the kernel is gone, new, or fused into another.")


def overlays(a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Draw samples, memory and roofline of both sides in the same axes, where both have them."""
    sides = [("A", RUN_A, v) for v in a] + [("B", RUN_B, v) for v in b]
    samples = [(f"{s}: {v.run.name}", c, v.samples) for s, c, v in sides if len(v.samples)]
    memory = [(f"{s}: {v.run.name}", c, v.memory_points) for s, c, v in sides]
    memory = [m for m in memory if m[2]["time_ns"].nunique() > 1]
    if samples:
        st.subheader("Samples", anchor=False)
        chart(distribution(samples), alt="Latency samples of both sides by process")
    if memory:
        st.subheader("Memory", anchor=False)
        chart(memory_overlay(memory), alt="Allocated memory of both sides over time")
    _rooflines(a[0], b[0])


def _rooflines(a: RunView, b: RunView) -> None:
    sides = (("A", a), ("B", b))
    points = [counter_points(v.counters).assign(side=s) for s, v in sides]
    models = [(f"{s}: {m[0]}", m[1], m[2]) for s, v in sides if (m := model_point(v)) is not None]
    both = pd.concat(points, ignore_index=True)
    if both.empty and not models:
        return
    st.subheader("Roofline", anchor=False)
    both["label"] = both["side"] + ": " + both["label"].astype(str)
    roofs = list(dict.fromkeys([*ceilings(a), *ceilings(b)]))
    chart(roofline(both, roofs, models), alt="Kernels of both sides under the ceilings")
