"""Points and ceilings of the roofline, and utilisation of a peak (MFU, MBU).

A figure needs its peak: the one measured on that very GPU if there is one, else the datasheet's,
and which of the two was used is part of the result. Where neither is known there is no figure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from core.gpus import datasheet_peaks
from core.model_sizes import DTYPE_BYTES

MEASURED = "measured"
DATASHEET = "datasheet"
COUNTER_POINT_COLUMNS = ("label", "category", "intensity", "flops_per_s", "duration_ns", "source")
OPERATOR_POINT_COLUMNS = ("label", "pass", "intensity", "flops_per_s", "duration_ns", "dtype")
CEILING_COLUMNS = ("source", "dtype", "bytes_per_s", "flops_per_s", "ridge")
LEVELS = {"DRAM": "dram_bytes", "L2": "l2_bytes"}
"""Levels of memory that a roofline can be of, and the bytes of a kernel that pass them."""
_DTYPE_OF_NAME = (
    ("bf16", re.compile(r"bf16|bfloat16|nvjet_(?:sm\d+_)?t", re.I)),
    ("fp8", re.compile(r"e4m3|e5m2|fp8|float8|nvjet_(?:sm\d+_)?(?:qq|oo)", re.I)),
    ("int8", re.compile(r"int8|s8s8|i8i8|imma", re.I)),
    (
        "fp16",
        re.compile(r"(?<!mma_)f16|fp16|\bhalf|__half|h884|h1688|h16816|nvjet_(?:sm\d+_)?h", re.I),
    ),
    ("tf32", re.compile(r"tf32|s1688", re.I)),
    ("fp32", re.compile(r"sgemm|ffma|simt|f32f32_f32f32|<float\b", re.I)),
)
"""What a matrix kernel's name says of its numbers, the first that is found.

cuDNN writes `wgmma_f16` for any numbers of 16 bits, and a parameter list may hold a float of any
kernel: neither tells.
"""
_OF_TENSORS = frozenset({"gemm", "gemv", "attention", "conv", "convolution"})
_LEAST_SHARE = 0.01
_TOLERANCE = 1.02
"""Timer resolution and clock drift may carry an honest figure 2 % over a measured peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """One rate with where it came from."""

    value: float
    source: str
    "`measured` or `datasheet`."


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """MFU and MBU of one iteration; None where cost, latency or peak is unknown or impossible."""

    mfu: float | None = None
    mbu: float | None = None
    mfu_peak: Peak | None = None
    mbu_peak: Peak | None = None
    errors: tuple[tuple[str, str], ...] = ()
    "(`mfu` or `mbu`, message) of a share above 100 %: an error of the model or the peak."


def flops_peak(peaks: Mapping[str, float], gpu_model: str | None, dtype: str) -> Peak | None:
    """Return the FLOP/s ceiling for a dtype (`bf16`, `fp32`, ...); None when unknown."""
    return _peak(peaks, gpu_model, f"gemm_{dtype}_flops_per_s")


def bytes_peak(peaks: Mapping[str, float], gpu_model: str | None) -> Peak | None:
    """Return the memory ceiling in B/s; None when unknown.

    The fastest that was measured of copying, reading and adding; of older measurements the copy.
    """
    return _peak(peaks, gpu_model, *_MEMORY_PEAKS)


_MEMORY_PEAKS = ("memory_bytes_per_s", "copy_bytes_per_s")


def _peak(peaks: Mapping[str, float], gpu_model: str | None, *names: str) -> Peak | None:
    """Return the peak of the first of these names that is known, measured before datasheet."""
    for source, rates in ((MEASURED, peaks), (DATASHEET, datasheet_peaks(gpu_model))):
        for name in names:
            value = rates.get(name)
            if value is not None and value > 0:
                return Peak(value=float(value), source=source)
    return None


def utilisation(
    *,
    cost: Mapping[str, Any],
    latency_ns: float | None,
    peaks: Mapping[str, float],
    gpu_model: str | None,
) -> Utilisation:
    """Return the share of the peaks that an iteration reached.

        mfu = flops [FLOP] / latency [s] / peak [FLOP/s]      of the cost model's `flops_dtype`
        mbu = bytes [B]    / latency [s] / peak [B/s]         (both 0 to 1)

    Above 1 (with 2 % for the timer) the model or the peak is wrong: an error, not a figure.
    """
    if not latency_ns or latency_ns <= 0:
        return Utilisation()
    dtype = str(cost.get("flops_dtype") or "")
    compute = flops_peak(peaks, gpu_model, dtype) if dtype else None
    memory = bytes_peak(peaks, gpu_model)
    mfu = _share(cost.get("flops"), latency_ns, compute)
    mbu = _share(cost.get("bytes"), latency_ns, memory)
    errors = tuple(
        (name, f"{name.upper()} would be {share:.0%} of the {peak.source} peak: the cost model, "
         "the latency or the peak is wrong, so no figure is shown")
        for name, share, peak in (("mfu", mfu, compute), ("mbu", mbu, memory))
        if share is not None and peak is not None and share > _TOLERANCE
    )  # fmt: skip
    wrong = {name for name, _ in errors}
    return Utilisation(
        mfu=None if mfu is None or "mfu" in wrong else min(mfu, 1.0),
        mbu=None if mbu is None or "mbu" in wrong else min(mbu, 1.0),
        mfu_peak=compute if mfu is not None else None,
        mbu_peak=memory if mbu is not None else None,
        errors=errors,
    )


def _share(amount: Any, latency_ns: float, peak: Peak | None) -> float | None:
    if not amount or peak is None:
        return None
    return float(amount) / (latency_ns * 1e-9) / peak.value


def counter_points(counters: pd.DataFrame, level: str = "DRAM") -> pd.DataFrame:
    """Return one point per launch whose FLOPs, bytes at a level and duration were all collected.

        intensity   = flops / bytes                         [FLOP/B]
        flops_per_s = flops / (duration_ns * 1e-9)          [FLOP/s]

    Columns COUNTER_POINT_COLUMNS; `source` is `counters`. A launch without FLOPs has no place on a
    logarithmic roofline and is left out.
    """
    if counters.empty:
        return pd.DataFrame({c: [] for c in COUNTER_POINT_COLUMNS})
    moved = counters.get(LEVELS[level], pd.Series(float("nan"), index=counters.index))
    whole = (counters["flops"] > 0) & (moved > 0) & (counters["duration_ns"] > 0)
    rows, moved = counters[whole], moved[whole]
    return pd.DataFrame(
        {
            "label": rows["short_name"],
            "category": rows.get("category", pd.Series("unknown", index=rows.index)),
            "intensity": rows["flops"] / moved,
            "flops_per_s": rows["flops"] / (rows["duration_ns"] * 1e-9),
            "duration_ns": rows["duration_ns"],
            "source": "counters",
        }
    )


def dtype_of_name(name: str) -> str | None:
    """Return the kind of number that a matrix kernel's name tells; None where it tells none."""
    return next((dtype for dtype, rule in _DTYPE_OF_NAME if rule.search(name)), None)


def dtypes_in_use(kernels: pd.DataFrame, declared: str | None) -> list[str]:
    """Return the kinds of numbers of a run's matrix kernels, the one with most time first.

    Those below one per cent of the kernel time are left out; without any, the declared one.
    """
    times: dict[str, float] = {}
    whole = float(kernels["total_ns"].sum()) if len(kernels) else 0.0
    if whole:
        own = kernels[kernels["category"].isin(_OF_TENSORS)]
        for name, total in zip(own["name"], own["total_ns"], strict=True):
            dtype = dtype_of_name(str(name))
            if dtype:
                times[dtype] = times.get(dtype, 0.0) + float(total)
    used = [d for d, t in sorted(times.items(), key=lambda x: -x[1]) if t >= _LEAST_SHARE * whole]
    if declared and declared not in used:
        used.insert(0, declared)
    return used


def operator_points(
    operators: pd.DataFrame, operator_kernels: pd.DataFrame, declared: str | None = None
) -> pd.DataFrame:
    """Return one point per operator whose work follows from its shapes (OPERATOR_POINT_COLUMNS).

        intensity   = flops / (elements * bytes of an element)     [FLOP/B]
        flops_per_s = flops / (kernel time * 1e-9)                 [FLOP/s]

    The bytes are the least that must move: inputs once, outputs once. The size of an element is
    that of the numbers that its longest kernel's name tells, else the run's declared dtype; without
    either an operator has no place.
    """
    rows = []
    if not {"elements", "flops"} <= set(operators.columns):
        return pd.DataFrame(columns=list(OPERATOR_POINT_COLUMNS))
    known = operators[
        (operators["flops"].astype(float) > 0)
        & (operators["elements"].astype(float) > 0)
        & (operators["total_kernel_ns"].astype(float) > 0)
    ]
    longest = operator_kernels.sort_values("total_ns", ascending=False, kind="stable")
    for row in known.to_dict("records"):
        mine = longest[(longest["name"] == row["name"]) & (longest["pass"] == row["pass"])]
        dtype = next(filter(None, map(dtype_of_name, mine["kernel"])), declared)
        if dtype is None or dtype not in DTYPE_BYTES:
            continue
        moved = float(row["elements"]) * DTYPE_BYTES[dtype]
        flops, time_ns = float(row["flops"]), float(row["total_kernel_ns"])
        rate = flops / (time_ns * 1e-9)
        rows.append((row["name"], row["pass"], flops / moved, rate, time_ns, dtype))
    return pd.DataFrame(rows, columns=list(OPERATOR_POINT_COLUMNS))


def l2_ceilings(ceilings_: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """Return the roofs with the L2 cache as the memory; empty where no counter states its peak.

    The peak rate is the median over launches: each was measured at the clocks of its own time.
    """
    peaks = counters.get("peak_l2_bytes_per_s", pd.Series(dtype=float)).dropna()
    if peaks.empty:
        return ceilings_.iloc[:0]
    rate = float(peaks.median())
    return ceilings_.assign(bytes_per_s=rate, ridge=ceilings_["flops_per_s"] / rate)


def cost_point(cost: Mapping[str, Any], latency_ns: float | None) -> tuple[float, float] | None:
    """Return (intensity in FLOP/B, FLOP/s) of a whole iteration by its cost model, or None."""
    flops, moved = cost.get("flops"), cost.get("bytes")
    if not flops or not moved or not latency_ns or latency_ns <= 0:
        return None
    return float(flops) / float(moved), float(flops) / (latency_ns * 1e-9)


def ceilings(peaks: Mapping[str, float], gpu_model: str | None, dtype: str) -> pd.DataFrame:
    """Return the known roofs for a dtype, measured first (CEILING_COLUMNS).

    ridge = flops_per_s / bytes_per_s [FLOP/B]: left of it memory is the limit, right of it compute.
    """
    rows = []
    for source, rates in ((MEASURED, peaks), (DATASHEET, datasheet_peaks(gpu_model))):
        flops = rates.get(f"gemm_{dtype}_flops_per_s")
        memory = next((rates[name] for name in _MEMORY_PEAKS if rates.get(name)), None)
        if flops and memory:
            rows.append((source, dtype, float(memory), float(flops), float(flops) / float(memory)))
    return pd.DataFrame(rows, columns=list(CEILING_COLUMNS))
