"""Points and ceilings of the roofline, and utilisation of a peak (MFU, MBU).

A figure needs its peak: the one measured on that very GPU if there is one, else the datasheet's,
and which of the two was used is part of the result. Where neither is known there is no figure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from core.gpus import datasheet_peaks

MEASURED = "measured"
DATASHEET = "datasheet"
COUNTER_POINT_COLUMNS = ("label", "category", "intensity", "flops_per_s", "duration_ns", "source")
CEILING_COLUMNS = ("source", "dtype", "bytes_per_s", "flops_per_s", "ridge")
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
    """Return the memory ceiling in B/s; None when unknown."""
    return _peak(peaks, gpu_model, "copy_bytes_per_s")


def _peak(peaks: Mapping[str, float], gpu_model: str | None, name: str) -> Peak | None:
    for source, rates in ((MEASURED, peaks), (DATASHEET, datasheet_peaks(gpu_model))):
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


def counter_points(counters: pd.DataFrame) -> pd.DataFrame:
    """Return one point a launch whose FLOPs, DRAM bytes and duration were all collected.

        intensity   = flops / dram_bytes                    [FLOP/B]
        flops_per_s = flops / (duration_ns * 1e-9)          [FLOP/s]

    Columns COUNTER_POINT_COLUMNS; `source` is `counters`. A launch without FLOPs has no place on a
    logarithmic roofline and is left out.
    """
    if counters.empty:
        return pd.DataFrame({c: [] for c in COUNTER_POINT_COLUMNS})
    whole = (counters["flops"] > 0) & (counters["dram_bytes"] > 0) & (counters["duration_ns"] > 0)
    rows = counters[whole]
    return pd.DataFrame(
        {
            "label": rows["short_name"],
            "category": rows.get("category", pd.Series("unknown", index=rows.index)),
            "intensity": rows["flops"] / rows["dram_bytes"],
            "flops_per_s": rows["flops"] / (rows["duration_ns"] * 1e-9),
            "duration_ns": rows["duration_ns"],
            "source": "counters",
        }
    )


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
        memory = rates.get("copy_bytes_per_s")
        if flops and memory:
            rows.append((source, dtype, float(memory), float(flops), float(flops) / float(memory)))
    return pd.DataFrame(rows, columns=list(CEILING_COLUMNS))
