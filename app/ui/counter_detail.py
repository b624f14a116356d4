"""One launch that ncu measured: why its warps wait, hit rates, what moves between memories."""

import pandas as pd
import streamlit as st

from analysis.classify import distinct_labels
from analysis.readers.ncu.details import HITS, MEMORY, SCHEDULER, TRAFFIC, WAITS
from analysis.runview import RunView
from app.ui import style
from app.ui.format import bytes_, duration, percent
from app.ui.widgets import KERNEL_CHARS, show_table

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


def _records(rows: pd.DataFrame) -> list[dict[str, str]]:
    return rows[["name", "value", "unit"]].to_dict("records")  # type: ignore[return-value]


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
            unit: [f"{v:,.4g}" for v in rows["value"]],
        }
    )
    show_table(table, alt="Why the warps of this launch wait, the longest first")


def _told(value: float, unit: str) -> str:
    if unit == "%":
        return percent(value / 100)
    if unit == "byte":
        return bytes_(value)
    return f"{value:,.4g} {unit}".rstrip()
