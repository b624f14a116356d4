"""One launch that ncu measured: why its warps wait, hit rates, what moves between memories."""

from typing import Any

import pandas as pd
import streamlit as st

from analysis.classify import distinct_labels
from analysis.readers.ncu.details import HITS, MEMORY, SCHEDULER, TRAFFIC, WAITS
from analysis.runview import RunView
from app.ui import style
from app.ui.format import bytes_, duration, percent, significant
from app.ui.widgets import KERNEL_CHARS, show_table, table_height

_TITLES = {
    HITS: "Hits of the caches",
    TRAFFIC: "What moved between the memories",
    MEMORY: "Memory, of its peak",
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
    told = {
        int(row.launch): f"{labels[row.name]}, grid {row.grid}, {duration(row.duration_ns)}"
        for row in launches[["launch", "name", "grid", "duration_ns"]].itertuples(index=False)
    }
    chosen = st.selectbox("Launch", list(told), format_func=lambda n: told[n], key="counter_launch")
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
    found = view.counter_sources
    if found.empty:
        return
    st.markdown("**Instructions that warps wait at**")
    first = found.drop_duplicates("launch").set_index("launch")["kernel"]
    labels = distinct_labels(tuple(first), KERNEL_CHARS)
    chosen = st.selectbox(
        "Kernel",
        list(first.index),
        format_func=lambda n: f"{labels[first[n]]}, launch {n}",
        key="source_launch",
    )
    mine = found[found["launch"] == chosen]
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
        column_config={"share %": st.column_config.NumberColumn(format="%.1f")},
        height=table_height(table, 420),
        alt="Instructions of this launch with the most samples",
    )
    st.caption(
        f"The {len(mine)} with most samples, as ncu's source page gives them. A warp is counted at "
        "the instruction that it is about to issue, so the cause often stands above it."
    )


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return rows[["name", "value", "unit"]].to_dict("records")


def _waits(rows: pd.DataFrame) -> None:
    if rows.empty:
        st.caption("Why its warps wait is in ncu's set `full` (`--ncu-set full`).")
        return
    unit = str(rows["unit"].iloc[0])
    st.caption(f"Why its warps wait: {unit}. `selected` issues, everything else waits.")
    whole = float(rows["value"].sum()) or 1.0
    table = pd.DataFrame(
        {
            "reason": rows["name"],
            "share": [percent(v / whole) for v in rows["value"]],
            unit: [significant(v, 4) for v in rows["value"]],
        }
    )
    show_table(table, alt="Why the warps of this launch wait, the longest first")


def _told(value: float, unit: str) -> str:
    if unit == "%":
        return percent(value / 100)
    if unit == "byte":
        return bytes_(value)
    return f"{significant(value, 4)} {unit}".rstrip()
