"""What the host did in a run: API calls, why the GPU was idle, transfers."""

import re

import pandas as pd
import streamlit as st

from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts import phases as phase_charts
from app.ui import style
from app.ui.format import bytes_, duration, fixed_format, scaled, with_micro
from app.ui.widgets import chart, show_table

_ONE = re.compile(r"\b1 gaps")


def host(view: RunView) -> None:
    """Draw host calls, idle time by cause, and transfers."""
    if view.api_calls.empty and view.transfers.empty and view.gaps.empty:
        why = "A CPU run makes no CUDA calls and moves nothing to a GPU."
        why = why if is_cpu_run(view) else "The capture holds no API or copy table."
        style.empty_state("No host calls recorded", why)
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Host calls**")
        if view.api_calls.empty:
            st.caption("Not recorded.")
        else:
            chart(phase_charts.host_calls(view.api_calls.head(14)), alt="Time in host API calls")
    with right:
        st.markdown("**Why the GPU was idle**")
        if view.gaps.empty:
            st.caption("Not known: the capture has no gaps between kernels or no launches.")
        else:
            chart(phase_charts.idle_causes(view.gaps), alt="Idle time by cause")
            gaps = zip(view.gaps["cause"], view.gaps["evidence"], strict=True)
            style.facts([(cause, with_micro(_ONE.sub("1 gap", why))) for cause, why in gaps])
    _transfers(view.transfers)
    if not view.api_calls.empty:
        with st.expander("All host calls"):
            calls = _call_table(view.api_calls)
            show_table(
                calls,
                column_config={
                    c: st.column_config.NumberColumn(format=fixed_format(calls[c]))
                    for c in ("total ms", "longest \u00b5s")
                },
                alt="Host API calls",
            )


def _transfers(transfers: pd.DataFrame) -> None:
    st.markdown("**Transfers**")
    if transfers.empty:
        st.caption("None recorded.")
        return
    seconds = transfers["total_ns"] / 1e9
    table = pd.DataFrame(
        {
            "kind": transfers["kind"],
            "from": transfers["src"],
            "to": transfers["dst"],
            "count": transfers["count"],
            "size": [bytes_(b) for b in transfers["bytes"]],
            "time": [duration(t) for t in transfers["total_ns"]],
            "rate": [
                scaled(b / s, "B/s") if s and pd.notna(b) else "\u2014"
                for b, s in zip(transfers["bytes"], seconds, strict=True)
            ],
        }
    )
    right = st.column_config.TextColumn(alignment="right")
    config = {c: right for c in ("size", "time", "rate")}
    show_table(table, column_config=config, alt="Transfers by kind")


def _call_table(calls: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "call": calls["name"],
            "count": calls["count"],
            "total ms": calls["total_ns"] / 1e6,
            "longest \u00b5s": calls["max_ns"] / 1e3,
            "failed": calls["num_failed"],
            "waits": calls["is_sync"].astype(bool),
        }
    )
