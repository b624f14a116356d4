"""A run's phases: the three kinds of phase time beside each other."""

import pandas as pd
import streamlit as st

from analysis.definitions import tooltip
from analysis.per_step import basis_of, phases_of_one
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts import phases as phase_charts
from app.ui import style
from app.ui.run_cards import OF_OPERATORS
from app.ui.run_kernels import why_no_kernels
from app.ui.run_phase_kernels import phase_kernels
from app.ui.shape import merged_phases
from app.ui.widgets import chart, show_table, table_height


def phases(view: RunView) -> None:
    """Draw the three kinds of phase time of a step and of the whole, and who has which kernels."""
    if view.phases.empty:
        has_pass = view.primary_pass is not None
        why = "The program marked no NVTX or profiler ranges." if has_pass else why_no_kernels(view)
        style.empty_state("No ranges recorded", why)
        phase_kernels(view)
        return
    basis, merged = basis_of(view), merged_phases(view.phases)
    of_one = _of_one(merged, view)
    drawn = merged if basis is None else of_one
    shown = drawn[drawn["path"].str.count("/") <= 3].head(16)
    is_cpu = is_cpu_run(view)
    what = "operator" if is_cpu else "kernel"
    shown = shown.assign(label=shown["path"].str.rsplit("/").str[-1])
    chart(
        phase_charts.phase_times(shown, what=what),
        alt=f"Host range{'' if is_cpu else ', GPU projection'} and {what} sum of each phase",
    )
    used = sorted(set(merged["attribution"]))
    rules = _CPU_ATTRIBUTION if is_cpu else _ATTRIBUTION
    of = f"Of a {basis.word}, mean of {basis.told}. " if basis else "Of the whole capture. "
    st.caption(of + " ".join(rules[a] for a in used if a in rules))
    if basis is None:
        _phase_table(merged, what)
    else:
        _phase_table(of_one, what)
        with st.expander("The whole capture"):
            _phase_table(merged, what)
    phase_kernels(view)


def _of_one(merged: pd.DataFrame, view: RunView) -> pd.DataFrame:
    """Return the phases that a step has, with its figures."""
    of_one = phases_of_one(view)
    if of_one.empty:
        return merged
    path = of_one["path"].str.replace("iteration_*", "iteration")
    figures = of_one.assign(path=path).groupby("path").sum(min_count=1)
    own = merged[merged["path"].isin(figures.index)].drop_duplicates("path")
    mine = figures.reindex(own["path"])
    return own.assign(**{c: mine[c].to_numpy() for c in figures.columns}).reset_index(drop=True)


def _phase_table(merged: pd.DataFrame, what: str) -> None:
    table = pd.DataFrame(
        {
            "phase": merged["label"],
            "ranges": merged["num_ranges"],
            "host range ms": _ms(merged["host_ns"]),
            "GPU projection ms": _ms(merged["projected_ns"]),
            f"{what} sum ms": _ms(merged["kernel_ns"]),
            f"{what}s": merged["num_kernels"],
            "given by": merged["attribution"],
            "process": merged["process"],
            "path": merged["path"],
        }
    )
    of_operators = what == "operator"
    same = [c for c in ("given by", "process") if table[c].nunique() < 2]  # the caption says how
    show_table(
        table.drop(columns=[*same, *(["GPU projection ms"] if of_operators else [])]),
        height=table_height(merged, 640),
        column_config={
            c: st.column_config.NumberColumn(format="%.3f", help=h)
            for c, h in (
                ("host range ms", tooltip("phases.host_ns")),
                ("GPU projection ms", tooltip("phases.projected_ns")),
                ("kernel sum ms", tooltip("phases.kernel_ns")),
                ("operator sum ms", OF_OPERATORS + tooltip("phases.kernel_ns")),
            )
        },
        alt=f"Phases with host{'' if of_operators else ', projected'} and {what} time",
    )


_CPU_ATTRIBUTION = {
    "launch_thread": "Operators belong to the range open on the thread that ran them.",
    "process_time": "Operators that ran on another thread belong to the range of the same process "
    "that was open when they ran.",
}
_ATTRIBUTION = {
    "launch_thread": "Kernels belong to the range open on the thread that launched them.",
    "process_time": "Backward kernels are launched by autograd's own thread: they belong to the "
    "range of the same process that was open when they were launched.",
    "device_time": "This trace has no launches: kernels belong to the range open when they began.",
}


def _ms(values: pd.Series) -> pd.Series:
    return pd.to_numeric(values, errors="coerce").astype("float64") / 1e6
