"""Measures of studies: by name, a function from a run to its readings.

No reading means unknown; nothing is ever 0 for unknown. Times are ms, memory GB (1e9 bytes),
shares %, all as the tables print them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.classify import label
from analysis.compare.gpus import make_scoreboard
from analysis.compare.waterfall import OPAQUE_NAME
from analysis.latency import latency_of_processes
from analysis.per_step import calls_of_one, step_fractions, transfers_of_one
from analysis.runview import RunView
from analysis.studies.engine.readings import (
    GEMM_CATEGORIES,
    NS_PER_MS,
    Reading,
    kernel_shares,
    latency,
    phase_ns,
    phase_top,
    stored,
)
from core.gpus import find_gpu

BYTES_PER_GB = 1e9
MAX_CALLS = 8
"""Host calls of a run that a table shows, the longest."""
SOFTMAX_FLOPS = 5
"""A row element of a softmax: maximum, subtract, exponential, sum, divide."""
Measure = Callable[[RunView], Iterable[Reading]]


def _one(value: float | None, ci95: tuple[float, float] | None = None) -> list[Reading]:
    return [] if value is None else [Reading(value=value, ci95=ci95)]


def _latency(view: RunView) -> list[Reading]:
    statistics = view.summary.get("latency_ms")
    ci95 = statistics.get("ci95") if isinstance(statistics, Mapping) else None
    return _one(latency(view, "median"), (float(ci95[0]), float(ci95[1])) if ci95 else None)


LATENCY_STATISTICS = {
    "latency": "median",
    **{f"latency_{name}": name for name in ("mean", "std", "min", "max", "cv")},
}
"""Measures that are a statistic of a run's samples, and which."""


def latency_over(
    measure: str, views: Sequence[RunView]
) -> tuple[float, tuple[float, float] | None] | None:
    """Return a statistic of the samples of several runs of one job with its interval.

    None where the measure is no such statistic, or a run has it without its samples.
    """
    statistic = LATENCY_STATISTICS.get(measure)
    if statistic is None or not all(len(view.samples) for view in views):
        return None
    processes = {
        f"{i} {process}": times_ms
        for i, view in enumerate(views)
        for process, times_ms in _by_process(view.samples)
    }
    statistics = latency_of_processes([processes[key] for key in sorted(processes)])
    if statistic not in statistics:
        return None
    ci95 = statistics.get("ci95") if statistic == "median" else None
    scale = 100 if statistic == "cv" else 1
    return scale * statistics[statistic], (ci95[0], ci95[1]) if ci95 else None


def _by_process(samples: pd.DataFrame) -> Iterator[tuple[Any, np.ndarray]]:
    of = samples["process"].to_numpy()
    times_ms = samples["latency_ns"].to_numpy(dtype=float) / NS_PER_MS
    for process in dict.fromkeys(of.tolist()):
        yield process, times_ms[of == process]


def _latency_statistic(view: RunView, name: str) -> list[Reading]:
    return _one(latency(view, name, 100 if name == "cv" else 1.0))


def _calls(view: RunView, quantity: str) -> list[Reading]:
    """Return each host call with its share of the time in calls, total, count or mean."""
    rows = view.api_calls
    total_ns = float(rows["total_ns"].sum()) if len(rows) else 0.0
    if not total_ns:
        return []
    top = rows.sort_values("total_ns", ascending=False).head(MAX_CALLS)
    values = {
        "share": 100 * top["total_ns"] / total_ns,
        "total": top["total_ns"] / NS_PER_MS,
        "count": top["count"],
        "mean": top["total_ns"] / top["count"] / 1e3,
    }[quantity]
    return [
        Reading(value=float(value), extra=str(name))
        for name, value in zip(top["name"], values, strict=True)
    ]


def _copy_us_per_token(view: RunView, kind: str) -> list[Reading]:
    """Return the device time of one kind of copy for each token of the profiled iterations.

    Where copies were recorded and none is of this kind, that is 0.
    """
    tokens, moved = view.cost.get("num_tokens"), transfers_of_one(view)
    rows = moved[moved["kind"] == kind]
    if not tokens or not len(moved):
        return []
    return _one(float(rows["total_ns"].sum()) / 1e3 / float(tokens))


def _allocations(view: RunView) -> list[Reading]:
    """Return the driver allocations of a step: none where a caching allocator is warm."""
    calls = calls_of_one(view)
    if not len(calls):
        return []
    is_one = calls["name"].str.contains(r"^(?:cudaMalloc|cuMemAlloc)", regex=True)
    return _one(float(calls.loc[is_one, "count"].sum()))


def _gemm_fraction(view: RunView) -> list[Reading]:
    of_step = step_fractions(view.by_step)
    share = (of_step or view.summary).get("gemm_frac")
    return _one(None if share is None else 100 * float(share))


def _top_kernel(view: RunView, quantity: str, *, only_other: bool) -> list[Reading]:
    """Return the name of the longest kernel with its share, total (ms) or instances.

    `what`: `share` of all kernel time, `total` or `count` over the capture.
    """
    shares = kernel_shares(view, "name")
    if only_other:
        classes = view.kernels.drop_duplicates("name").set_index("name")["category"]
        shares = shares[[classes[name] not in GEMM_CATEGORIES for name in shares.index]]
    if not len(shares):
        return []
    name = str(shares.index[0])
    is_opaque = bool(view.kernels.loc[view.kernels["name"] == name, "is_opaque"].any())
    shown = OPAQUE_NAME if is_opaque else label(name)
    rows = view.kernels[view.kernels["name"] == name]
    value = 100 * float(shares.iloc[0])
    if quantity != "share":
        column, unit = {"total": ("total_ns", NS_PER_MS), "count": ("count", 1)}[quantity]
        value = float(rows[column].sum()) / unit
    return [Reading(value=value, extra=shown, fields=_how_recorded(view))]


def _how_recorded(view: RunView) -> dict[str, str]:
    """Return a field that keeps whole graphs apart from runs whose kernels were recorded."""
    return {"recorded": "whole graphs"} if view.kernels["is_opaque"].any() else {}


def _top_by_phase(view: RunView, quantity: str = "share") -> list[Reading]:
    """Return the longest kernel of the forward and of the backward phase of a training step."""
    mode = str(view.run.params.get("mode", ""))
    if mode in ("", "forward"):
        return []
    readings = []
    for phase in ("forward", "backward"):
        if (top := phase_top(view, phase)) is not None:
            where = {"mode": f"{mode}/{phase}"}
            value = {"share": 100 * top[1], "total": top[2] / NS_PER_MS, "count": float(top[3])}
            readings.append(Reading(value=value[quantity], extra=label(top[0]), fields=where))
    return readings


def _top_of_any(view: RunView, quantity: str) -> list[Reading]:
    return _top_kernel(view, quantity, only_other=False) + _top_by_phase(view, quantity)


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
    time_ns = phase_ns(view, tail, column)
    return _one(None if time_ns is None else time_ns / NS_PER_MS)


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
    time_ns = stored(view, "phase_latency", phase)
    return _one(None if time_ns is None else time_ns / NS_PER_MS)


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
    """Return a counter of the longest profiled GEMM or GEMV launch.

    Blocks and waves follow from the sizes where no launch was profiled.
    """
    if not len(view.counters):
        blocks = stored(view, "grid_blocks")
        blocks = _tile_blocks(view) if blocks is None else blocks
        gpu = find_gpu(view.run.gpu_model or "")
        if column == "grid":
            return _one(blocks)
        is_known = column == "waves_per_sm" and blocks is not None and gpu is not None
        return _one(blocks / gpu.num_sms) if is_known else []  # type: ignore[operator, union-attr]
    rows = view.counters[view.counters["category"].isin(GEMM_CATEGORIES)]
    rows = rows[rows["duration_ns"].notna()].sort_values("duration_ns", ascending=False)
    if not len(rows):
        return []
    if column == "grid":
        return _one(_num_blocks(rows["grid"].iloc[0]))
    value = rows[column].iloc[0]
    return _one(float(value) if value == value else None)


def _tile_blocks(view: RunView) -> float | None:
    """Return M / tile x N / tile, both rounded up, times the parts that K is split into."""
    params = view.run.params
    if params.get("implementation", "triton") != "triton":  # its tiles are its own
        return None
    sizes = [s for k in ("m", "n", "tile_m", "tile_n") if isinstance(s := params.get(k), int)]
    if len(sizes) < 4 or min(sizes) <= 0:
        return None
    m, n, tile_m, tile_n = sizes
    return float(-(-m // tile_m) * -(-n // tile_n) * (params.get("split_k") or 1))


def _num_blocks(grid: object) -> float | None:
    if not isinstance(grid, str):
        return None
    x, y, z = (int(n) for n in grid.split(","))
    return float(x * y * z)


def _peak_share(view: RunView, column: str) -> list[Reading]:
    rows = make_scoreboard([view])
    share = getattr(rows[0], column) if rows else None
    return _one(None if share is None else 100 * share)


def _gpu_time_per_token(view: RunView) -> list[Reading]:
    """Return the time of all GPUs together for a token [us]: what scaling keeps, if it is ideal."""
    rate = stored(view, "tokens_per_s")
    num_ranks = view.run.params.get("gpus", 1)
    return _one(1e6 * float(num_ranks) / rate if rate else None)


def _exposed_communication(view: RunView) -> list[Reading]:
    share = view.summary.get("exposed_communication_frac")
    return _one(None if share is None else 100 * float(share))


def _bus_bandwidth(view: RunView) -> list[Reading]:
    """Return the bus bandwidth of each size that the workload `allreduce` measured."""
    rows = view.metrics[view.metrics["name"] == "bus_gbyte_per_s"]
    return [
        Reading(value=float(value), extra=str(phase).replace("_", " "))
        for phase, value in zip(rows["phase"], rows["value"], strict=True)
    ]


MEASURES: Mapping[str, Measure] = {
    "latency": _latency,
    **{
        f"latency_{name}": partial(_latency_statistic, name=name)
        for name in ("mean", "std", "min", "max", "cv")
    },
    "tokens_per_s": lambda v: _one(stored(v, "tokens_per_s")),
    "gpu_time_per_token": _gpu_time_per_token,
    "exposed_communication": _exposed_communication,
    "bus_bandwidth": _bus_bandwidth,
    "gflop_per_s": lambda v: _one(_first(v, "throughput", "model_gflop_per_s")),
    "regroup_ms": lambda v: _one(stored(v, "regroup_time", "regroup")),
    "gemm_fraction": _gemm_fraction,
    **{
        f"top_kernel_{what}": partial(_top_of_any, quantity=what)
        for what in ("share", "total", "count")
    },
    **{
        f"top_non_gemm_{what}": partial(_top_kernel, quantity=what, only_other=True)
        for what in ("share", "total", "count")
    },
    "category_share": lambda v: _shares(v, "category"),
    "category_ms": _kernel_ms,
    "origin_share": lambda v: _shares(v, "origin"),
    "forward_host": lambda v: _phase(v, "forward", "host_ns"),
    "forward_projected": lambda v: _phase(v, "forward", "projected_ns"),
    **{
        f"call_{what}": partial(_calls, quantity=what)
        for what in ("share", "total", "count", "mean")
    },
    "dtoh_us_per_token": lambda v: _copy_us_per_token(v, "DtoH"),
    "dtod_us_per_token": lambda v: _copy_us_per_token(v, "DtoD"),
    "allocations": _allocations,
    "memory_allocated": lambda v: _gigabytes(v.summary.get("allocated_bytes")),
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
_OF_KERNELS = (
    *("gemm_", "top_", "category_", "origin_", "softmax_", "matmul_", "forward_host"),
    *("forward_projected", "call_", "dtoh_", "dtod_", "allocations"),
)
SEEN_BY: Mapping[str, frozenset[str]] = {
    "phase_memory": frozenset({"memory"}),
    "exposed_communication": frozenset({"nsys", "trace"}),
    **{name: frozenset({"nsys", "trace"}) for name in MEASURES if name.startswith(_OF_KERNELS)},
}
"""Profilers of what only they see: without one, running out of memory does not explain a gap."""
STORED = "metric:"
"""Before the name of a number that the program printed: `metric:tok/s`."""


def measure_of(name: str) -> Measure:
    """Return the measure of this name, or the one that reads a stored metric: `metric:NAME`."""
    if name.startswith(STORED):
        base, _, phase = name.removeprefix(STORED).partition(":")
        return lambda view: _one(stored(view, base, phase))
    return MEASURES[name]


def readings_of(view: RunView, name: str) -> Sequence[Reading]:
    """Return a run's readings of a measure, worked out once or given with the run."""
    return view.once(("measure", name), lambda: tuple(measure_of(name)(view)))
