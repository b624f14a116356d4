"""Where a run's time went: kernels and timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from analysis.classify import distinct_labels, label
from analysis.per_step import Basis, basis_of, ranked_kernels
from analysis.runview import RunView
from analysis.tables import CaptureKind
from analysis.verdict import is_cpu_run
from app.charts import phases as kernel_charts
from app.ui import data, style
from app.ui.format import count, many, percent, time_unit
from app.ui.kernel_detail import kernel_detail, open_kernel
from app.ui.perfetto import open_or_download
from app.ui.shape import class_shares
from app.ui.stack_choice import kept_kernels
from app.ui.tables import choose_row, show_table
from app.ui.timeline.canvas import Beside, draw_timeline, host_window, laid_over
from app.ui.timeline.load import Timeline
from app.ui.widgets import chart, plain_markdown
from core.states import Pass

FEW = 8
"""As many ranks stand in a timeline at first; a run of no more has no choice."""
MOST = 32


def with_chosen_ranks(view: RunView) -> RunView:
    """Draw the choice of ranks where there are many; return the run with those ranks' spans."""
    rows = view.ranks.get("ranks", [])
    if len(rows) <= FEW or len(view.span_paths) <= FEW:
        return view
    by_rank = {row["rank"]: row for row in rows}
    first = telling_ranks(rows)
    chosen = st.multiselect(
        (
            f"Ranks; the default is {FEW} of {len(rows)}: those that arrive "
            "last and those that wait longest"
        ),
        sorted(by_rank),
        default=first,
        max_selections=MOST,
        key="timeline_ranks",
    )
    files = {by_rank[rank]["file_name"] for rank in chosen or first}
    captures = view.captures[view.captures["file_name"].isin(files)]
    names = {path.rpartition("/")[2] for path in captures["spans_path"].dropna()}
    return replace(view, span_paths=tuple(p for p in view.span_paths if p.name in names))


def telling_ranks(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks that come last and those that wait longest, FEW together, in order."""
    late = sorted(rows, key=lambda row: (-row.get("late_ns", 0), row["rank"]))
    waiting = sorted(rows, key=lambda row: (-row.get("wait_ns", 0), row["rank"]))
    shown = dict.fromkeys(row["rank"] for pair in zip(late, waiting, strict=True) for row in pair)
    return sorted(list(shown)[:FEW])


_TOP = 15


def kernels(view: RunView) -> None:
    """Draw kernels by time, with their classes and the share that no rule recognises."""
    if view.kernels.empty:
        style.empty_state(f"No {_what(view)} recorded", why_no_kernels(view))
        return
    work = _what(view)
    basis = basis_of(view)
    shares = ranked_kernels(view)
    marked = kept_kernels(view)
    wanted = shares["name"].isin(marked) | open_kernel(shares)
    rows = shares[wanted] if marked else shares
    chosen = kernel_table(
        rows,
        basis,
        is_cpu=is_cpu_run(view),
        is_chosen=open_kernel(rows),
        key="kernel_table",
    )
    st.caption(f"{_of_what(basis)} {_recognised(view)}")
    if chosen is not None:
        kernel_detail(view, chosen)
    shown = _of_one(shares)
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.markdown(f"**Longest {work}**")
        chart(
            kernel_charts.top_kernels(shown.head(_TOP), of=_time(view)),
            alt=f"The {min(_TOP, len(shares))} {work} with the most total time",
        )
    with right:
        by = st.segmented_control(
            "Share by", ["category", "origin"], default="category", key="share_by", required=True
        )
        chart(
            kernel_charts.shares(class_shares(shown, str(by)), by=str(by), of=_time(view)),
            alt=f"Share of {_time(view)} by {by}",
        )


def _of_one(shares: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels that a step has, with its figures for totals; all where not known."""
    if shares["one_ns"].isna().any():
        return shares
    own = shares[shares["one_count"] > 0]
    return own.assign(total_ns=own["one_ns"], count=own["one_count"])


def _of_what(basis: Basis | None) -> str:
    if basis is None:
        return "Shares refer to the whole capture: no steps are known."
    return f"Shares and charts are per {basis.word}, mean of {basis.told}."


def _what(view: RunView) -> str:
    return "operators" if is_cpu_run(view) else "kernels"


def _time(view: RunView) -> str:
    return "self time" if is_cpu_run(view) else "kernel time"


def why_no_kernels(view: RunView) -> str:
    """Return why there is no kernel to show, and what to do about it."""
    if view.primary_pass in (Pass.NSYS, Pass.TRACE):
        did = "ran no PyTorch operators" if is_cpu_run(view) else "used no GPU"
        return f"The capture has none: the program {did} while it was recorded."
    if view.run.profilers and view.run.status != "done":
        return "The run ended before a profiler pass that records them."
    if is_cpu_run(view):
        return "This needs a PyTorch trace pass: run again with one."
    return "This needs an nsys or PyTorch trace pass: run again with one, or import its capture."


def _recognised(view: RunView) -> str:
    frac = view.summary.get("unclassified_frac")
    if frac == 0:
        return "Classes come from kernel names; a rule recognises every name."
    share = percent(frac) if frac is not None else "an unknown share"
    time = "operators' self time" if is_cpu_run(view) else "kernel time"
    return f"Classes come from kernel names: {share} of the {time} matches no rule."


def kernel_table(
    shares: pd.DataFrame,
    basis: Basis | None,
    *,
    key: str = "kernels",
    most_px: int = 560,
    is_cpu: bool = False,
    is_chosen: pd.Series | None = None,
) -> pd.Series | None:
    """Draw one row per kernel and launch shape; one a CPU operator where `is_cpu`.

    With `is_chosen`, which says of each row whether it is chosen at first, a row can be chosen;
    return it.
    """
    word = basis.word if basis else ""
    unit, unit_ns = time_unit(shares["mean_ns"], "\u00b5s")
    total, total_ns = time_unit(shares["total_ns"], "ms")
    table = pd.DataFrame(
        {
            "kernel": shares["name"],
            "category": shares["category"],
            "share": 100 * shares["share_frac"],
            f"{unit} / {word}": shares["one_ns"].astype("Float64") / unit_ns,
            f"launches / {word}": shares["one_count"].astype("Float64"),
            f"mean {unit}": shares["mean_ns"] / unit_ns,
            f"min {unit}": shares["min_ns"] / unit_ns,
            f"max {unit}": shares["max_ns"] / unit_ns,
            "origin": shares["origin"],
            "grid": shares["grid"],
            "block": shares["block"],
            "registers": shares["registers"],
            "shared B": shares["shared_bytes"],
            f"total {total}": shares["total_ns"] / total_ns,
            "launches": shares["count"],
            "confidence": shares["confidence"],
            "rule": shares["rule"],
        }
    )
    if basis is None:
        table = table.drop(columns=[f"{unit} / {word}", f"launches / {word}"])
    if is_cpu:
        table = table.drop(columns=_OF_LAUNCHES).rename(columns=_CPU_LABELS)
    looks: dict[str, Any] = {
        "kernels": "operator" if is_cpu else "kernel",
        "helps": _helps(unit, total, is_cpu=is_cpu),
        "columns": {"share": _share_bars(table["share"], is_cpu=is_cpu)},
        "most_px": most_px,
        "alt": "Kernels by total time",
    }
    if is_chosen is None:
        show_table(table, key=key, **looks)
        return None
    place = choose_row(table, key=key, first=is_chosen, **looks)
    return None if place is None else shares.iloc[place]


_OF_LAUNCHES = ["grid", "block", "registers", "shared B"]
_CPU_LABELS = {
    "kernel": "operator",
    "launches / iteration": "calls / iteration",
    "launches / step": "calls / step",
    "launches": "calls",
}


def _share_bars(share: pd.Series, *, is_cpu: bool) -> Any:
    return st.column_config.ProgressColumn(
        "share of self time" if is_cpu else "share of kernel time",
        format="%.1f %%",
        min_value=0,
        max_value=max(1.0, float(share.max())),
        width=150,
        help="The longest bar is the largest share",
    )


def _helps(unit: str, total: str, *, is_cpu: bool) -> dict[str, str]:
    work = "operator's own" if is_cpu else "kernel's"
    return {
        f"{unit} / step": f"This {work} time in a regular step, mean over the steps",
        f"{unit} / iteration": f"This {work} time over the iterations that ranges mark",
        f"total {total}": "Of the whole capture",
        f"mean {unit}": "Mean self time of one call, without the operators it calls"
        if is_cpu
        else "Mean duration of one launch under the profiler",
        "confidence": "Confidence of the rule in the class",
    }


def timeline(view: RunView) -> None:
    """Draw the kernel timeline; a click selects a kernel in the table below it."""
    view = with_chosen_ranks(view)
    kept = data.fetch_timeline(view)
    if kept is None:
        _no_timeline(view)
        return
    _timeline_part(view, kept)
    open_or_download(
        lambda: _chrome_trace(view, kept[0]),
        title=view.run.name,
        file_name=f"{view.run.id}.json.gz",
    )


def _no_timeline(view: RunView) -> None:
    """Say why there is no timeline; a CPU run's own trace opens in Perfetto all the same."""
    if not is_cpu_run(view):
        why = "This run has no per-launch records, since it has no trace or nsys pass."
        style.empty_state("No timeline stored", why)
        return
    names = view.captures.loc[view.captures["kind"] == CaptureKind.TORCH_TRACE, "file_name"]
    files = [data.paths().captures / view.run.id / str(name) for name in names]
    trace = next((f for f in files if f.name.endswith(".gz") and f.is_file()), None)
    why = "The timeline shows GPU operations, and a CPU run has none. "
    style.empty_state(
        "No GPU timeline",
        why + ("The profiler's records are in its trace." if trace else "It has no trace either."),
    )
    if trace:
        open_or_download(trace.read_bytes, title=view.run.name, file_name=f"{view.run.id}.json.gz")


def _chrome_trace(view: RunView, shown: Timeline) -> bytes:
    from app.ui.perfetto import chrome_trace

    return chrome_trace(shown, _short_names(view))


def _short_names(view: RunView) -> dict[str, str]:
    return distinct_labels(tuple(view.kernels["name"]))


_MANY_HOST_ROWS = 150_000


def _beside(view: RunView, kept: data.KeptTimeline, asked: tuple[float, float] | None) -> Beside:
    """Return what is drawn beside the streams: steps, memory, and host threads when wanted."""
    ops = kept[0]
    steps = view.by_step.steps
    own = steps[steps["process"] == steps["process"].iloc[0]] if len(steps) else None
    # A memory pass is another process, on a clock of its own.
    is_own_memory = "memory" not in set(view.captures["pass"])
    memory = view.memory_points if len(view.memory_points) else None
    if memory is not None and not is_own_memory:
        memory, num_steps = laid_over(memory, own if own is not None else steps)
        memory = memory if num_steps else None
        if num_steps:
            st.caption(
                "Memory comes from the memory pass, another execution: "
                f"{many(num_steps, 'step')} of it, each stretched over a step "
                "here."
            )
    num = data.count_host_rows(view)
    is_wanted = num > 0 and st.toggle(
        "Host threads",
        value=num <= _MANY_HOST_ROWS,
        key=f"host_rows_{view.run.id}",
        help=f"{count(num)} API calls, operators and functions of threads that launch work",
    )
    host = data.fetch_host_rows(view) if is_wanted else None
    if host is None:
        return Beside(steps=own, memory=memory)
    at = host_window(ops, host[0], asked) if asked else None
    return Beside(host=host[0], host_view=data.timeline_window(host, at), steps=own, memory=memory)


@st.fragment
def _timeline_part(view: RunView, kept: data.KeptTimeline) -> None:
    ops = kept[0]
    key = f"timeline_{view.run.id}"
    state = st.session_state.get(key) or {}
    raw = state.get("window")
    asked = (float(raw[0]), float(raw[1])) if raw else None
    whole = asked is None or asked[1] - asked[0] >= 0.999 * ops.extent_ns
    asked = None if whole else asked
    marked = kept_kernels(view)
    beside = _beside(view, kept, asked)
    _, selected = draw_timeline(
        ops,
        data.timeline_window(kept, asked),
        categories=dict(zip(view.kernels["name"], view.kernels["category"], strict=True)),
        short_names=_short_names(view),
        key=key,
        asked=asked,
        beside=beside,
        marked=marked,
    )
    rows = ranked_kernels(view)
    rows = rows[rows["name"].isin(marked)] if marked else rows
    if selected is not None and selected in set(rows["name"]):
        rows = rows[rows["name"] == selected]
        st.markdown(f"**Selected:** {plain_markdown(label(str(rows['name'].iloc[0])))}")
    else:
        rows = rows.head(_TOP)
        st.caption("Click a kernel to see its details here.")
    kernel_table(rows, basis_of(view), key="timeline_kernels")
