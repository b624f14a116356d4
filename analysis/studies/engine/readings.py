"""One reading of a measure, and the small queries that measures share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pandas as pd
import pyarrow.parquet as pq

from analysis.iterations import at_path, num_iterations
from analysis.per_step import kernels_of_one, phases_of_one
from analysis.runview import RunView
from analysis.span_file import is_whole

NS_PER_MS = 1e6
GEMM_CATEGORIES = frozenset({"gemm", "gemv"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A number of one run; `extra` names what it belongs to inside the run."""

    value: float
    extra: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    "Fields that this reading has instead of the run's: mode `train_step/backward`."
    ci95: tuple[float, float] | None = None


def latency(view: RunView, statistic: str, scale: float = 1.0) -> float | None:
    statistics = view.summary.get("latency_ms")
    value = statistics.get(statistic) if isinstance(statistics, Mapping) else None
    return None if value is None else float(value) * scale


def stored(view: RunView, name: str, phase: str = "") -> float | None:
    """Return a stored metric of the clean pass, or of any pass that has it."""
    # A walk through some dozens of rows: pandas takes milliseconds for each question asked of it.
    columns = [view.metrics[column] for column in ("name", "phase", "pass", "value")]
    values = [
        (which, value)
        for n, p, which, value in zip(*columns, strict=True)
        if n == name and p == phase
    ]
    clean = [value for which, value in values if which == "clean"]
    return float(clean[0] if clean else values[0][1]) if values else None


def phase_ns(view: RunView, tail: str, column: str) -> float | None:
    """Return a phase's time per step in ns, summed over its ranges; None if unknown."""
    return view.once(("phase_ns", tail, column), partial(_phase_ns, view, tail, column))


def _phase_ns(view: RunView, tail: str, column: str) -> float | None:
    for frame, num in (
        (phases_of_one(view), 1),
        (view.phases, num_iterations(view.phases) or 1),  # steps stored before they had the column
    ):
        if len(frame):
            values = frame[at_path(frame["path"].to_list(), tail)][column].dropna()
            if len(values):
                return float(values.sum()) / num
    return None


def phase_top(view: RunView, phase: str) -> tuple[str, float, float, int] | None:
    """Return name, share, ns and count of the longest kernel of one phase, from the spans."""
    return view.once(("phase_top", phase), partial(_phase_top, view, phase))


def _phase_top(view: RunView, phase: str) -> tuple[str, float, float, int] | None:
    frames = [
        pq.read_table(path, columns=["name", "path", "start_ns", "end_ns", "kind"]).to_pandas()
        for path in view.span_paths
        if is_whole(path)
    ]
    if not frames:
        return None
    spans = pd.concat(frames)
    spans = spans[spans["kind"].astype(str) == "kernel"]
    inside = spans["path"].astype("string").str.contains(rf"(?:^|/){phase}(?:/|$)", na=False)
    spans = spans[inside]
    sums = (spans["end_ns"] - spans["start_ns"]).groupby(spans["name"].astype(str)).sum()
    if not len(sums) or not sums.sum():
        return None
    name = str(sums.idxmax())
    count = int((spans["name"].astype(str) == name).sum())
    return name, float(sums.max() / sums.sum()), float(sums.max()), count


def kernel_shares(view: RunView, by: str) -> pd.Series:
    """Return the share of a step's kernel time by a column of the kernels.

    Opaque launches are counted; where no steps are known, the share is of the whole capture.
    """
    return view.once(("kernel_shares", by), partial(_kernel_shares, view, by))


def _kernel_shares(view: RunView, by: str) -> pd.Series:
    kernels = view.once(("kernels_of_one",), partial(kernels_of_one, view))
    times = "total_ns" if kernels["one_ns"].isna().any() else "one_ns"
    total = float(kernels[times].sum()) if len(kernels) else 0.0
    if total <= 0:
        return pd.Series(dtype=float)
    sums = kernels.groupby(by)[times].sum().astype(float).sort_values(ascending=False)
    return sums[sums > 0] / total
