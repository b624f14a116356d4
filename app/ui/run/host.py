"""What the host did in a run: API calls, why the GPU was idle, transfers."""

import re

import pandas as pd
import streamlit as st

from analysis.per_step import Basis, basis_of, calls_of_one, transfers_of_one
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts import phases as phase_charts
from app.ui import style
from app.ui.format import bytes_, duration, scaled, time_unit, with_micro
from app.ui.tables import show_table
from app.ui.widgets import chart
from core.numbers import decimal

_ONE = re.compile(r"\b1 gaps")


def host(view: RunView) -> None:
    """Draw host calls, idle time by cause, and transfers."""
    if view.api_calls.empty and view.transfers.empty and view.gaps.empty:
        why = "A CPU run has no CUDA calls and no transfers to a GPU."
        why = why if is_cpu_run(view) else "The capture has no table of API calls or copies."
        style.empty_state("No host calls recorded", why)
        return
    basis = basis_of(view)
    calls, moved = calls_of_one(view), transfers_of_one(view)
    if basis is not None and (len(calls) or len(moved)):
        st.caption(f"Per {basis.word}, mean of {basis.told}; the whole capture is below.")
    drawn = view.api_calls
    if len(calls):
        waits = view.api_calls.set_index("name")["is_sync"]
        drawn = calls.assign(is_sync=calls["name"].map(waits).fillna(False).astype(bool))
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("**Host calls**")
        if view.api_calls.empty:
            st.caption("Not recorded.")
        else:
            chart(phase_charts.host_calls(drawn.head(14)), alt="Time in host API calls")
    with right:
        st.markdown("**Why the GPU was idle**")
        if view.gaps.empty:
            st.caption("Unknown: the capture has no gaps between kernels or no launches.")
        else:
            of_step = pd.DataFrame(view.by_step.facts.get("gaps") or []).assign(count=0)
            shown = of_step if len(of_step) else view.gaps
            chart(phase_charts.idle_causes(shown), alt="Idle time by cause")
            gaps = zip(view.gaps["cause"], view.gaps["evidence"], strict=True)
            style.facts([(cause, with_micro(_ONE.sub("1 gap", why))) for cause, why in gaps])
    _transfers(view.transfers, moved, basis)
    if not view.api_calls.empty:
        with st.expander("All host calls"):
            show_table(_call_table(view.api_calls, calls, basis), alt="Host API calls")


def _transfers(transfers: pd.DataFrame, moved: pd.DataFrame, basis: Basis | None) -> None:
    st.markdown("**Transfers**")
    if transfers.empty:
        st.caption("None recorded.")
        return
    keys = ["kind", "src", "dst"]
    of_one = {tuple(row[:3]): row[3:] for row in moved.itertuples(index=False, name=None)}
    mine = [of_one.get(tuple(row), (0, 0, 0)) for row in transfers[keys].itertuples(index=False)]
    seconds = transfers["total_ns"] / 1e9
    table = pd.DataFrame(
        {
            "kind": transfers["kind"],
            "from": transfers["src"],
            "to": transfers["dst"],
            **_of_one(mine, basis if len(moved) else None),
            "count": transfers["count"],
            "size": [bytes_(b) for b in transfers["bytes"]],
            "time": [duration(t) for t in transfers["total_ns"]],
            "rate": [
                scaled(b / s, "B/s") if s and pd.notna(b) else "\u2014"
                for b, s in zip(transfers["bytes"], seconds, strict=True)
            ],
        }
    )
    show_table(table, alt="Transfers by kind")


def _of_one(mine: list[tuple[float, ...]], basis: Basis | None) -> dict[str, list[str]]:
    """Return the columns of what a step moves; {} where it is not known."""
    if basis is None:
        return {}
    word = basis.word
    return {
        f"count / {word}": [decimal(row[0]) for row in mine],
        f"size / {word}": [bytes_(row[1]) for row in mine],
        f"time / {word}": [duration(row[2]) for row in mine],
    }


def _call_table(calls: pd.DataFrame, of_one: pd.DataFrame, basis: Basis | None) -> pd.DataFrame:
    mine = of_one.set_index("name").reindex(calls["name"]).fillna(0)
    word = basis.word if basis is not None and len(of_one) else None
    unit, unit_ns = time_unit(calls["max_ns"], "\u00b5s")
    total, total_ns = time_unit(calls["total_ns"], "ms")
    of_step = {f"{unit} / {word}": mine["total_ns"].to_numpy(float) / unit_ns} if word else {}
    return pd.DataFrame(
        {
            "call": calls["name"],
            **({f"count / {word}": mine["count"].to_numpy(float)} if word else {}),
            **of_step,
            "count": calls["count"],
            f"total {total}": calls["total_ns"] / total_ns,
            f"longest {unit}": calls["max_ns"] / unit_ns,
            "failed": calls["num_failed"],
            "waits": calls["is_sync"].astype(bool),
        }
    )
