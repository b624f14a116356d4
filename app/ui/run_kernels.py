"""Where a run's time went: kernels, phases, timeline."""

import pandas as pd
import streamlit as st

from analysis.definitions import tooltip
from analysis.runview import RunView
from app.charts import kernels as kernel_charts
from app.charts import phases as phase_charts
from app.ui import data, style
from app.ui.format import fixed_format, percent
from app.ui.perfetto import open_or_download
from app.ui.shape import class_shares, kernel_shares, merged_phases, num_iterations
from app.ui.timeline import draw_timeline
from app.ui.timeline_load import Timeline
from app.ui.widgets import category_column, chart, plain_markdown, show_table, table_height
from core.states import Pass

_TOP = 15


def kernels(view: RunView) -> None:
    """Draw kernels by time, with their classes and the share that no rule recognises."""
    if view.kernels.empty:
        style.empty_state("No kernels recorded", why_no_kernels(view))
        return
    shares = kernel_shares(view.kernels)
    kernel_table(shares, num_iterations(view.phases))
    st.caption(_recognised(view))
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


def why_no_kernels(view: RunView) -> str:
    """Return why there is no kernel to show, and what to do about it."""
    if view.primary_pass in (Pass.NSYS, Pass.TRACE):
        return "The capture holds none: the program used no GPU while it was recorded."
    return "It takes an nsys or a PyTorch trace pass: run again with one, or import its capture."


def _recognised(view: RunView) -> str:
    frac = view.summary.get("unclassified_frac")
    share = percent(frac) if frac is not None else "an unknown share"
    what = "operators' self time" if view.primary_pass == "trace" else "kernel time"
    return f"Classes come from names: {share} of the {what} is not recognised by any rule."


def kernel_table(
    shares: pd.DataFrame, iterations: int | None, *, key: str = "kernels", height: int | None = None
) -> None:
    """Draw one row a kernel and launch shape."""
    table = pd.DataFrame(
        {
            "kernel": shares["short_name"],
            "category": [[c] for c in shares["category"]],
            "share": 100 * shares["share_frac"],
            "\u00b5s / iteration": shares["total_ns"] / 1e3 / (iterations or 1),
            "launches / iteration": shares["count"] / (iterations or 1),
            "mean \u00b5s": shares["mean_ns"] / 1e3,
            "min \u00b5s": shares["min_ns"] / 1e3,
            "max \u00b5s": shares["max_ns"] / 1e3,
            "origin": shares["origin"],
            "grid": shares["grid"],
            "block": shares["block"],
            "registers": shares["registers"],
            "shared B": shares["shared_bytes"],
            "total ms": shares["total_ns"] / 1e6,
            "launches": shares["count"],
            "confidence": shares["confidence"],
            "rule": shares["rule"],
            "full name": shares["name"],
        }
    )
    if not iterations:
        table = table.drop(columns=["\u00b5s / iteration", "launches / iteration"])
    show_table(
        table,
        key=key,
        height=height or table_height(table, 560),
        column_config=_kernel_columns(table),
        alt="Kernels by total time",
    )


def _kernel_columns(table: pd.DataFrame) -> dict[str, object]:
    number = st.column_config.NumberColumn
    times = [c for c in table if c.endswith("\u00b5s") or c in ("total ms", "\u00b5s / iteration")]
    return {
        "kernel": st.column_config.TextColumn(width=280),
        "category": category_column(c[0] for c in table["category"]),
        "share": st.column_config.ProgressColumn(
            "share of kernel time",
            format="%.1f %%",
            min_value=0,
            max_value=max(1.0, float(table["share"].max())),
            width=150,
            help="The longest bar is the largest share",
        ),
        **{c: number(format=fixed_format(table[c], most=2), help=_HELP.get(c)) for c in times},
        "launches / iteration": number(format="%.4g"),
        "confidence": number(format="%.2f", help="How sure the rule is of the class"),
        "full name": st.column_config.TextColumn(width="small"),
    }


_HELP = {
    "\u00b5s / iteration": "Sum of this kernel's durations over the measured iterations",
    "mean \u00b5s": "Mean duration of one launch under the profiler",
}


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
            c: st.column_config.NumberColumn(format="%.3f", help=h)
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
    open_or_download(
        lambda: _chrome_trace(view, found[0]),
        title=view.run.name,
        file_name=f"{view.run.id}.json.gz",
    )


def _chrome_trace(view: RunView, found: Timeline) -> bytes:
    from app.ui.chrome_trace import chrome_trace

    return chrome_trace(found, _short_names(view))


def _short_names(view: RunView) -> dict[str, str]:
    return dict(zip(view.kernels["name"], view.kernels["short_name"], strict=True))


@st.fragment
def _timeline_part(view: RunView, kept: data.KeptTimeline) -> None:
    found = kept[0]
    key = f"timeline_{view.run.id}"
    state = st.session_state.get(key) or {}
    raw = state.get("window")
    asked = (float(raw[0]), float(raw[1])) if raw else None
    whole = asked is None or asked[1] - asked[0] >= 0.999 * found.extent_ns
    asked = None if whole else asked
    _, selected = draw_timeline(
        found,
        data.timeline_window(kept, asked),
        categories=dict(zip(view.kernels["name"], view.kernels["category"], strict=True)),
        short_names=_short_names(view),
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
