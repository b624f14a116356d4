"""What one step of a run is made of, as the models of `analysis.advice` need it.

A step is an iteration of a workload or a regular step of a program. Everything is of the run
itself: clean latency, kernels in order with their class, launches, phases, measured peaks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.advice.constants import EAGER_LAUNCH_RATIO
from analysis.classify import Category, is_gemm_like
from analysis.roofline import bytes_peak, flops_peak
from analysis.runview import RunView
from analysis.span_file import is_whole

CPU = "cpu"
"""What a run without a GPU has as its model."""
WAITING_FRAC = 0.15
"""From this idle share on, the step's length is taken as the host's."""
FUSIBLE = frozenset(
    {
        Category.ELEMENTWISE, Category.COPY, Category.NORM, Category.REDUCTION, Category.SOFTMAX,
        Category.FILL, Category.EMBEDDING, Category.INDEX, Category.LOSS,
    }
)  # fmt: skip
MOST_VARIATION = 0.5
EAGER_PHASES = ("optimizer", "regroup")
"""Phases of our workloads that `compile` does not change."""
_NOT_FUSED = r"(?i)sort|topk|radix|scan|gathertopk|nonzero"
"""Indexing kernels that inductor calls instead of fusing."""


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """A step of a run. Times in ns, of one step."""

    latency_ns: float
    "Median of the clean pass."
    variation: float
    "How far single steps lie from it, as a natural logarithm: see `variation_of`."
    on_gpu: bool
    read_operations: Callable[[], pd.DataFrame]
    num_steps: float
    "Steps that `operations` holds."
    params: Mapping[str, Any]
    cost: Mapping[str, Any]
    peaks: Mapping[str, float]
    gpu_model: str | None
    phase_ns: Mapping[str, float]
    "Clean latency of the phases that were timed."

    @cached_property
    def operations(self) -> pd.DataFrame:
        """GPU operations of all recorded steps in order: name, category, duration_ns, path.

        On a CPU, operators by total. Read when a model asks: most runs have no change to model.
        """
        return self.read_operations()

    @cached_property
    def gpu_ns(self) -> float:
        """Time in kernels, copies and memory sets, at the clocks of the clean pass."""
        return self._recorded_ns * self._clock_ratio

    @cached_property
    def _recorded_ns(self) -> float:
        return float(self.operations["duration_ns"].sum()) / self.num_steps

    @property
    def _clock_ratio(self) -> float:
        """Clean latency over recorded time of a step of one launch that does not wait, else 1.

        Such a step is its kernel; a single one under nsys runs at other clocks than many in a row.
        """
        is_one = self.num_launches == 1 and self._recorded_ns > 0
        idle_ns = self.latency_ns - self._recorded_ns
        is_its_kernel = is_one and abs(idle_ns) < WAITING_FRAC * self.latency_ns
        return self.latency_ns / self._recorded_ns if is_its_kernel else 1.0

    @cached_property
    def num_launches(self) -> float:
        return len(self.operations) / self.num_steps

    @property
    def idle_ns(self) -> float:
        return max(0.0, self.latency_ns - self.gpu_ns)

    @property
    def waits(self) -> bool:
        """Whether the host's time is the step's: the GPU idles for `WAITING_FRAC` of it.

        Not of a step of one or two launches: its kernel is what is measured, and a clean pass that
        replays many of them runs at other clocks than a single one.
        """
        is_idle = self.idle_ns >= WAITING_FRAC * self.latency_ns
        return self.on_gpu and self.num_launches > 2 and is_idle

    @property
    def host_ns_per_launch(self) -> float | None:
        """Host time of a launch: latency / launches where the host decides, else by the peak.

        The measured `launch_ns` times `EAGER_LAUNCH_RATIO`, but not more than latency / launches;
        None where neither is known.
        """
        if not self.num_launches:
            return None
        most_ns = self.latency_ns / self.num_launches
        if self.waits:
            return most_ns
        launch_ns = self.peaks.get("launch_ns")
        return min(launch_ns * EAGER_LAUNCH_RATIO, most_ns) if launch_ns else None

    @property
    def gap_ns(self) -> float:
        """Time between operations that are queued back to back; only where the GPU decides."""
        return 0.0 if self.waits or not self.num_launches else self.idle_ns / self.num_launches

    def time_ns(self, rows: pd.Series) -> float:
        """Return the time of the operations that `rows` selects, of one step."""
        recorded_ns = float(self.operations.loc[rows, "duration_ns"].sum()) / self.num_steps
        return recorded_ns * self._clock_ratio

    def count(self, rows: pd.Series) -> float:
        return float(rows.sum()) / self.num_steps

    @cached_property
    def is_product(self) -> pd.Series:
        """Which operations are matrix products."""
        return self.operations["category"].map(lambda c: is_gemm_like(str(c))).astype(bool)

    def in_phase(self, *names: str) -> pd.Series:
        """Which operations were launched inside a range of one of these names."""
        codes, paths = pd.factorize(self.operations["path"])
        is_inside = np.array([not set(names).isdisjoint(p.split("/")) for p in paths], dtype=bool)
        return pd.Series(is_inside[codes], index=self.operations.index)

    def flops_rate(self, dtype: str) -> float | None:
        peak = flops_peak(self.peaks, self.gpu_model, dtype)
        return peak.value if peak else None

    @property
    def bytes_rate(self) -> float | None:
        peak = bytes_peak(self.peaks, self.gpu_model)
        return peak.value if peak else None

    @cached_property
    def fused(self) -> tuple[float, float]:
        """Return (GPU time in ns, operations) of the step once chains are fused.

        A chain is what runs between two products, attention kernels or other library calls. Fused,
        it reads its largest tensor and writes it once: it takes as long as its longest kernel.

            time  = sum(others) + sum over chains of max(duration)
            count = number of others + number of chains
        """
        frame = self.operations
        fusible = frame["category"].isin(FUSIBLE) & ~frame["name"].str.contains(_NOT_FUSED)
        fusible &= ~self.in_phase(*EAGER_PHASES)
        chain = (fusible != fusible.shift()).cumsum()[fusible]
        longest = frame.loc[fusible, "duration_ns"].groupby(chain).max()
        others = frame.loc[~fusible, "duration_ns"]
        return (
            (float(longest.sum()) + float(others.sum())) / self.num_steps,
            (len(longest) + len(others)) / self.num_steps,
        )


def step_work(view: RunView) -> StepWork | None:
    """Return the step of a run; None without a clean latency. Without kernels, it has none."""
    latency = view.summary.get("latency_ms") or {}
    if not latency.get("median"):
        return None
    on_gpu = (view.run.gpu_model or CPU) != CPU
    return StepWork(
        latency_ns=float(latency["median"]) * 1e6,
        variation=variation_of(latency),
        on_gpu=on_gpu,
        read_operations=partial(_operations, view.span_paths, view.kernels, on_gpu=on_gpu),
        num_steps=_num_steps(view),
        params=view.run.params,
        cost=view.cost,
        peaks=view.peaks,
        gpu_model=view.run.gpu_model,
        phase_ns=_phases(view.metrics),
    )


def variation_of(latency: Mapping[str, Any]) -> float:
    """Return the standard deviation of a clean latency over its mean.

    Above `MOST_VARIATION` a few steps of another order make it, and no interval follows from it:
    then ln(upper / lower) of the 95 % interval of the median.
    """
    cv, interval = float(latency.get("cv") or 0.0), latency.get("ci95")
    if cv <= MOST_VARIATION or not interval or not interval[0]:
        return cv
    return min(cv, math.log(interval[1] / interval[0]))


def _num_steps(view: RunView) -> float:
    facts = view.by_step.facts
    if facts.get("count"):
        return float(facts["count"])
    kernel_ns, step_ns = (view.summary.get(k) for k in ("kernel_time_ns", "iteration_kernel_ns"))
    return max(1.0, round(kernel_ns / step_ns)) if kernel_ns and step_ns else 1.0


def _phases(metrics: pd.DataFrame) -> dict[str, float]:
    if metrics.empty:
        return {}
    rows = metrics[(metrics["name"] == "phase_latency") & (metrics["pass"] == "clean")]
    return {str(k): float(v) for k, v in zip(rows["phase"], rows["value"], strict=True)}


def _operations(span_paths: Sequence[Path], kernels: pd.DataFrame, *, on_gpu: bool) -> pd.DataFrame:
    columns = ["start_ns", "end_ns", "kind", "name", "path"]
    known = [p for p in span_paths if is_whole(p)]
    if not known or not on_gpu:
        return _operators(kernels)
    frame = pd.concat([pd.read_parquet(p, columns=columns) for p in known], ignore_index=True)
    frame = frame.sort_values("start_ns", kind="stable", ignore_index=True)
    classes = dict(zip(kernels["name"], kernels["category"], strict=True))
    names = frame["name"].astype(str)
    is_kernel = frame["kind"].astype(str).isin(["kernel", "graph"])
    return pd.DataFrame(
        {
            "name": names,
            "category": names.map(classes).where(is_kernel, Category.COPY).fillna("unknown"),
            "duration_ns": frame["end_ns"] - frame["start_ns"],
            "path": frame["path"].astype("string").fillna(""),
        }
    )


def _operators(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return kernels or operators of which only totals are known, each call as long as the mean."""
    if kernels.empty:
        texts = {c: pd.Series([], dtype="str") for c in ("name", "category", "path")}
        return pd.DataFrame(texts | {"duration_ns": pd.Series([], dtype="float64")})
    rows = kernels.loc[kernels.index.repeat(kernels["count"].clip(lower=0, upper=20_000))]
    return pd.DataFrame(
        {
            "name": rows["name"].astype(str),
            "category": rows["category"].astype(str),
            "duration_ns": rows["total_ns"] / rows["count"],
            "path": "",
        }
    ).reset_index(drop=True)
