"""A run's steps: where they are, which count, what one is made of, and what the host did in it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from analysis.per_step import step_fractions, told_loops
from analysis.runview import RunView, StepView
from analysis.trace.idle_host import GROUPS, host_share
from analysis.verdict import is_cpu_run
from app.charts import samples as step_charts
from app.ui import style
from app.ui.format import bytes_, count, duration, many, percent
from app.ui.run.cards import OF_OPERATORS
from app.ui.run.kernels import why_no_kernels
from app.ui.tables import show_table
from app.ui.widgets import Card, cards, chart, figure, plain_markdown

_FOUND_BY = {
    "ranges": "the program's own ranges `{}`",
    "profiler_step": "PyTorch's profiler steps",
    "optimizer": "the end of each optimizer step, `{}`",
    "graph": "replays of CUDA graphs",
    "repetition": "the {} (no range marks them)",
}
_TOP = 14


def steps(view: RunView) -> None:
    """Draw the steps, the medians of the regular ones beside the whole capture, and one's parts."""
    by_step = view.by_step
    if "source" not in by_step.facts:
        style.empty_state("No steps found", why_no_steps(view))
        return
    _how_found(by_step)
    cards(_cards(view))
    if is_cpu_run(view):
        _parts(by_step, is_cpu=True)
        _all_steps(by_step.steps, is_cpu=True)
        return
    _ruler(by_step)
    left, right = st.columns(2, gap="large")
    with left:
        _kinds(by_step)
        _parts(by_step)
    with right:
        _host(by_step)
    _all_steps(by_step.steps)


def why_no_steps(view: RunView) -> str:
    """Return why a run has no steps, and what to do about it."""
    reason = view.by_step.facts.get("reason")
    if reason:
        return f"{reason[0].upper()}{reason[1:]}."
    if view.kernels.empty:
        return why_no_kernels(view)
    if view.span_paths:
        return "It was stored before step detection existed: `warpboard reparse` reads it again."
    return "Its captures contain totals but no timeline."


def _how_found(by_step: StepView) -> None:
    facts = by_step.facts
    by = _FOUND_BY[facts["source"]].format(facts.get("evidence", ""))
    left_out = facts["num_excluded"]
    text = f"**{many(facts['count'], 'step')}**, found by {by}"
    text += f" (confidence {percent(facts['confidence'])})." if facts["confidence"] < 1 else "."
    if left_out:
        text += f" {many(left_out, 'step')} left out of the averages."
    block = facts.get("block")
    if block:
        size, times = block["num_kernels"], block["count"]
        text += f" A step repeats a block of {size} GPU operations {times} times."
    if facts.get("micro_steps"):
        text += f" It accumulates the gradients of {facts['micro_steps']} micro-steps."
    st.markdown(" ".join([text, *told_loops(facts)]))


def _cards(view: RunView) -> list[Card]:
    facts, summary, whole = view.by_step.facts, view.summary, "whole capture: "
    period = figure("step.period_ns", facts.get("period_ns"), "under the profiler")
    if is_cpu_run(view):
        time, num = summary.get("kernel_time_ns"), summary.get("num_kernels")
        return [
            _of_operators("step.kernel_ns", "Operator time", facts, whole + duration(time)),
            _of_operators("step.num_kernels", "Operators", facts, whole + count(num)),
            period,
        ]
    gpu_ns = facts.get("kernel_ns", 0) + facts.get("graph_ns", 0)
    gpu_time = duration(summary.get("kernel_time_ns") or summary.get("opaque_graph_ns"))
    kernels = f"{count(facts.get('num_kernels'))} kernels; {whole}"
    span = f"{whole}{duration(summary.get('span_ns'))}, first to last kernel"
    idle = percent(summary.get("profiled_idle_frac", summary.get("idle_frac")))
    gemm_frac = step_fractions(view.by_step).get("gemm_frac")
    copies = f"{count(facts.get('num_transfers'))} of them, {duration(facts.get('transfer_ns'))}"
    return [
        figure("step.gpu_ns", gpu_ns or None, whole + gpu_time),
        figure(
            "step.num_launches",
            facts.get("num_launches"),
            kernels + count(summary.get("num_kernels")),
        ),
        replace(period, note=span),
        figure("step.idle_frac", facts.get("idle_frac"), whole + idle),
        figure("gemm_frac", gemm_frac, whole + percent(summary.get("gemm_frac"))),
        figure("step.transfer_bytes", facts.get("transfer_bytes"), copies),
    ]


def _of_operators(key: str, label: str, facts: Mapping[str, Any], note: str) -> Card:
    value = facts.get(key.removeprefix("step."))
    return figure(key, value, note, label=f"{label} of a step", about=OF_OPERATORS)


def _ruler(by_step: StepView) -> None:
    own = by_step.steps[by_step.steps["process"] == by_step.steps["process"].iloc[0]]
    chart(step_charts.step_ruler(own), alt="Time of each step, GPU busy and idle")
    excluded = by_step.facts.get("excluded", [])
    if excluded:
        reasons = [f"{x['count']} x {x['reason']}" for x in excluded[:8]]
        more = len(excluded) - len(reasons)
        tail = f"; {more} other reasons" if more > 0 else ""
        st.caption(plain_markdown("Pale, left out: " + "; ".join(reasons) + tail + "."))


def _kinds(by_step: StepView) -> None:
    kinds = by_step.facts.get("kinds")
    if not kinds:
        return
    st.markdown("**Kinds of step**")
    show_table(
        pd.DataFrame(
            {
                "kind": [k["name"] for k in kinds],
                "steps": [k["count"] for k in kinds],
                "kernels": [k.get("num_kernels") for k in kinds],
                "GPU work": [duration(k.get("kernel_ns", k.get("graph_ns"))) for k in kinds],
                "time": [duration(k.get("period_ns")) for k in kinds],
                "idle": [percent(k.get("idle_frac")) for k in kinds],
            }
        ),
        alt="Kinds of step",
    )


def _parts(by_step: StepView, *, is_cpu: bool = False) -> None:
    facts = by_step.facts
    period = facts.get("period_ns")
    gaps = facts.get("gaps")
    if not is_cpu:
        st.markdown("**A step's idle time by cause**")
    if is_cpu:
        pass
    elif gaps:
        style.facts([(g["cause"], _of(g["total_ns"], period)) for g in gaps])
    else:
        st.caption("Not known.")
    if facts.get("phases"):
        work = "operator" if is_cpu else "kernel"
        st.markdown("**A step's phases**")
        show_table(
            pd.DataFrame(
                {
                    "phase": [p["path"] for p in facts["phases"]],
                    f"{work}s": [p.get("num_kernels") for p in facts["phases"]],
                    f"{work} sum ms": [p.get("kernel_ns", 0) / 1e6 for p in facts["phases"]],
                }
            ),
            most_px=320,
            alt=f"{work.capitalize()} time of a step by phase",
        )


def _of(ns: float, period: float | None) -> str:
    share = f" ({percent(ns / period)} of the step)" if period else ""
    return f"{duration(ns)}{share}"


def _host(by_step: StepView) -> None:
    st.markdown("**What the host did while the GPU waited**")
    rows = by_step.idle_host
    if not len(rows):
        st.caption("Unknown: no launch calls were recorded, or the GPU never waited.")
        return
    shares = host_share(rows)
    idle = float(rows["idle_frac"].sum())
    parts = ", ".join(f"{percent(share)} {words}" for words, share in shares)
    st.markdown(plain_markdown(f"Idle {percent(idle)}: {parts}."))
    shown = rows.head(_TOP)
    labels = [
        r.activity if not isinstance(r.call, str) or r.call == r.activity
        else f"{r.call} in {r.activity}"
        for r in shown.itertuples()
    ]  # fmt: skip
    chart(
        step_charts.idle_activities(
            shown.assign(label=labels, words=[GROUPS[g] for g in shown["group"]])
        ),
        alt="Idle time of a step by what the host did",
    )


def _all_steps(frame: pd.DataFrame, *, is_cpu: bool = False) -> None:
    with st.expander(f"All steps ({len(frame)})"):
        table = pd.DataFrame(
            {
                "process": frame["process"],
                "step": frame["step"],
                "kernels": frame["num_kernels"],
                "launches": frame["num_launches"],
                "kernel ms": frame["kernel_ns"] / 1e6,
                "graph ms": frame["graph_ns"] / 1e6,
                "busy ms": frame["busy_ns"] / 1e6,
                "time ms": frame["period_ns"].astype("Float64") / 1e6,
                "copied": [bytes_(b) for b in frame["transfer_bytes"]],
                "API calls": frame["num_api_calls"],
                "left out": frame["reason"],
            }
        )
        if is_cpu:
            table = table.drop(columns=["launches", "busy ms", "copied", "API calls"])
            table = table.rename(columns={"kernels": "operators", "kernel ms": "operators ms"})
        if table["process"].nunique() < 2:
            table = table.drop(columns="process")
        if not table["graph ms"].any():
            table = table.drop(columns="graph ms")
        show_table(
            table,
            most_px=420,
            alt="Every step with its figures",
        )
