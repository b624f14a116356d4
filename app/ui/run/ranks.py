"""The ranks of a run: one bar each, their collectives, and who was late."""

import pandas as pd
import streamlit as st

from analysis.definitions import tooltip
from analysis.runview import RunView
from analysis.verdict.ranks import kind_words, place_words
from app.charts import ranks as rank_charts
from app.ui import style
from app.ui.format import bytes_, duration, percent
from app.ui.tables import show_table
from app.ui.widgets import chart, plain_markdown

_WORST = 10
_CLOCKS = {
    "same": "its own",
    "collectives": "by collectives",
    "stated": "by the file's UTC time",
    "none": "on its own time axis",
}


def ranks(view: RunView) -> None:
    """Draw the ranks of a run; a single one too, where it communicates."""
    rows = pd.DataFrame(view.ranks.get("ranks", []))
    if rows.empty:
        style.empty_state("No ranks recorded", _why_none(view))
        return
    missing = view.ranks.get("missing", [])
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        st.caption(f"Not here: rank {shown}.")
    _bars(rows)
    _steps(view, rows)
    _collectives(view)
    with st.expander("All ranks" if len(rows) > rank_charts.MAX_BARS else "Figures of each rank"):
        _table(rows)


def _why_none(view: RunView) -> str:
    if view.run.params.get("gpus", 1) != 1:
        return "Ranks come from GPU work in the profiled passes; this run has none."
    return "This needs a profiled pass with GPU work: a timeline of each rank."


def _bars(rows: pd.DataFrame) -> None:
    st.markdown("**Where each rank's time went**")
    if len(rows) <= rank_charts.MAX_BARS:
        chart(rank_charts.rank_bars(rows), alt="Compute, exposed communication and idle by rank")
        return
    left, right = st.columns(2, gap="large")
    with left:
        chart(rank_charts.rank_spread(rows), alt=f"Spread of the shares over {len(rows)} ranks")
    with right:
        late = _column(rows, "late_ns").astype("Float64").fillna(0)
        others = _WORST - 1 if late.any() else _WORST
        first = "The latest rank, and the" if late.any() else "The"
        st.markdown(f"**{first} {others} ranks with the most exposed communication and idle time**")
        lost = rows["exposed_ns"] + rows["idle_ns"]
        chosen = [late.idxmax()] if late.any() else []
        worst = rows.loc[[*chosen, *lost.drop(chosen).nlargest(others).index]]
        chart(rank_charts.rank_bars(worst), alt=f"The {_WORST} worst ranks")


def _steps(view: RunView, rows: pd.DataFrame) -> None:
    steps = pd.DataFrame(view.ranks.get("steps", []))
    if len(rows) < 2:
        return
    st.markdown(
        "**How far apart the ranks were, by step**",
        help=plain_markdown(tooltip("rank_steps.waited_ns")),
    )
    if steps.empty:
        why = "Not known: "
        why += (
            "their clocks could not be aligned."
            if not view.ranks.get("is_aligned")
            else "no step contains a collective that all of them share."
        )
        st.caption(why)
        return
    chart(rank_charts.step_skew(steps), alt="Skew and waiting for the straggler by step")
    marked = steps.assign(is_told=_column(steps, "where").notna())
    worst = marked.sort_values(["waited_ns", "is_told"], kind="stable").iloc[-1]
    where = worst.get("where")
    place = f", in {place_words(where)}" if isinstance(where, str) else ""
    st.caption(
        f"Longest in step {worst['step']}: all others waited {duration(worst['waited_ns'])} for "
        f"rank {worst['straggler']}{place}."
    )


def _collectives(view: RunView) -> None:
    st.markdown("**Collectives**")
    rows = pd.DataFrame(view.ranks.get("collectives", []))
    if rows.empty:
        st.caption("None recorded.")
        return
    table = pd.DataFrame(
        {
            "kind": [kind_words(kind) for kind in rows["kind"]],
            "group": _column(rows, "group"),
            "ranks": _column(rows, "group_size"),
            "size": [bytes_(b) for b in _column(rows, "num_bytes")],
            "calls": rows["num_calls"],
            "total ms": rows["total_ns"] / 1e6,
            "exposed ms": rows["exposed_ns"] / 1e6,
            "median \u00b5s": rows["median_ns"] / 1e3,
            "algorithm GB/s": _column(rows, "algorithm_gbps"),
            "bus GB/s": _column(rows, "bus_gbps"),
            "waiting ms": _column(rows, "wait_ns") / 1e6,
            "bus GB/s of the transfer": _column(rows, "transfer_bus_gbps"),
        }
    ).dropna(axis="columns", how="all")
    show_table(table, alt="Collectives by kind, group and size")
    passed = view.ranks.get("collectives_pass")
    other = f" Sizes come from the {passed} pass." if passed != view.primary_pass else ""
    if "bus GB/s" in table:
        st.caption(plain_markdown(f"Bus bandwidth: {tooltip('collectives.bus_gbps')}{other}"))
    else:
        st.caption(
            "Sizes and bandwidths are unknown: they need a PyTorch trace, or "
            "nsys with NCCL's payloads (imported with --keep-private)."
        )


def _column(rows: pd.DataFrame, name: str) -> pd.Series:
    if name in rows:
        return rows[name]
    return pd.Series([float("nan")] * len(rows), index=rows.index)


def _table(rows: pd.DataFrame) -> None:
    table = pd.DataFrame(
        {
            "rank": rows["rank"],
            "GPU": rows["device"],
            "kernels": rows["num_kernels"],
            "span ms": rows["span_ns"] / 1e6,
            "compute ms": rows["compute_ns"] / 1e6,
            "communication ms": rows["communication_ns"] / 1e6,
            "exposed ms": rows["exposed_ns"] / 1e6,
            "covered by compute": [percent(v) for v in _column(rows, "overlap_frac")],
            "idle ms": rows["idle_ns"] / 1e6,
            "pipeline stage": _column(rows, "stage"),
            "pipeline bubble ms": _column(rows, "bubble_ns") / 1e6,
            "waiting ms": _column(rows, "wait_ns") / 1e6,
            "late ms": _column(rows, "late_ns") / 1e6,
            "clock": [_CLOCKS.get(c, c) for c in rows["clock"]],
            "offset ms": _column(rows, "offset_ns") / 1e6,
            "drift ppm": _column(rows, "drift_ppm"),
            "residual \u00b5s": _column(rows, "residual_ns") / 1e3,
            "file": rows["file_name"],
        }
    ).dropna(axis="columns", how="all")
    show_table(table, alt="Figures of each rank")
