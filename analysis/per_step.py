"""What one step of a run is made of: the one basis of every figure that is said "per step".

Where the timeline was cut into steps, that is its regular steps: medians for a headline, means for
the rows of a table, which add up. Sums without a timeline (reports of `nsys stats`) are divided by
the iterations that numbered ranges mark. Without either only the whole capture is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.iterations import normalise, num_iterations
from analysis.runview import RunView


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
    """Say whether all GPU work of a capture lies in steps, left out of the averages or not."""
    steps = view.by_step.steps
    if steps.empty or view.kernels.empty:
        return False
    return int((steps["kernel_ns"] + steps["graph_ns"]).sum()) == int(
        view.kernels["total_ns"].sum()
    )


def num_of(view: RunView, per: Per) -> int:
    """Return how many steps or iterations a run's totals hold of what `per` names; 1 of wholes."""
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
        found = view.by_step.facts.get(of_step)
        return None if found is None else float(found)
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
    keys = ["name", "grid", "block"]
    found = steps.groupby(keys, dropna=False)[["total_ns", "count"]].sum()
    places = pd.MultiIndex.from_frame(kernels[keys].astype(object))
    index = pd.MultiIndex.from_frame(found.reset_index()[keys].astype(object))
    found = found.set_axis(index).reindex(places).fillna(0.0)
    return kernels.assign(one_ns=found["total_ns"].to_numpy(), one_count=found["count"].to_numpy())


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
    found = whole[columns].reset_index(drop=True)
    numbers = [c for c in ("count", "bytes", "total_ns") if c in columns]
    return found.assign(**{c: found[c].astype("Float64") / basis.num for c in numbers})


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
