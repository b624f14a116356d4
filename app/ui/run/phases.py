"""A run's phases: the three kinds of phase time side by side, and the kernels of each phase."""

import pandas as pd
import streamlit as st

from analysis.colours import category_order
from analysis.definitions import tooltip
from analysis.per_step import basis_of, phases_of_one
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts import phases as phase_charts
from app.ui import data, style
from app.ui.run.cards import OF_OPERATORS
from app.ui.run.kernels import why_no_kernels
from app.ui.shape import merged_phases
from app.ui.tables import show_table
from app.ui.widgets import chart


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
    work = "operator" if is_cpu else "kernel"
    shown = shown.assign(label=shown["path"].str.rsplit("/").str[-1])
    chart(
        phase_charts.phase_times(shown, what=work),
        alt=f"Host range{'' if is_cpu else ', GPU projection'} and {work} sum of each phase",
    )
    used = sorted(set(merged["attribution"]))
    rules = _CPU_ATTRIBUTION if is_cpu else _ATTRIBUTION
    of = f"Per {basis.word}, mean of {basis.told}. " if basis else "Of the whole capture. "
    st.caption(of + " ".join(rules[a] for a in used if a in rules))
    if basis is None:
        _phase_table(merged, work)
    else:
        _phase_table(of_one, work)
        with st.expander("The whole capture"):
            _phase_table(merged, work)
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


def _phase_table(merged: pd.DataFrame, work: str) -> None:
    table = pd.DataFrame(
        {
            "phase": merged["label"],
            "ranges": merged["num_ranges"],
            "host range ms": _ms(merged["host_ns"]),
            "GPU projection ms": _ms(merged["projected_ns"]),
            f"{work} sum ms": _ms(merged["kernel_ns"]),
            f"{work}s": merged["num_kernels"],
            "given by": merged["attribution"],
            "process": merged["process"],
            "path": merged["path"],
        }
    )
    of_operators = work == "operator"
    same = [c for c in ("given by", "process") if table[c].nunique() < 2]  # the caption says how
    show_table(
        table.drop(columns=[*same, *(["GPU projection ms"] if of_operators else [])]),
        most_px=640,
        helps={
            "host range ms": tooltip("phases.host_ns"),
            "GPU projection ms": tooltip("phases.projected_ns"),
            "kernel sum ms": tooltip("phases.kernel_ns"),
            "operator sum ms": OF_OPERATORS + tooltip("phases.kernel_ns"),
        },
        alt=f"Phases with host{'' if of_operators else ', projected'} and {work} time",
    )


_CPU_ATTRIBUTION = {
    "launch_thread": "Operators belong to the range open on the thread that ran them.",
    "process_time": "Operators that ran on another thread belong to the range "
    "that was then open in the same process.",
}
_ATTRIBUTION = {
    "launch_thread": "Kernels belong to the range open on the thread that launched them.",
    "process_time": "Backward kernels are launched by autograd's thread: they "
    "belong to the range that was then open in the same "
    "process.",
    "device_time": (
        "This trace has no launches: kernels belong to the range open when they started."
    ),
}


def _ms(values: pd.Series) -> pd.Series:
    return pd.to_numeric(values, errors="coerce").astype("float64") / 1e6


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
    times, num_steps = data.fetch_phase_kernels(view)
    marked = times[times["phase"] != ""]
    passes = view.by_step.operator_kernels
    if marked["total_ns"].sum() < 0.5 * times["total_ns"].sum() and len(passes):
        times = passes.groupby(["pass", "kernel"], as_index=False)[["count", "total_ns"]].sum()
        times = times.rename(columns={"pass": "phase", "kernel": "name"})
        scope = (
            "The program marked no phases: these are the passes of its "
            "operators, over the whole capture."
        )
    elif marked.empty:
        return marked, ""
    else:
        scope = f"Per step, mean of {num_steps}." if num_steps else "The whole capture."
        scope += " A kernel belongs to the phase that launched it; subphases have their own rows."
    classes = dict(zip(view.kernels["name"], view.kernels["category"], strict=True))
    times = times.assign(
        phase=times["phase"].replace("", NO_PHASE),
        category=times["name"].map(classes).fillna("unknown"),
    )
    return times.sort_values("total_ns", ascending=False), scope


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
    show_table(
        table,
        most_px=420,
        columns={"phase": st.column_config.TextColumn(width=240)},
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
            "kernel": sums["name"],
            "category": sums["category"],
            "share of the phase %": 100 * sums["total_ns"] / whole,
            time: sums["total_ns"] / unit,
            "launches": sums["count"],
            "mean \u00b5s": sums["total_ns"] / sums["count"] / 1e3,
        }
    )
    show_table(table, most_px=420, alt="Kernels of the chosen phase")
