"""A run's hardware counters and its roofline.

Of a chosen launch: why its warps wait, hit rates, what moves between memories.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from analysis.classify import distinct_labels, label
from analysis.readers.ncu.details import HITS, MEMORY, SCHEDULER, TRAFFIC, WAITS
from analysis.roofline import (
    CEILING_COLUMNS,
    LEVELS,
    ceilings,
    cost_point,
    counter_points,
    dtypes_in_use,
    l2_ceilings,
    operator_points,
)
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts.roofline import roofline
from app.ui import style
from app.ui.format import bytes_, duration, many, percent, significant
from app.ui.kernel_detail import kernel_link
from app.ui.tables import KERNEL_CHARS, show_table
from app.ui.widgets import chart, plain_markdown
from core.plain_text import escape


def counters(view: RunView) -> None:
    """Draw the roofline, one row a profiled launch, and what the tool's rules say."""
    _roofline_part(view)
    if view.counters.empty:
        style.empty_state(
            "No hardware counters",
            "Counters exist only for NVIDIA GPUs; this run was on a CPU."
            if is_cpu_run(view)
            else "Run it again with the ncu pass; the GPUs page shows whether counters are "
            "permitted.",
        )
        return
    _coverage(view)
    _table(by_share(view.counters, view.kernels))
    launch_detail(view)
    hot_instructions(view)
    _rules(view)


def _declared(view: RunView) -> str | None:
    dtype = view.cost.get("flops_dtype") or view.run.params.get("dtype")
    return str(dtype) if dtype else None


def roofs(view: RunView) -> pd.DataFrame:
    """Return the roofs of every kind of number that this run's matrix kernels use.

    bf16 where nothing names a dtype. A dtype without a known peak has no roof.
    """
    used = dtypes_in_use(view.kernels, _declared(view)) or ["bf16"]
    known = [ceilings(view.peaks, view.run.gpu_model, dtype) for dtype in used]
    every_roof = pd.concat(known, ignore_index=True)
    same = ["source", "bytes_per_s", "flops_per_s", "ridge"]
    joined = every_roof.groupby(same, sort=False)["dtype"].agg(" and ".join).reset_index()
    return joined[list(CEILING_COLUMNS)]


def model_point(view: RunView) -> tuple[str, float, float] | None:
    """Return the whole iteration by the cost model and the clean latency; None if unknown."""
    latency = view.summary.get("latency_ms")
    median_ms = latency.get("median") if isinstance(latency, dict) else None
    point = cost_point(view.cost, median_ms * 1e6 if median_ms else None)
    return (view.run.name, *point) if point else None


def _roofline_part(view: RunView) -> None:
    shaped = operator_points(view.by_step.operators, view.by_step.operator_kernels, _declared(view))
    model = model_point(view)
    known = roofs(view)
    by_level = {name: counter_points(view.counters, name) for name in LEVELS}
    level = _level([name for name, points in by_level.items() if len(points)])
    points = by_level[level]
    if level != "DRAM":  # shapes and cost models say what DRAM must move, not what the cache does
        shaped, model, known = shaped.iloc[:0], None, l2_ceilings(known, view.counters)
    if points.empty and model is None and shaped.empty:
        counted = "counters of floating-point work and DRAM traffic, or "
        st.caption(
            f"No roofline: it needs {'' if is_cpu_run(view) else counted}a workload with a cost "
            "model and a measured latency."
        )
        return
    chart(
        roofline(points, known, [model] if model else [], operators=shaped),
        alt="Throughput against arithmetic intensity, under measured and datasheet ceilings",
    )
    circles = "" if points.empty else "Circles: kernels, from counters; area is time. "
    triangles = (
        ""
        if shaped.empty
        else ("Triangles: operators, from recorded shapes, counting each input and output once. ")
    )
    diamond = "Diamond: the whole iteration, from the cost model and the clean latency."
    st.caption(circles + triangles + (diamond if model else ""))
    _without_place(view, points, level)
    if known.empty:
        device = "a CPU" if is_cpu_run(view) else "this GPU"
        st.caption(
            f"No ceilings: the peaks of {device} are neither measured nor in the datasheet table."
        )


def _level(known: list[str]) -> str:
    """Return the level of memory to draw, a choice where the counters know several."""
    if len(known) < 2:
        return known[0] if known else "DRAM"
    return str(
        st.segmented_control(
            "Traffic with", known, default=known[0], key="roofline_level", required=True
        )
    )


def _without_place(view: RunView, points: pd.DataFrame, level: str) -> None:
    """Say how much of the profiled time has no place in the chart, and why."""
    if view.counters.empty or len(points) == len(view.counters):
        return
    flops = view.counters["flops"]
    no_work, unknown = int((flops == 0).sum()), int(flops.isna().sum())
    parts = []
    if no_work:
        parts.append(f"{many(no_work, 'launch')} without floating-point work")
    if unknown:
        parts.append(
            f"{many(unknown, 'launch')} whose tensor-core operations were not counted: a new ncu "
            "pass counts them"
        )
    if level != "DRAM" and not parts:
        parts.append(f"launches without counters of {level} traffic")
    if parts:
        st.caption(f"Not in the chart: {', '.join(parts)}.")


def _coverage(view: RunView) -> None:
    for warning in view.warnings:
        if warning.code in ("ncu_partial_coverage", "uneven_counters"):
            st.caption(plain_markdown(warning.message))
    names = set(view.counters["name"]) | set(view.counters["short_name"])
    if view.kernels.empty:
        return
    mine = view.kernels["name"].isin(names) | view.kernels["short_name"].isin(names)
    whole = float(view.kernels["total_ns"].sum()) or 1.0
    share = float(view.kernels.loc[mine, "total_ns"].sum()) / whole
    st.caption(
        f"Counters were collected for {len(view.counters)} launches; kernels of these names are "
        f"{percent(share)} of this run's kernel time."
    )


_FIRST_RULES = 8


def by_share(counters: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the profiled launches with `share_frac`, the kernels with most time first.

    The share is that of all launches of the kernel in the run's kernel time, by its full name or,
    where the two tools write it differently, its label; unknown where the run has no timeline.
    """
    whole = float(kernels["total_ns"].sum()) if len(kernels) else 0.0
    if not whole:
        return counters.sort_values("duration_ns", ascending=False, kind="stable")
    share = pd.Series(float("nan"), index=counters.index)
    for key in (lambda f: f["name"], lambda f: f["name"].map(label), lambda f: f["short_name"]):
        sums = kernels.groupby(key(kernels))["total_ns"].sum() / whole
        share = share.fillna(key(counters).map(sums).astype(float))
    shown = counters.assign(share_frac=share)
    return shown.sort_values(["share_frac", "duration_ns"], ascending=False, kind="stable")


_LABELS = {
    "short_name": "kernel",
    "category": "category",
    "share_frac": "share %",
    "duration_ns": "\u00b5s",
    "sm_pct": "SM %",
    "memory_pct": "memory %",
    "dram_pct": "DRAM %",
    "l2_pct": "L2 %",
    "occupancy_pct": "occupancy %",
    "theoretical_occupancy_pct": "theoretical %",
    "waves_per_sm": "waves / SM",
    "dram_bytes": "DRAM MB",
    "l2_bytes": "L2 MB",
    "flops": "MFLOP",
    "grid": "grid",
    "block": "block",
    "registers": "registers",
    "path": "range",
}


_SCALES = {"\u00b5s": 1e3, "DRAM MB": 1e6, "L2 MB": 1e6, "MFLOP": 1e6, "share %": 0.01}


def _table(counters: pd.DataFrame) -> None:
    kept = [c for c in _LABELS if c in counters and counters[c].notna().any()]
    table = counters[kept].rename(columns=_LABELS).assign(kernel=counters["name"])
    for column in _SCALES.keys() & set(table):
        table[column] /= _SCALES[column]
    show_table(
        table,
        helps={"share %": "of the run's kernel time, all launches of this kernel"},
        most_px=560,
        alt="Counters of each profiled launch",
    )


def _rules(view: RunView) -> None:
    if view.rules.empty:
        return
    st.markdown("**What Nsight Compute says**")
    ordered = ranked_rules(view.rules, view.counters, view.kernels)
    st.caption(
        "Largest gain for the run first: the kernel's estimated gain times its "
        "share of GPU time. Messages that differ only in their numbers are "
        "merged and show the largest."
    )
    rows = longest_names(view.kernels)
    _messages(ordered.head(_FIRST_RULES), rows)
    if len(ordered) > _FIRST_RULES:
        with st.expander(f"{len(ordered) - _FIRST_RULES} more, of less gain"):
            _messages(ordered.iloc[_FIRST_RULES:], rows)


def longest_names(kernels: pd.DataFrame) -> Mapping[str, str]:
    """Return short name -> whole name, of the instance that takes the most time."""
    if kernels.empty:
        return {}
    by_time = kernels.groupby(["short_name", "name"])["total_ns"].sum().sort_values()
    return {str(short): str(name) for short, name in by_time.index}


def ranked_rules(
    rules: pd.DataFrame, counters: pd.DataFrame, kernels: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per kernel and message, by the gain for the whole run; unknown gains last.

    Columns: kernel, rule, message, launches, speedup [%], share_frac (NaN where unknown), gain.
    """
    short = dict(zip(counters["name"], counters["short_name"], strict=True))
    named = rules.assign(
        kernel=rules["kernel"].map(short).fillna(rules["kernel"]),
        alike=rules["message"].astype(str).str.replace(r"[\d.,]+", "#", regex=True),
    ).sort_values("estimated_speedup_pct", ascending=False, na_position="last")
    ordered = named.groupby(["kernel", "rule", "alike"], sort=False, dropna=False).agg(
        message=("message", "first"),
        launches=("launch", "nunique"),
        speedup=("estimated_speedup_pct", "max"),
    )
    ordered = ordered.reset_index()
    times = (
        kernels.groupby("short_name")["total_ns"].sum() if len(kernels) else pd.Series(dtype=float)
    )
    ordered["share_frac"] = ordered["kernel"].map(times / times.sum()).astype(float)
    ordered["gain"] = ordered["speedup"] * ordered["share_frac"].fillna(0.0)
    keys = ["gain", "speedup"]
    return ordered.sort_values(keys, ascending=False, na_position="last", kind="stable")


def _messages(rules: pd.DataFrame, rows: Mapping[str, str]) -> None:
    """Draw each message, with a link to its kernel's row among the kernels."""
    for number, rule in zip(rules.index, rules.to_dict("records"), strict=True):
        st.html(f'<div class="wb-said">{_rule(rule)}</div>')
        if name := rows.get(str(rule["kernel"])):
            kernel_link(name, "show it among the kernels", f"rule_{number}")


def _rule(rule: dict[str, Any]) -> str:
    facts = [str(rule["kernel"]), many(rule["launches"], "launch")]
    if pd.notna(rule["share_frac"]):
        facts.append(f"{percent(rule['share_frac'])} of the GPU time")
    if pd.notna(rule["speedup"]):
        facts.append(f"its estimated gain {rule['speedup']:.0f} %")
    details = f'<span class="wb-muted">{escape(", ".join(facts))}</span>'
    head = f"<b>{escape(str(rule['rule']))}</b>{details}"
    return f"<div>{head}</div><div>{escape(str(rule['message']))}</div>"


_TITLES = {
    HITS: "Cache hit rates",
    TRAFFIC: "Memory traffic",
    MEMORY: "Memory, share of peak",
    SCHEDULER: "Schedulers",
}


def launch_detail(view: RunView) -> None:
    """Draw the figures of one launch, the longest first; the ncu set decides how many there are."""
    details = view.counter_details
    launches = view.counters[view.counters["launch"].isin(set(details["launch"]))]
    launches = launches.sort_values("duration_ns", ascending=False, kind="stable")
    if launches.empty:
        return
    st.markdown("**One launch**")
    labels = distinct_labels(tuple(launches["name"]), KERNEL_CHARS)
    options = {
        int(row.launch): f"{labels[row.name]}, grid {row.grid}, {duration(row.duration_ns)}"
        for row in launches[["launch", "name", "grid", "duration_ns"]].itertuples(index=False)
    }
    chosen = st.selectbox(
        "Launch", list(options), format_func=lambda n: options[n], key="counter_launch"
    )
    mine = details[details["launch"] == chosen]
    left, right = st.columns(2, gap="large")
    with left:
        _waits(mine[mine["group"] == WAITS])
    with right:
        for group, title in _TITLES.items():
            rows = mine[mine["group"] == group]
            if len(rows):
                st.caption(title)
                style.facts([(r["name"], _told(r["value"], r["unit"])) for r in _records(rows)])


def hot_instructions(view: RunView) -> None:
    """Draw the instructions of one launch at which warps were seen most."""
    sources = view.counter_sources
    if sources.empty:
        return
    st.markdown("**Instructions at which warps stall**")
    first = sources.drop_duplicates("launch").set_index("launch")["kernel"]
    labels = distinct_labels(tuple(first), KERNEL_CHARS)
    chosen = st.selectbox(
        "Kernel",
        list(first.index),
        format_func=lambda n: f"{labels[first[n]]}, launch {n}",
        key="source_launch",
    )
    mine = sources[sources["launch"] == chosen]
    table = pd.DataFrame(
        {
            "share %": 100 * mine["share_frac"],
            "instruction": mine["instruction"],
            "mostly": mine["stall"],
            "samples": mine["samples"],
            "executed": mine["executed"],
            "number": mine["line"],
        }
    )
    show_table(
        table.dropna(axis="columns", how="all"),
        most_px=420,
        alt="Instructions of this launch with the most samples",
    )
    st.caption(
        f"The {len(mine)} with most samples, as on ncu's source page. A sample "
        "is attributed to the instruction the warp is about to issue, so the "
        "cause is often above it."
    )


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return rows[["name", "value", "unit"]].to_dict("records")


def _waits(rows: pd.DataFrame) -> None:
    if rows.empty:
        st.caption("Warp stall reasons need ncu's set `full` (`--ncu-set full`).")
        return
    unit = str(rows["unit"].iloc[0])
    st.caption(f"Warp stall reasons: {unit}. `selected` means issuing; everything else is a stall.")
    whole = float(rows["value"].sum()) or 1.0
    table = pd.DataFrame(
        {
            "reason": rows["name"],
            "share": [percent(v / whole) for v in rows["value"]],
            unit: [significant(v, 4) for v in rows["value"]],
        }
    )
    show_table(table, alt="Warp stall reasons of this launch, longest first")


def _told(value: float, unit: str) -> str:
    if unit == "%":
        return percent(value / 100)
    if unit == "byte":
        return bytes_(value)
    return f"{significant(value, 4)} {unit}".rstrip()
