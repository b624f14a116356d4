"""Where a run's time went: kernels, phases, timeline, host calls and transfers."""

import pandas as pd
import streamlit as st

from analysis.definitions import tooltip
from analysis.runview import RunView
from app.charts import kernels as kernel_charts
from app.charts import phases as phase_charts
from app.ui import data, style
from app.ui.format import bytes_, duration, percent, scaled
from app.ui.shape import class_shares, kernel_shares, merged_phases, num_iterations
from app.ui.timeline import draw_timeline
from app.ui.widgets import chart, plain_markdown, show_table, table_height

_TOP = 15


def kernels(view: RunView) -> None:
    """Draw kernels by time, with their classes and the share that no rule recognises."""
    if view.kernels.empty:
        style.empty_state(
            "No kernels recorded",
            "This run has neither an nsys nor a PyTorch trace pass. Run it again with one.",
        )
        return
    shares = kernel_shares(view.kernels)
    iterations = num_iterations(view.phases)
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.markdown("**Longest kernels**")
        chart(
            kernel_charts.top_kernels(shares.head(_TOP)),
            alt=f"The {min(_TOP, len(shares))} kernels with most total time",
        )
    with right:
        by = st.segmented_control(
            "Share by", ["category", "origin"], default="category", key="share_by", required=True
        )
        chart(
            kernel_charts.shares(class_shares(view.kernels, str(by)), by=str(by)),
            alt=f"Share of kernel time by {by}",
        )
    st.caption(_recognised(view))
    kernel_table(shares, iterations)


def _recognised(view: RunView) -> str:
    frac = view.summary.get("unclassified_frac")
    share = percent(frac) if frac is not None else "an unknown share"
    what = "operators' self time" if view.primary_pass == "trace" else "kernel time"
    return f"Classes come from names: {share} of the {what} is not recognised by any rule."


def kernel_table(
    shares: pd.DataFrame, iterations: int | None, *, key: str = "kernels", height: int | None = None
) -> None:
    """Draw one row a kernel and launch shape."""
    per = float(iterations) if iterations else None
    table = pd.DataFrame(
        {
            "kernel": shares["short_name"],
            "category": shares["category"],
            "origin": shares["origin"],
            "share": 100 * shares["share_frac"],
            "total ms": shares["total_ns"] / 1e6,
            "launches": shares["count"],
            "mean \u00b5s": shares["mean_ns"] / 1e3,
            "min \u00b5s": shares["min_ns"] / 1e3,
            "max \u00b5s": shares["max_ns"] / 1e3,
            "grid": shares["grid"],
            "block": shares["block"],
            "registers": shares["registers"],
            "shared B": shares["shared_bytes"],
            "confidence": shares["confidence"],
            "rule": shares["rule"],
            "full name": shares["name"],
        }
    )
    if per:
        table.insert(6, "\u00b5s / iteration", shares["total_ns"] / 1e3 / per)
    number = st.column_config.NumberColumn
    show_table(
        table,
        key=key,
        height=height or table_height(table, 640),
        column_config={
            "kernel": st.column_config.TextColumn(width="large"),
            "share": st.column_config.ProgressColumn(
                "share", format="%.1f %%", min_value=0, max_value=100, width=130
            ),
            "total ms": number(format="%.4g"),
            "\u00b5s / iteration": number(format="%.4g"),
            "mean \u00b5s": number(format="%.4g"),
            "min \u00b5s": number(format="%.4g"),
            "max \u00b5s": number(format="%.4g"),
            "confidence": number(format="%.2f", help="How sure the rule is of the class"),
            "full name": st.column_config.TextColumn(width="small"),
        },
        alt="Kernels by total time",
    )


def phases(view: RunView) -> None:
    """Draw the three kinds of phase time, and how kernels were given to phases."""
    if view.phases.empty:
        style.empty_state("No ranges recorded", "The program marked no NVTX or profiler ranges.")
        return
    merged = merged_phases(view.phases)
    depth = merged["path"].str.count("/")
    shown = merged[depth <= 3].head(16)
    chart(
        phase_charts.phase_times(shown.assign(label=shown["path"].str.rsplit("/").str[-1])),
        alt="Host range, GPU projection and kernel sum of each phase",
    )
    used = sorted(set(merged["attribution"]))
    st.caption(" ".join(_ATTRIBUTION[a] for a in used if a in _ATTRIBUTION))
    show_table(
        pd.DataFrame(
            {
                "phase": merged["label"],
                "ranges": merged["num_ranges"],
                "host range ms": _ms(merged["host_ns"]),
                "GPU projection ms": _ms(merged["projected_ns"]),
                "kernel sum ms": _ms(merged["kernel_ns"]),
                "kernels": merged["num_kernels"],
                "given by": merged["attribution"],
                "process": merged["process"],
                "path": merged["path"],
            }
        ),
        height=table_height(merged, 640),
        column_config={
            c: st.column_config.NumberColumn(format="%.4g", help=h)
            for c, h in (
                ("host range ms", tooltip("phases.host_ns")),
                ("GPU projection ms", tooltip("phases.projected_ns")),
                ("kernel sum ms", tooltip("phases.kernel_ns")),
            )
        },
        alt="Phases with host, projected and kernel time",
    )


_ATTRIBUTION = {
    "launch_thread": "Kernels belong to the range open on the thread that launched them.",
    "process_time": "Backward kernels are launched by autograd's own thread: they belong to the "
    "range of the same process that was open when they were launched.",
    "device_time": "This trace has no launches: kernels belong to the range open when they ran.",
}


def _ms(values: pd.Series) -> pd.Series:
    return pd.to_numeric(values, errors="coerce").astype("float64") / 1e6


def timeline(view: RunView) -> None:
    """Draw the kernel timeline; a click selects a kernel in the table below it."""
    found = data.fetch_timeline(view)
    if found is None:
        style.empty_state(
            "No timeline stored", "This run has no per-launch records: no trace or nsys pass."
        )
        return
    _timeline_part(view, found)


@st.fragment
def _timeline_part(view: RunView, found: object) -> None:
    key = f"timeline_{view.run.id}"
    state = st.session_state.get(key) or {}
    raw = state.get("window")
    asked = (float(raw[0]), float(raw[1])) if raw else None
    whole = asked is None or asked[1] - asked[0] >= 0.999 * found.extent_ns  # type: ignore[attr-defined]
    asked = None if whole else asked
    _, selected = draw_timeline(
        found,  # type: ignore[arg-type]
        data.timeline_window(found, asked),  # type: ignore[arg-type]
        categories=dict(zip(view.kernels["name"], view.kernels["category"], strict=True)),
        short_names=dict(zip(view.kernels["name"], view.kernels["short_name"], strict=True)),
        key=key,
        asked=asked,
    )
    rows = kernel_shares(view.kernels)
    if selected is not None and selected in set(rows["name"]):
        rows = rows[rows["name"] == selected]
        st.markdown(f"**Selected:** {plain_markdown(str(rows['short_name'].iloc[0]))}")
    else:
        rows = rows.head(_TOP)
        st.caption("Click a kernel to see its figures here.")
    kernel_table(rows, num_iterations(view.phases), key="timeline_kernels")


def host(view: RunView) -> None:
    """Draw host calls, idle time by cause, and transfers."""
    if view.api_calls.empty and view.transfers.empty and view.gaps.empty:
        style.empty_state("No host calls recorded", "The capture holds no API or copy table.")
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
            for gap in view.gaps.itertuples():
                st.caption(plain_markdown(f"{gap.cause}: {gap.evidence}"))
    _transfers(view.transfers)
    if not view.api_calls.empty:
        with st.expander("All host calls"):
            show_table(_call_table(view.api_calls), alt="Host API calls")


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
