"""Two runs' time by stack, one over the other."""

from collections.abc import Sequence

import streamlit as st

from analysis.compare import Comparison
from analysis.compare.stacks import stack_difference
from analysis.runview import RunView
from app.charts.steps import flame_difference
from app.ui.widgets import chart

_METRICS = {"GPU time": "gpu", "Idle time": "idle"}


def stacks(found: Comparison, views: Sequence[RunView]) -> None:
    """Draw the difference of both runs by stack, where both have stacks."""
    fall = found.kernel_waterfall
    named = {v.run.id: v for v in views}
    if fall is None or fall.run_a not in named or fall.run_b not in named:
        return
    a, b = named[fall.run_a], named[fall.run_b]
    if not (len(a.by_step.operators) or len(b.by_step.operators)):
        return  # without operators the stacks are the ranges: the phases show those
    tables = {label: stack_difference(a, b, metric) for label, metric in _METRICS.items()}
    known = [label for label, rows in tables.items() if len(rows)]
    if not known:
        return
    st.subheader("Time by stack", anchor=False)
    chosen = st.segmented_control(
        "Show", known, default=known[0], key="flame_diff_of", required=True
    )
    chart(
        flame_difference(tables[str(chosen)], labels=(found.a.label, found.b.label)),
        alt=f"Difference of {chosen} by stack",
    )
    st.caption("Width is the longer of both, a step. Blue took less in B, orange more.")
