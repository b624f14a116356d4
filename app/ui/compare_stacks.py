"""Two runs' time by stack, one over the other."""

from collections.abc import Sequence

import streamlit as st

from analysis.compare import Comparison
from analysis.compare.stacks import stack_difference
from analysis.runview import RunView
from app.charts.flame import difference_tree, flame_difference
from app.ui.stack_choice import click, open_stack
from app.ui.widgets import choose_point

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
    rows = tables[str(chosen)]
    tree = difference_tree(rows)
    place = f"{a.run.id}_{b.run.id}_{chosen}"
    root = open_stack(tree, place)
    clicked = choose_point(
        flame_difference(rows, root, labels=(found.a.label, found.b.label)),
        alt=f"Difference of {chosen} by stack",
        key=f"flame_{place}_{root}",
    )
    if clicked is not None:
        click(tree, place, clicked, root)
    st.caption(
        "Width is the longer of both, a step. Blue took less in B, orange more. "
        "A click on a box opens it."
    )
