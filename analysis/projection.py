"""Predict a measured run's latency on another GPU from its kernels and both GPUs' peaks.

Each kernel's time is taken as limited by one thing and scaled by the ratio of that peak:

    memory-limited:   t * source B/s    / target B/s
    compute-limited:  t * source FLOP/s / target FLOP/s    (of the run's dtype)
    tiny (under LAUNCH_FLOOR_NS an execution): unchanged, its time is start-up, not rates

Which of the two limits: from ncu counters of that kernel where there are some, else from its class
(large products in a compute-bound workload by arithmetic; everything else by memory). Idle time is
the host's and stays as it is. The result is scaled from the profiled span to the clean latency.
What this leaves out: other kernels chosen on the other GPU, cache sizes, clocks, and its host. The
error band is learned from runs that were measured on both GPUs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.classify import Category, is_gemm_like
from analysis.idle import IDLE_FRAC, idle_of
from analysis.roofline import bytes_peak, flops_peak
from analysis.runview import RunView
from core.gpus import GpuFacts, datasheet_peaks, find_gpu

ASSUMED_BAND_FRAC = 0.3
"""Assumed, not learned: no pairs of runs measured on both GPUs have set it yet."""
LAUNCH_FLOOR_NS = 3_000
"""A kernel that does nothing takes 2 to 3 us on an H100: below this, rates do not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A predicted latency. Never a measurement: every page labels it `projected`."""

    latency_ns: float
    low_ns: float
    high_ns: float
    basis: str
    "Where the time goes by this model, and which peaks were used."
    notes: tuple[str, ...]


def project(
    view: RunView,
    target_peaks: Mapping[str, float],
    target_facts: GpuFacts | None,
    *,
    band_frac: float = ASSUMED_BAND_FRAC,
    is_band_learned: bool = False,
) -> Projection:
    """Return the projected latency of `view` on the target GPU.

    latency = clean median * (idle + sum of scaled kernel times) / (idle + sum of kernel times);
    low and high are latency / (1 + band_frac) and latency * (1 + band_frac). ValueError names what
    is missing: a latency, kernels, idle time, or a peak that both GPUs have measured or in the
    datasheet.
    `target_facts` may be None for a model outside the table whose peaks were measured.
    """
    median_ms = (view.summary.get("latency_ms") or {}).get("median")
    if not median_ms:
        raise ValueError("the run has no clean latency to project from")
    ratios = _ratios(view, target_peaks, target_facts)
    parts_ns = _parts(view)
    busy_ns = sum(parts_ns[k] for k in ("memory", "compute", "start-up"))
    if busy_ns <= 0:
        raise ValueError("the run has no kernels to project from; record an nsys pass")
    idle_ns = _idle_ns(view, busy_ns)
    scaled_ns = (
        parts_ns["memory"] * ratios["memory"]
        + parts_ns["compute"] * ratios["compute"]
        + parts_ns["start-up"]
    )
    latency_ns = median_ms * 1e6 * (idle_ns + scaled_ns) / (idle_ns + busy_ns)
    whole_ns = idle_ns + busy_ns
    shares = {**parts_ns, "idle": idle_ns}
    basis = ", ".join(f"{name} {ns / whole_ns:.0%}" for name, ns in shares.items())
    return Projection(
        latency_ns=latency_ns,
        low_ns=latency_ns / (1 + band_frac),
        high_ns=latency_ns * (1 + band_frac),
        basis=f"{basis}; memory x {ratios['memory']:.2f}, compute x {ratios['compute']:.2f}",
        notes=_notes(view, target_facts, idle_ns / whole_ns, band_frac, is_band_learned),
    )


def is_host_bound(view: RunView) -> bool:
    """Say whether the other host may decide, not a peak of either GPU.

    Judged by the profiled share: a GPU that waits under the profiler, where the host is slower,
    also waits beside a slower host or a faster GPU.
    """
    return float(view.summary.get("profiled_idle_frac") or 0.0) >= IDLE_FRAC


def _ratios(
    view: RunView, target_peaks: Mapping[str, float], target: GpuFacts | None
) -> dict[str, float]:
    """Return source / target of each rate: what a time is multiplied by."""
    dtype = str(view.cost.get("flops_dtype") or view.run.params.get("dtype") or "bf16")
    sheets = (
        datasheet_peaks(view.run.gpu_model),
        datasheet_peaks(target.name if target else None),
    )
    pairs = ((view.peaks, target_peaks), sheets)
    return {
        "memory": _ratio("copy_bytes_per_s", pairs),
        "compute": _ratio(f"gemm_{dtype}_flops_per_s", pairs),
    }


def _ratio(name: str, pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> float:
    """Return the ratio of two peaks of one kind: both measured, else both of the datasheet.

    A measured peak over a datasheet's would count what no program reaches as a difference.
    """
    for source, target in pairs:
        if source.get(name) and target.get(name):
            return float(source[name]) / float(target[name])
    fault = f"{name} is not known for both GPUs, measured or from a datasheet"
    raise ValueError(f"{fault}; `doctor --measure` on each host measures it")


def _idle_ns(view: RunView, kernel_ns: int) -> int:
    """Return the idle time that goes with this much kernel time in the program itself."""
    idle = idle_of(view.summary)
    if idle is None:
        raise ValueError("the run's idle time is unknown; record an nsys pass")
    return round(kernel_ns * idle.frac / (1 - idle.frac)) if idle.frac < 1 else 0


def _parts(view: RunView) -> dict[str, int]:
    """Return kernel ns by what limits it: memory, compute, start-up."""
    parts = {"memory": 0, "compute": 0, "start-up": 0}
    if view.kernels.empty:
        return parts
    by_counter = _limits_from_counters(view.counters)
    is_compute_run = _is_compute_run(view)
    for row in view.kernels.itertuples():
        if row.count and row.total_ns / row.count < LAUNCH_FLOOR_NS:
            part = "start-up"
        else:
            part = by_counter.get(row.short_name) or _by_class(row.category, is_compute_run)
        parts[part] += int(row.total_ns)
    return parts


def _limits_from_counters(counters: pd.DataFrame) -> dict[Any, str]:
    if counters.empty:
        return {}
    known = counters.dropna(subset=["sm_pct", "memory_pct"])
    means = known.groupby("short_name")[["sm_pct", "memory_pct"]].mean()
    return {
        name: "compute" if row["sm_pct"] > row["memory_pct"] else "memory"
        for name, row in means.iterrows()
    }


def _is_compute_run(view: RunView) -> bool:
    """Say whether the cost model's intensity lies right of the source GPU's ridge."""
    flops, moved = view.cost.get("flops"), view.cost.get("bytes")
    if not flops or not moved:
        return True
    dtype = str(view.cost.get("flops_dtype") or "bf16")
    compute = flops_peak(view.peaks, view.run.gpu_model, dtype)
    memory = bytes_peak(view.peaks, view.run.gpu_model)
    if compute is None or memory is None:
        return True
    return float(flops) / float(moved) > compute.value / memory.value


def _by_class(category: str, is_compute_run: bool) -> str:
    heavy = category in (Category.ATTENTION, Category.CONV) or is_gemm_like(category)
    heavy = heavy and category != Category.GEMV
    return "compute" if heavy and is_compute_run else "memory"


def _notes(
    view: RunView,
    target: GpuFacts | None,
    idle_frac: float,
    band_frac: float,
    is_band_learned: bool,
) -> tuple[str, ...]:
    origin = "learned from runs measured on both GPUs" if is_band_learned else "assumed"
    notes = [f"projected, not measured; error band of {band_frac:.0%} is {origin}"]
    if is_host_bound(view):
        profiled = view.summary["profiled_idle_frac"]
        notes.append(
            f"{idle_frac:.0%} of the time the GPU waits for the host, {profiled:.0%} under the "
            "profiler: the other host decides"
        )
    peak_bytes = view.summary.get("peak_memory_bytes")
    if target and peak_bytes and peak_bytes > target.memory_bytes:
        notes.append(f"needs {peak_bytes / 1e9:.1f} GB, {target.name} has less: likely OOM")
    if not view.cost.get("flops"):
        notes.append("no cost model: large products are taken as limited by arithmetic")
    return tuple(notes)


MIN_PAIRS = 3
"""Fewer say too little: the band stays the assumed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPair:
    """One job measured on both GPUs, and how far its projection was from the measurement."""

    source_id: str
    target_id: str
    measured_ms: float
    projected_ms: float
    is_host_bound: bool

    @property
    def error_frac(self) -> float:
        """Return projected / measured - 1: positive where the projection is too slow."""
        return self.projected_ms / self.measured_ms - 1

    @property
    def factor(self) -> float:
        """Return how many times too slow or too fast the projection is, 1 or more."""
        return max(self.projected_ms / self.measured_ms, self.measured_ms / self.projected_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedBand:
    """The largest factor met, less 1, and the pairs it was met in."""

    band_frac: float
    pairs: tuple[CheckedPair, ...]


def check_pairs(pairs: Sequence[tuple[RunView, RunView]]) -> tuple[CheckedPair, ...]:
    """Project the first run of each pair to the GPU of the second; leave out what cannot be."""
    checked = []
    for source, target in pairs:
        measured_ms = (target.summary.get("latency_ms") or {}).get("median")
        if not measured_ms:
            continue
        try:
            projected = project(source, target.peaks, find_gpu(target.run.gpu_model or ""))
        except ValueError:
            continue
        checked.append(
            CheckedPair(
                source_id=source.run.id,
                target_id=target.run.id,
                measured_ms=float(measured_ms),
                projected_ms=projected.latency_ns / 1e6,
                is_host_bound=is_host_bound(source),
            )
        )
    return tuple(checked)


def learned_band(pairs: Sequence[CheckedPair], *, is_host_bound: bool) -> LearnedBand | None:
    """Return the band these pairs support; None where there are fewer than MIN_PAIRS.

    Of the pairs that wait for the host as this run does (or do not, as it does not) where there are
    enough: the errors of the two kinds have nothing to do with each other. The largest error, not
    a spread: with a handful of pairs nothing narrower is honest.
    """
    if len(pairs) < MIN_PAIRS:
        return None
    alike = [p for p in pairs if p.is_host_bound == is_host_bound]
    used = alike if len(alike) >= MIN_PAIRS else pairs
    return LearnedBand(band_frac=max(p.factor for p in used) - 1, pairs=tuple(used))
