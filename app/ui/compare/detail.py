"""What a comparison shows below the verdict: the next step, then why by kernel and by stack."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from analysis.classify import cut_middle, distinct_labels
from analysis.compare.labels import WORDS, fall_text
from analysis.compare.records import Comparison, Waterfall
from analysis.compare.waterfall import stack_difference
from analysis.iterations import num_iterations
from analysis.per_step import basis_of
from analysis.runview import RunView
from app.charts.base import Chart
from app.charts.compare import waterfall
from app.charts.flame import FLAME_METRICS, difference_tree, flame_difference
from app.ui.format import fixed_format, time_unit
from app.ui.stack_choice import click, open_stack
from app.ui.tables import KERNEL_CHARS, KERNEL_WIDTH, show_table
from app.ui.widgets import chart, choose_point, export_buttons, plain_markdown, share


def actions(comparison: Comparison) -> None:
    """Draw export and share."""
    bar = st.container(horizontal=True)
    with bar.popover("Export", icon=":material/download:"):
        export_buttons(comparison, f"compare-{comparison.a.run_ids[0]}-{comparison.b.run_ids[0]}")
    share(
        bar,
        "compare",
        a=",".join(comparison.a.run_ids),
        b=",".join(comparison.b.run_ids),
        metric=comparison.metric,
        pair=st.query_params.get("pair", ""),
    )


def differences(comparison: Comparison) -> None:
    """List the fields that differ, the intended one first."""
    if not comparison.differs:
        st.caption("No configuration field differs.")
        return
    num = len(comparison.differs)
    title = f"{num} field{'s differ' if num > 1 else ' differs'}"
    if comparison.intended:
        title += f", the variable is {comparison.intended.field}"
    with st.expander(plain_markdown(title), expanded=not comparison.comparable):
        show_table(
            pd.DataFrame(
                [
                    {"field": d.field, "A": d.a, "B": d.b, "effect": _EFFECTS[d.effect]}
                    for d in comparison.differs
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


def waterfalls(comparison: Comparison, views: Sequence[RunView]) -> None:
    """Draw where the time went: the whole span, and kernel time by class."""
    both = [f for f in (comparison.waterfall, comparison.kernel_waterfall) if f is not None]
    falls = list({f.mode: f for f in both}.values())
    if not falls:
        return
    st.subheader("Where the time went", anchor=False)
    columns = st.columns(len(falls), gap="large") if len(falls) > 1 else [st.container()]
    for place, fall in zip(columns, falls, strict=True):
        with place:
            _draw_fall(fall, comparison, views)
    if comparison.operator_waterfall is not None:
        _draw_fall(comparison.operator_waterfall, comparison, views)


def _draw_fall(fall: Waterfall, comparison: Comparison, views: Sequence[RunView]) -> None:
    each, word = _same_steps(fall, views)
    told = fall_text(fall.mode, fall.per, comparison.device)
    caption = told.partition(",")[0]
    st.caption(f"{caption}, per {word}" if each > 1 else told)
    chart(_fall(fall, comparison, caption, each), alt=f"Steps from A to B of the {caption}")


def _same_steps(fall: Waterfall, views: Sequence[RunView]) -> tuple[int, str]:
    """Return how many steps both whole captures consist of; 1 where that is not known."""
    named = {v.run.id: v for v in views}
    a, b = named[fall.run_a], named[fall.run_b]
    basis = basis_of(a)
    if fall.per != "capture" or basis is None or basis_of(b) is None:
        return 1, fall.per
    if basis.is_of_steps:
        return a.by_step.facts["count"], "step"
    left, right = (num_iterations(v.phases) for v in (a, b))
    return (left, "iteration") if left and left == right else (1, fall.per)


def _fall(fall: Waterfall, comparison: Comparison, caption: str, each: int) -> Chart:
    steps = [(bar.name, bar.delta_ns / each) for bar in fall.bars]
    labels = (comparison.a.label, comparison.b.label)
    if comparison.intended:
        field, a, b = comparison.intended.field, comparison.intended.a, comparison.intended.b
        labels = (f"{field} {a or 'unknown'}", f"{field} {b or 'unknown'}")
    return waterfall(steps, start_ns=fall.total_a_ns / each, labels=labels, what=caption)


def kernel_pairs(comparison: Comparison, views: Sequence[RunView]) -> None:
    """Draw the kernel matching table with how each pair was found."""
    if not comparison.kernels:
        return
    words = WORDS[comparison.device]
    st.subheader(f"{words.work.capitalize()} matching", anchor=False)
    fall = comparison.kernel_waterfall
    each, word = _same_steps(fall, views) if fall else (1, "capture")
    names = {n for v in views if len(v.kernels) for n in v.kernels["name"]}
    used = sorted(
        {n for k in comparison.kernels for n in (k.a, k.b) if n is not None and n in names}
    )
    labels = distinct_labels(used, KERNEL_CHARS)
    times = [ns / each for k in comparison.kernels for ns in (k.a_ns, k.b_ns)]
    unit, unit_ns = time_unit(times, "\u00b5s")
    rows = [
        {
            "A": _shown(k.a, labels),
            "B": _shown(k.b, labels),
            "class": k.category,
            "matched by": k.match,
            "confidence": k.confidence,
            f"A {unit}": k.a_ns / unit_ns / each,
            f"B {unit}": k.b_ns / unit_ns / each,
            f"difference {unit}": k.delta_ns / unit_ns / each,
            f"A {words.calls}": k.a_count / each,
            f"B {words.calls}": k.b_count / each,
            "range": k.path or "",
            "A, whole": k.a,
            "B, whole": k.b,
        }
        for k in comparison.kernels
    ]
    table = pd.DataFrame(rows)
    if table["range"].nunique() < 2:
        table = table.drop(columns="range")
    both = fixed_format([*table[f"A {unit}"], *table[f"B {unit}"]], most=2)
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    show_table(
        table,
        most_px=520,
        helps={"confidence": "confidence of the match, 0 to 1"},
        columns={
            **dict.fromkeys("AB", text(width=KERNEL_WIDTH)),
            **dict.fromkeys(("A, whole", "B, whole"), text(width="small")),
            **dict.fromkeys((f"A {unit}", f"B {unit}"), number(format=both)),
        },
        alt=f"{words.works.capitalize()} of A and B that do the same work",
    )
    of = f"Times and {words.calls} are of the whole capture."
    if word != "capture":
        of = f"Times and {words.calls} are per {word}."
    st.caption(
        f"{of} A dash means no partner: the {words.work} is gone, new, or fused into another."
    )


def _shown(name: str | None, labels: Mapping[str, str]) -> str | None:
    """Return a kernel as a cell shows it; a group of several is a text already."""
    return None if name is None else labels.get(name) or cut_middle(name, KERNEL_CHARS)


def stacks(comparison: Comparison, views: Sequence[RunView]) -> None:
    """Draw the difference of both runs by stack, where both have stacks."""
    fall = comparison.kernel_waterfall
    named = {v.run.id: v for v in views}
    if fall is None or fall.run_a not in named or fall.run_b not in named:
        return
    a, b = named[fall.run_a], named[fall.run_b]
    if not (len(a.by_step.operators) or len(b.by_step.operators)):
        return  # without operators the stacks are the ranges: the phases show those
    tables = {label: stack_difference(a, b, metric) for label, metric in FLAME_METRICS.items()}
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
        flame_difference(rows, root, labels=(comparison.a.label, comparison.b.label)),
        alt=f"Difference of {chosen} by stack",
        key=f"flame_{place}_{root}",
    )
    if clicked is not None:
        click(tree, place, clicked, root)
    st.caption(
        "Width is the longer time of the two, per step. Blue: faster in B; "
        "orange: slower in B. Click a box to zoom in."
    )
