"""What one step of a run is made of: the one basis of every figure that is said "per step".

Where the timeline was cut into steps, that is its regular steps: medians for a headline, means for
the rows of a table, which add up. Sums without a timeline (reports of `nsys stats`) are divided by
the iterations that numbered ranges mark. Without either only the whole capture is known.
Kernels by phase of a step, and the steps as the command line gives them, stand here too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.assemble import class_fractions
from analysis.iterations import iteration_of, normalise, num_iterations, tail
from analysis.runview import RunView, StepView
from analysis.trace.operators import operators_document
from core.numbers import decimal
from core.trace_rules import MEASURED_RANGE, PATH_SEPARATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What "one" means for a run."""

    word: str
    "`step`, or `iteration` where ranges mark them in sums without a timeline."
    num: int
    "How many are averaged."
    told: str
    "e.g. `4 of 5 steps`."

    @property
    def is_of_steps(self) -> bool:
        return self.word == "step"


def basis_of(view: RunView) -> Basis | None:
    """Return what figures per step are averaged over; None where only the whole is known."""
    facts = view.by_step.facts
    if "source" in facts and (num := facts["count"] - facts["num_excluded"]):
        of = f"{num} of {facts['count']}" if facts["num_excluded"] else f"{num}"
        return Basis(word="step", num=num, told=f"{of} {_plural('step', facts['count'])}")
    marked = num_iterations(view.phases)
    if marked:
        told = f"{marked} {_plural('iteration', marked)}"
        return Basis(word="iteration", num=marked, told=told)
    return None


Per = Literal["capture", "step", "iteration"]


def common_basis(views: Sequence[RunView]) -> Per:
    """Return what a comparison of these runs' totals is of.

    The whole capture where each holds its steps alone and as many as the others, or no steps are
    known; else a step, or an iteration where ranges mark different numbers of them.
    """
    bases = [basis_of(view) for view in views]
    if any(basis is None for basis in bases):
        return "capture"
    if all(basis is not None and basis.is_of_steps for basis in bases):
        counts = {view.by_step.facts["count"] for view in views}
        is_whole = len(counts) == 1 and all(_holds_steps_alone(view) for view in views)
        return "capture" if is_whole else "step"
    return "iteration" if len({num_iterations(v.phases) for v in views}) > 1 else "capture"


def _holds_steps_alone(view: RunView) -> bool:
    """Say whether all GPU work of a capture is in steps, including excluded ones."""
    steps = view.by_step.steps
    if steps.empty or view.kernels.empty:
        return False
    return int((steps["kernel_ns"] + steps["graph_ns"]).sum()) == int(
        view.kernels["total_ns"].sum()
    )


def num_of(view: RunView, per: Per) -> int:
    """Return how many `per` (steps or iterations) a run's totals cover; 1 for whole captures."""
    if per == "capture":
        return 1
    basis = basis_of(view)
    if per == "step" and basis is not None:
        return basis.num
    return num_iterations(view.phases) or 1


def kernel_time_of_one(view: RunView) -> float | None:
    """Return the kernel time of a step [ns]: the median of the regular ones."""
    return _of_one(view, "kernel_time_ns", "kernel_ns")


def num_kernels_of_one(view: RunView) -> float | None:
    """Return the kernels of a step: the median of the regular ones."""
    return _of_one(view, "num_kernels", "num_kernels")


def _of_one(view: RunView, whole: str, of_step: str) -> float | None:
    basis, total = basis_of(view), view.summary.get(whole)
    if basis is None:
        return None
    if basis.is_of_steps:
        value = view.by_step.facts.get(of_step)
        return None if value is None else float(value)
    return None if total is None else float(total) / basis.num


def kernels_of_one(view: RunView) -> pd.DataFrame:
    """Return the run's kernels with `one_ns` and `one_count`: those of a step, 0 outside of steps.

    Both are NA where only the whole is known. Their sums are the means over the steps.
    """
    basis = basis_of(view)
    kernels = view.kernels
    if basis is None or kernels.empty:
        return kernels.assign(one_ns=pd.NA, one_count=pd.NA)
    if not basis.is_of_steps:
        return kernels.assign(
            one_ns=kernels["total_ns"] / basis.num, one_count=kernels["count"] / basis.num
        )
    steps = view.by_step.kernels
    if steps.empty or steps["grid"].isna().all():  # stored before launch shapes were kept
        return _by_name(kernels, steps)
    times, counts = _by_shape(steps, "total_ns"), _by_shape(steps, "count")
    launched = _shapes(kernels)
    return kernels.assign(
        one_ns=np.array([times.get(shape, 0.0) for shape in launched]),
        one_count=np.array([counts.get(shape, 0.0) for shape in launched]),
    )


def _by_shape(steps: pd.DataFrame, column: str) -> dict[tuple[object, ...], float]:
    """Return the sum of a column for each launch shape."""
    # Dozens of rows: pandas would take ten times as long to group them by three columns of texts.
    by_shape: dict[tuple[object, ...], float] = {}
    for shape, value in zip(_shapes(steps), steps[column].tolist(), strict=True):
        by_shape[shape] = by_shape.get(shape, 0.0) + float(value)
    return by_shape


def _shapes(kernels: pd.DataFrame) -> list[tuple[object, ...]]:
    """Return name, grid and block of each row; what is not known is None."""
    columns = [kernels[name].tolist() for name in ("name", "grid", "block")]
    return [tuple(v if v == v else None for v in row) for row in zip(*columns, strict=True)]


def ranked_kernels(view: RunView) -> pd.DataFrame:
    """Return `kernels_of_one` with share_frac and mean_ns, the longest first.

    Shares are of a step where its kernels are known, else of all kernel time.
    """
    kernels = kernels_of_one(view)
    times = kernels["total_ns"] if kernels["one_ns"].isna().any() else kernels["one_ns"]
    shares = kernels.assign(
        share_frac=times.astype(float) / (float(times.sum()) or 1.0),
        mean_ns=kernels["total_ns"] / kernels["count"],
    )
    order = ["share_frac", "total_ns"]
    return shares.sort_values(order, ascending=False, kind="stable", ignore_index=True)


def _by_name(kernels: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Share out what a step has of each name as the whole capture shares it out."""
    whole = kernels.groupby("name")[["total_ns", "count"]].transform("sum")
    known = steps.groupby("name")[["total_ns", "count"]].sum() if len(steps) else whole.iloc[:0]
    mine = known.reindex(kernels["name"]).fillna(0.0)
    return kernels.assign(
        one_ns=mine["total_ns"].to_numpy() * (kernels["total_ns"] / whole["total_ns"]).fillna(0.0),
        one_count=mine["count"].to_numpy() * (kernels["count"] / whole["count"]).fillna(0.0),
    )


def calls_of_one(view: RunView) -> pd.DataFrame:
    """Return name, count and total_ns of the host calls of a step; empty where not known."""
    return _table(view, "api_calls", view.api_calls, ["name", "count", "total_ns"])


def transfers_of_one(view: RunView) -> pd.DataFrame:
    """Return kind, src, dst, count, bytes and total_ns of the copies of a step."""
    columns = ["kind", "src", "dst", "count", "bytes", "total_ns"]
    return _table(view, "transfers", view.transfers, columns)


def _table(view: RunView, name: str, whole: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    basis = basis_of(view)
    if basis is not None and basis.is_of_steps:
        rows = view.by_step.facts.get(name)
        known = rows is not None and all(c in row for row in rows for c in columns)
        return pd.DataFrame(rows if known else [], columns=columns)
    if basis is None or whole.empty:
        return pd.DataFrame(columns=columns)
    table = whole[columns].reset_index(drop=True)
    numbers = [c for c in ("count", "bytes", "total_ns") if c in columns]
    return table.assign(**{c: table[c].astype("Float64") / basis.num for c in numbers})


def phases_of_one(view: RunView) -> pd.DataFrame:
    """Return path, num_ranges, host_ns, projected_ns, kernel_ns and num_kernels of a step.

    Paths have `*` for running numbers. A range around several steps has kernel figures alone.
    """
    columns = ["path", "num_ranges", "host_ns", "projected_ns", "kernel_ns", "num_kernels"]
    basis = basis_of(view)
    if basis is None:
        return pd.DataFrame(columns=columns)
    if basis.is_of_steps:
        return pd.DataFrame(view.by_step.facts.get("phases") or [], columns=columns)
    if view.phases.empty:
        return pd.DataFrame(columns=columns)
    path = view.phases["path"].map(normalise)
    sums = view.phases[columns[1:]].astype("Float64").groupby(path, sort=False).sum(min_count=1)
    return (sums / basis.num).reset_index()


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


PHASE_KERNEL_COLUMNS = (
    "phase",  # str, below the iteration; "" for kernels in no phase
    "name",  # str
    "count",  # float64
    "total_ns",  # float64
)
"""One row per phase and kernel name, in what the phase itself launched, longest first."""
_READ = ["start_ns", "end_ns", "process", "kind", "name", "path", "launch_start_ns"]
_KERNELS = ("kernel", "graph")


def phase_kernels(paths: Sequence[Path], steps: pd.DataFrame) -> tuple[pd.DataFrame, int | None]:
    """Return PHASE_KERNEL_COLUMNS and the number of steps that they are the mean of.

    Of the regular steps of the process with most of them; None: without steps, or where several
    files have clocks of their own, the sums are of the whole capture.
    """
    regular = _regular(steps) if len(paths) == 1 else steps.iloc[:0]
    parts = [_sums(path, regular) for path in paths]
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if rows.empty:
        return pd.DataFrame({name: [] for name in PHASE_KERNEL_COLUMNS}), None
    rows["phase"] = rows["path"].map({p: phase_of(p) for p in rows["path"].unique()})
    sums = rows.groupby(["phase", "name"], as_index=False)[["count", "total_ns"]].sum()
    num = len(regular) or None
    sums[["count", "total_ns"]] = sums[["count", "total_ns"]].astype(float) / (num or 1)
    ordered = sums.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return ordered[list(PHASE_KERNEL_COLUMNS)], num


def phase_of(path: str) -> str:
    """Return the phase of a range's path; empty for the iteration itself and what is around it."""
    if path in ("", MEASURED_RANGE) or path == iteration_of(path):
        return ""
    below = tail(path)
    return below.removeprefix(MEASURED_RANGE + PATH_SEPARATOR)


def _regular(steps: pd.DataFrame) -> pd.DataFrame:
    if steps.empty or not steps["is_regular"].any():
        return steps.iloc[:0]
    chosen = steps[steps["is_regular"].astype(bool)]
    return chosen[chosen["process"] == chosen["process"].mode()[0]].sort_values("start_ns")


def _sums(path: Path, regular: pd.DataFrame) -> pd.DataFrame:
    """Return path, name, count and total_ns of one file's kernels, those of the steps if any."""
    table = pq.read_table(path, columns=_READ)
    columns = {n: table[n].combine_chunks() for n in ("kind", "name", "path")}
    kinds, kind_names = _coded(columns["kind"])
    chosen = np.isin(kinds, [i for i, name in enumerate(kind_names) if name in _KERNELS])
    start, end = (table[n].to_numpy() for n in ("start_ns", "end_ns"))
    if len(regular):
        launched = table["launch_start_ns"].cast("float64").to_numpy()
        chosen &= table["process"].to_numpy() == regular["process"].iloc[0]
        chosen &= _inside(np.where(np.isnan(launched), start, launched), regular)
    names, name_texts = _coded(columns["name"])
    paths, path_texts = _coded(columns["path"])
    key = (paths[chosen].astype(np.int64) + 1) * max(len(name_texts), 1) + names[chosen]
    groups, row = np.unique(key, return_inverse=True)
    texts = ["", *path_texts]
    return pd.DataFrame(
        {
            "path": [texts[g // max(len(name_texts), 1)] for g in groups.tolist()],
            "name": [name_texts[g % max(len(name_texts), 1)] for g in groups.tolist()],
            "count": np.bincount(row, minlength=len(groups)),
            "total_ns": np.bincount(row, (end - start)[chosen], minlength=len(groups)),
        }
    )


def _inside(time_ns: np.ndarray, steps: pd.DataFrame) -> np.ndarray:
    first, last = (steps[n].to_numpy(np.int64) for n in ("start_ns", "end_ns"))
    place = np.searchsorted(first, time_ns, side="right") - 1
    return np.asarray((place >= 0) & (time_ns < last[np.maximum(place, 0)]))


def _coded(column: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return codes (-1 where absent) and texts of a column of texts."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy(), coded.dictionary.to_pylist()


def steps_of(view: StepView) -> dict[str, Any] | None:
    """Return `steps` of `show --json` with the fractions of a step; None where there are none."""
    if "source" not in view.facts:
        return None
    return {**view.facts, **step_fractions(view)}


def told_loops(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each loop that another thread or process runs beside the steps."""
    told = []
    for loop in facts.get("other_loops", []):
        size = "" if (num := loop.get("num_kernels")) is None else f" of {decimal(num)} kernels"
        steps = f"{loop['count']} {_plural('step', loop['count'])}{size}"
        time = f"{decimal(loop['gpu_ns'] / 1e6)} ms of GPU work each"
        whose = loop["whose"].capitalize()
        told.append(f"{whose} runs a loop of its own on this GPU: {steps}, {time}.")
    return told


def step_fractions(view: StepView) -> dict[str, float]:
    """Return gemm_frac, attention_frac and unclassified_frac of a regular step."""
    return class_fractions(view.kernels) if len(view.kernels) else {}


def by_step_document(view: StepView) -> dict[str, Any]:
    """Return the keys about steps, operators and what the host did while the GPU waited."""
    steps = steps_of(view)
    reason = view.facts.get("reason", "no timeline was recorded")
    return {
        "steps": steps,
        **({} if steps else {"steps_reason": reason}),
        "operators": operators_document(view.operators) if len(view.operators) else [],
        "idle_host": view.idle_host.astype(object).to_dict("records"),
    }
