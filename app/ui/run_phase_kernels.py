"""Kernels by phase: the time of each class in each phase, and the kernels of a chosen one."""

import pandas as pd
import streamlit as st

from analysis.classify import distinct_labels
from analysis.runview import RunView
from app.charts import phases as phase_charts
from app.ui import data
from app.ui.colours import category_order
from app.ui.format import fixed_format
from app.ui.widgets import (
    KERNEL_CHARS,
    category_column,
    chart,
    kernel_column,
    show_table,
    table_height,
)

NO_PHASE = "(no phase)"


def phase_kernels(view: RunView) -> None:
    """Draw the sum by class and phase and the kernels of one phase; nothing without kernels."""
    rows, scope = _rows(view)
    if rows.empty:
        return
    st.subheader("Kernels by phase", anchor=False)
    st.caption(scope)
    by_class = class_sums(rows)
    unit = 1e6 if by_class["total_ns"].max() >= 2e5 else 1e3
    chart(
        phase_charts.classes_by_phase(by_class),
        alt="Kernel time of each phase, by class of kernel",
    )
    _class_table(by_class, unit)
    _kernels_of_phase(rows, unit)


def _rows(view: RunView) -> tuple[pd.DataFrame, str]:
    """Return phase, name, category, count, total_ns; and of what these are sums."""
    found, num_steps = data.fetch_phase_kernels(view)
    marked = found[found["phase"] != ""]
    passes = view.by_step.operator_kernels
    if marked["total_ns"].sum() < 0.5 * found["total_ns"].sum() and len(passes):
        found = passes.groupby(["pass", "kernel"], as_index=False)[["count", "total_ns"]].sum()
        found = found.rename(columns={"pass": "phase", "kernel": "name"})
        scope = (
            "The program marked no phases: these are the passes of its operators, whole capture."
        )
    elif marked.empty:
        return marked, ""
    else:
        scope = f"A step, mean of {num_steps}." if num_steps else "The whole capture."
        scope += (
            " A kernel is in the phase that launched it; a phase's parts are rows of their own."
        )
    classes = dict(zip(view.kernels["name"], view.kernels["category"], strict=True))
    found = found.assign(
        phase=found["phase"].replace("", NO_PHASE),
        category=found["name"].map(classes).fillna("unknown"),
    )
    return found.sort_values("total_ns", ascending=False), scope


def class_sums(rows: pd.DataFrame) -> pd.DataFrame:
    """Return phase, category, total_ns, the phases in order of time."""
    sums = rows.groupby(["phase", "category"], as_index=False)["total_ns"].sum()
    order = sums.groupby("phase")["total_ns"].sum().sort_values(ascending=False).index
    place = {name: i for i, name in enumerate(order)}
    return sums.sort_values(
        ["phase", "total_ns"],
        key=lambda c: c.map(place) if c.name == "phase" else -c,
        kind="stable",
        ignore_index=True,
    )


def _class_table(sums: pd.DataFrame, unit: float) -> None:
    table = sums.pivot(index="phase", columns="category", values="total_ns") / unit
    table = table.loc[sums["phase"].drop_duplicates(), category_order(list(table.columns))]
    table.insert(0, "all", table.sum(axis=1))
    table.loc["all phases"] = table.sum()
    names = "ms" if unit == 1e6 else "\u00b5s"
    table = table.rename(columns=lambda c: f"{c} {names}").rename_axis("phase").reset_index()
    numbers = [c for c in table if c != "phase"]
    show_table(
        table,
        height=table_height(table, 420),
        column_config={
            "phase": st.column_config.TextColumn(width=240),
            **{
                c: st.column_config.NumberColumn(format=fixed_format(table[c], most=3))
                for c in numbers
            },
        },
        alt="Kernel time by phase and class",
    )


def _kernels_of_phase(rows: pd.DataFrame, unit: float) -> None:
    phases = list(dict.fromkeys(rows["phase"]))
    above = {"/".join(p.split("/")[: i + 1]) for p in phases for i in range(p.count("/"))}
    options = sorted({*phases, *above}, key=lambda p: (p == NO_PHASE, p))
    chosen = st.selectbox("Kernels of the phase", options, key="kernels_of_phase")
    own = rows[(rows["phase"] == chosen) | rows["phase"].str.startswith(f"{chosen}/")]
    sums = own.groupby(["name", "category"], as_index=False, sort=False)[
        ["count", "total_ns"]
    ].sum()
    sums = sums.sort_values("total_ns", ascending=False)
    whole = float(sums["total_ns"].sum()) or 1.0
    time = "ms" if unit == 1e6 else "\u00b5s"
    table = pd.DataFrame(
        {
            "kernel": sums["name"].map(distinct_labels(tuple(sums["name"]), KERNEL_CHARS)),
            "category": [[c] for c in sums["category"]],
            "share": 100 * sums["total_ns"] / whole,
            time: sums["total_ns"] / unit,
            "launches": sums["count"],
            "mean \u00b5s": sums["total_ns"] / sums["count"] / 1e3,
            "full name": sums["name"],
        }
    )
    number = st.column_config.NumberColumn
    show_table(
        table,
        height=table_height(table, 420),
        column_config={
            "kernel": kernel_column(),
            "category": category_column(sums["category"]),
            "share": number("share of the phase", format="%.1f %%"),
            time: number(format=fixed_format(table[time], most=3)),
            "launches": number(format="%.4g"),
            "mean \u00b5s": number(format=fixed_format(table["mean \u00b5s"], most=2)),
            "full name": st.column_config.TextColumn(width="small"),
        },
        alt="Kernels of the chosen phase",
    )
