"""What a comparison shows below the verdict: what to do next, and why, kernel by kernel."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from analysis.compare import Comparison, Waterfall
from analysis.compare.labels import WORDS
from analysis.iterations import num_iterations
from analysis.runview import RunRow, RunView
from app.charts.base import Chart
from app.charts.compare import waterfall
from app.ui import data, links
from app.ui.format import fixed_format
from app.ui.widgets import (
    chart,
    export_buttons,
    plain_markdown,
    said_plainly,
    show_table,
    table_height,
)
from core.spec import JobSpec
from workloads.registry import load_workloads

REPEATS = 5


def actions(found: Comparison, a: Sequence[RunView], b: Sequence[RunView]) -> None:
    """Draw repeats, export and share; both sides are whole."""
    jobs, why_not = interleaved(a, b)
    bar = st.container(horizontal=True)
    if bar.button(
        f"Run {REPEATS} interleaved repeats",
        icon=":material/repeat:",
        type="primary" if jobs and found.verdict == "not_enough_samples" else "secondary",
        disabled=not jobs,
        help="A B A B ...: drift of the machine then falls on both sides alike",
    ):
        _submit(jobs, a[0], b[0])
    with bar.popover("Export", icon=":material/download:"):
        export_buttons(found, f"compare-{found.a.run_ids[0]}-{found.b.run_ids[0]}")
    with bar.popover("Share", icon=":material/link:"):
        st.text("This comparison's address:")
        address = links.share_url(
            "compare",
            a=",".join(found.a.run_ids),
            b=",".join(found.b.run_ids),
            metric=found.metric,
            pair=st.query_params.get("pair", ""),
        )
        st.code(address, language=None, wrap_lines=True)
    if why_not:
        st.caption(plain_markdown(why_not))


def interleaved(a: Sequence[RunView], b: Sequence[RunView]) -> tuple[list[JobSpec], str]:
    """Return clean jobs in the order A B A B, or none and the reason why they cannot run here."""
    served = set(data.list_gpus().query("worker_id.notna()")["model"]) | {"cpu"}
    specs: list[JobSpec] = []
    for name, views in (("A", a), ("B", b)):
        for run in (v.run for v in views):
            why = _why_not(run, served)
            if why:
                return [], f"No repeats from here: side {name} ({run.name}) {why}."
            specs.append(
                JobSpec(workload=str(run.workload), params=dict(run.params), gpu=str(run.gpu_model))
            )
    distinct = list({spec.spec_hash: spec for spec in specs}.values())
    return distinct * REPEATS, ""


def _why_not(run: RunRow, served: set[str]) -> str:
    """Return why a run's job cannot be repeated by the workers here; empty when it can."""
    if not run.workload or not run.params or run.workload not in load_workloads():
        return "is an import whose program is not part of Warpboard"
    if run.source == "demo":
        return "is example data"
    if str(run.gpu_model) not in served:
        return f"ran on {run.gpu_model or 'an unknown GPU'}, for which no worker is registered"
    return ""


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


def waterfalls(found: Comparison, views: Sequence[RunView]) -> None:
    """Draw where the time went: the whole span, and kernel time by class."""
    both = [f for f in (found.waterfall, found.kernel_waterfall) if f is not None]
    falls = list({f.mode: f for f in both}.values())
    if not falls:
        return
    st.subheader("Where the time went", anchor=False)
    columns = st.columns(len(falls), gap="large") if len(falls) > 1 else [st.container()]
    for place, fall in zip(columns, falls, strict=True):
        with place:
            _draw_fall(fall, found, views)
    if found.operator_waterfall is not None:
        _draw_fall(found.operator_waterfall, found, views)


def _draw_fall(fall: Waterfall, found: Comparison, views: Sequence[RunView]) -> None:
    time = WORDS[found.device].time
    what = {
        "span": "first to last GPU operation",
        "kernel_time": time,
        "operators": f"{time} by operator",
    }[fall.mode]
    each = _same_iterations(fall, views) if fall.per == "capture" else 1
    per = "iteration" if each > 1 else fall.per
    st.caption(f"{what}, {'whole capture' if per == 'capture' else f'per {per}'}")
    chart(_fall(fall, found, what, each), alt=f"Steps from A to B of the {what}")


def _same_iterations(fall: Waterfall, views: Sequence[RunView]) -> int:
    """Return how many iterations both captures hold; 1 where they differ or it is not known."""
    named = {v.run.id: v for v in views}
    left, right = (num_iterations(named[i].phases) for i in (fall.run_a, fall.run_b))
    return left if left and left == right else 1


def _fall(fall: Waterfall, found: Comparison, what: str, each: int) -> Chart:
    steps = [(bar.name, bar.delta_ns / each) for bar in fall.bars]
    labels = (found.a.label, found.b.label)
    if found.intended:
        labels = (found.intended.a or "unknown", found.intended.b or "unknown")
    return waterfall(steps, start_ns=fall.total_a_ns / each, labels=labels, what=what)


def kernel_pairs(found: Comparison, views: Sequence[RunView]) -> None:
    """Draw the kernel matching table with how each pair was found."""
    if not found.kernels:
        return
    words = WORDS[found.device]
    st.subheader(f"{words.work.capitalize()} matching", anchor=False)
    fall = found.kernel_waterfall
    is_per_iteration = fall is not None and fall.per == "iteration"
    each = _same_iterations(fall, views) if fall else 1
    rows = [
        {
            "A": k.a,
            "B": k.b,
            "class": k.category,
            "matched by": k.match,
            "confidence": k.confidence,
            "A \u00b5s": k.a_ns / 1e3 / each,
            "B \u00b5s": k.b_ns / 1e3 / each,
            "difference \u00b5s": k.delta_ns / 1e3 / each,
            f"A {words.calls}": k.a_count / each,
            f"B {words.calls}": k.b_count / each,
            "range": k.path or "",
        }
        for k in found.kernels
    ]
    number = st.column_config.NumberColumn
    table = pd.DataFrame(rows)
    if table["range"].nunique() < 2:
        table = table.drop(columns="range")
    times = number(format=fixed_format([*table["A \u00b5s"], *table["B \u00b5s"]], most=2))
    show_table(
        table,
        height=table_height(rows, 520),
        column_config={
            "A": st.column_config.TextColumn(width=330),
            "B": st.column_config.TextColumn(width=330),
            **dict.fromkeys((f"A {words.calls}", f"B {words.calls}"), number(format="%.4g")),
            "confidence": number(format="%.2f", help="0 to 1: how sure the match is"),
            "A \u00b5s": times,
            "B \u00b5s": times,
            "difference \u00b5s": number(
                format=fixed_format(table["difference \u00b5s"], most=2, signed=True)
            ),
        },
        alt=f"{words.works.capitalize()} of A and B that do the same work",
    )
    of = f"Times and {words.calls} are of the whole capture."
    if each > 1:
        of = f"Times and {words.calls} are per iteration."
    elif is_per_iteration:
        of = f"Times are per iteration, {words.calls} of the whole capture."
    st.caption(f"{of} A dash has no partner: the {words.work} is gone, new, or fused into another.")
