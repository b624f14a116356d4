"""What can be read off one run: a name -> a function from a run to its readings.

No reading means unknown; nothing is ever 0 for unknown. Times are ms, memory GB (1e9 bytes),
shares %, all as the tables print them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from analysis.classify import short_name
from analysis.compare.scoreboard import make_scoreboard
from analysis.compare.waterfall import OPAQUE_NAME
from analysis.latency import latency_ms
from analysis.runview import RunView
from analysis.studies.engine.readings import (
    GEMM_CATEGORIES,
    NS_PER_MS,
    Reading,
    kernel_shares,
    latency,
    phase_ns,
    phase_top_share,
    stored,
)

BYTES_PER_GB = 1e9
SOFTMAX_FLOPS = 5
"""A row element of a softmax: maximum, subtract, exponential, sum, divide."""
Measure = Callable[[RunView], Iterable[Reading]]


def _one(value: float | None, ci95: tuple[float, float] | None = None) -> list[Reading]:
    return [] if value is None else [Reading(value=value, ci95=ci95)]


def _latency(view: RunView) -> list[Reading]:
    found = view.summary.get("latency_ms")
    ci95 = found.get("ci95") if isinstance(found, Mapping) else None
    return _one(latency(view, "median"), (float(ci95[0]), float(ci95[1])) if ci95 else None)


LATENCY_STATISTICS = {"latency": "median", "latency_mean": "mean", "latency_std": "std"}
"""Measures that are a statistic of a run's samples, and which."""


def latency_over(
    measure: str, views: Sequence[RunView]
) -> tuple[float, tuple[float, float] | None] | None:
    """Return a statistic of the samples of several runs of one job with its interval.

    None where the measure is no such statistic, or a run has it without its samples.
    """
    what = LATENCY_STATISTICS.get(measure)
    if what is None or not all(len(view.samples) for view in views):
        return None
    frames = [
        view.samples.assign(process=[f"{i} {process}" for process in view.samples["process"]])
        for i, view in enumerate(views)
    ]
    found = latency_ms(pd.concat(frames, ignore_index=True))
    ci95 = found.get("ci95") if what == "median" else None
    return found[what], (ci95[0], ci95[1]) if ci95 else None


def _gemm_fraction(view: RunView) -> list[Reading]:
    share = view.summary.get("gemm_frac")
    return _one(None if share is None else 100 * float(share))


def _top_kernel(view: RunView, *, only_other: bool) -> list[Reading]:
    """Return the name and the share of all kernel time of the longest kernel (name)."""
    shares = kernel_shares(view, "name")
    if only_other:
        classes = view.kernels.drop_duplicates("name").set_index("name")["category"]
        shares = shares[[classes[name] not in GEMM_CATEGORIES for name in shares.index]]
    if not len(shares):
        return []
    name = str(shares.index[0])
    is_opaque = bool(view.kernels.loc[view.kernels["name"] == name, "is_opaque"].any())
    shown = OPAQUE_NAME if is_opaque else short_name(name)
    return [Reading(value=100 * float(shares.iloc[0]), extra=shown, fields=_how_recorded(view))]


def _how_recorded(view: RunView) -> dict[str, str]:
    """Return a field that keeps whole graphs apart from runs whose kernels were recorded."""
    return {"recorded": "whole graphs"} if view.kernels["is_opaque"].any() else {}


def _top_by_phase(view: RunView) -> list[Reading]:
    """Return the longest kernel of the forward and of the backward phase of a training step."""
    mode = str(view.run.params.get("mode", ""))
    if mode in ("", "forward"):
        return []
    found = []
    for phase in ("forward", "backward"):
        if (top := phase_top_share(view, phase)) is not None:
            where = {"mode": f"{mode}/{phase}"}
            found.append(Reading(value=100 * top[1], extra=short_name(top[0]), fields=where))
    return found


def _nameless(readings: list[Reading]) -> list[Reading]:
    return [replace(r, extra=None) for r in readings]


def _shares(view: RunView, by: str) -> list[Reading]:
    fields = _how_recorded(view)
    return [
        Reading(value=100 * float(v), extra=str(k), fields=fields)
        for k, v in kernel_shares(view, by).items()
    ]


def _kernel_ms(view: RunView) -> list[Reading]:
    if not len(view.kernels):
        return []
    sums = view.kernels.groupby("category")["total_ns"].sum().sort_values(ascending=False)
    return [Reading(value=float(v) / NS_PER_MS, extra=str(k)) for k, v in sums.items()]


def _phase(view: RunView, tail: str, column: str) -> list[Reading]:
    found = phase_ns(view, tail, column)
    return _one(None if found is None else found / NS_PER_MS)


def _matmul_ms(view: RunView) -> float | None:
    parts = [phase_ns(view, p, "kernel_ns") for p in ("attention_scores", "attention_output")]
    known = [p for p in parts if p is not None]
    return sum(known) / NS_PER_MS if len(known) == len(parts) else None


def _softmax_to_matmul(view: RunView) -> list[Reading]:
    softmax, matmul = phase_ns(view, "softmax", "kernel_ns"), _matmul_ms(view)
    return _one(100 * softmax / NS_PER_MS / matmul) if softmax is not None and matmul else []


def _softmax_to_matmul_flops(view: RunView) -> list[Reading]:
    """Return softmax FLOPs over matmul FLOPs: 5 S^2 over 4 S^2 d_head a head and sequence."""
    params = view.run.params
    width, heads = params.get("d_model"), params.get("heads")
    if not isinstance(width, int) or not isinstance(heads, int) or not heads:
        return []
    return _one(100 * SOFTMAX_FLOPS / (4 * width / heads))


def _phase_latency(view: RunView, phase: str) -> list[Reading]:
    found = stored(view, "phase_latency", phase)
    return _one(None if found is None else found / NS_PER_MS)


def _gigabytes(value: float | None) -> list[Reading]:
    return _one(None if value is None else float(value) / BYTES_PER_GB)


def _first(view: RunView, *names: str) -> float | None:
    return next((v for n in names if (v := stored(view, n)) is not None), None)


def _phase_memory(view: RunView) -> list[Reading]:
    if not len(view.metrics):
        return []
    rows = view.metrics[(view.metrics["name"] == "peak_allocated_bytes")]
    rows = rows[rows["phase"] != ""].drop_duplicates("phase")
    return [
        Reading(value=float(r.value) / BYTES_PER_GB, extra=str(r.phase)) for r in rows.itertuples()
    ]


def _before_backward(view: RunView) -> list[Reading]:
    return _gigabytes(stored(view, "memory_before_backward"))


def _longest_product(view: RunView, column: str) -> list[Reading]:
    """Return a counter of the longest profiled GEMM or GEMV launch."""
    if not len(view.counters):
        return _one(stored(view, "grid_blocks")) if column == "grid" else []
    rows = view.counters[view.counters["category"].isin(GEMM_CATEGORIES)]
    rows = rows[rows["duration_ns"].notna()].sort_values("duration_ns", ascending=False)
    if not len(rows):
        return []
    if column == "grid":
        return _one(_num_blocks(rows["grid"].iloc[0]))
    value = rows[column].iloc[0]
    return _one(float(value) if value == value else None)


def _num_blocks(grid: object) -> float | None:
    if not isinstance(grid, str):
        return None
    x, y, z = (int(n) for n in grid.split(","))
    return float(x * y * z)


def _peak_share(view: RunView, column: str) -> list[Reading]:
    rows = make_scoreboard([view])
    share = getattr(rows[0], column) if rows else None
    return _one(None if share is None else 100 * share)


MEASURES: Mapping[str, Measure] = {
    "latency": _latency,
    "latency_mean": lambda v: _one(latency(v, "mean")),
    "latency_std": lambda v: _one(latency(v, "std")),
    "tokens_per_s": lambda v: _one(stored(v, "tokens_per_s")),
    "gflop_per_s": lambda v: _one(_first(v, "throughput", "model_gflop_per_s")),
    "regroup_ms": lambda v: _one(stored(v, "regroup_time", "regroup")),
    "gemm_fraction": _gemm_fraction,
    "top_kernel": lambda v: _top_kernel(v, only_other=False) + _top_by_phase(v),
    "top_kernel_share": lambda v: _nameless(_top_kernel(v, only_other=False) + _top_by_phase(v)),
    "top_non_gemm": lambda v: _top_kernel(v, only_other=True),
    "top_non_gemm_share": lambda v: _nameless(_top_kernel(v, only_other=True)),
    "category_share": lambda v: _shares(v, "category"),
    "category_ms": _kernel_ms,
    "origin_share": lambda v: _shares(v, "origin"),
    "forward_host": lambda v: _phase(v, "forward", "host_ns"),
    "softmax_kernels": lambda v: _phase(v, "softmax", "kernel_ns"),
    "matmul_kernels": lambda v: _one(_matmul_ms(v)),
    "softmax_to_matmul": _softmax_to_matmul,
    "softmax_to_matmul_flops": _softmax_to_matmul_flops,
    "forward_latency": lambda v: _phase_latency(v, "forward"),
    "backward_latency": lambda v: _phase_latency(v, "backward"),
    "peak_memory": lambda v: _gigabytes(v.summary.get("peak_memory_bytes")),
    "memory_reserved": lambda v: _gigabytes(v.summary.get("reserved_bytes")),
    "memory_before_backward": _before_backward,
    "phase_memory": _phase_memory,
    "grid_blocks": lambda v: _longest_product(v, "grid"),
    "waves_per_sm": lambda v: _longest_product(v, "waves_per_sm"),
    "compute_throughput": lambda v: _longest_product(v, "sm_pct"),
    "memory_throughput": lambda v: _longest_product(v, "memory_pct"),
    "bandwidth_share": lambda v: _peak_share(v, "bandwidth_frac"),
    "compute_share": lambda v: _peak_share(v, "compute_frac"),
    "max_abs_error": lambda v: _one(stored(v, "max_abs_error")),
}
_OF_KERNELS = ("gemm_", "top_", "category_", "origin_", "softmax_", "matmul_", "forward_host")
SEEN_BY: Mapping[str, frozenset[str]] = {
    "phase_memory": frozenset({"memory"}),
    **{name: frozenset({"nsys", "trace"}) for name in MEASURES if name.startswith(_OF_KERNELS)},
}
"""Profilers of what only they see: without one of them, running out of memory says nothing."""
