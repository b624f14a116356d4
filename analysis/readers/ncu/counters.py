"""Counters of one launch from ncu's metrics: names across versions, units, FLOP and byte formulas.

Names and formulas: NVIDIA Nsight Compute documentation, "Metrics Reference" and the roofline
section files, versions 2022.4 to 2025.3. A quantity whose metrics were not collected is NaN.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

Values = Mapping[tuple[str, str], float]
"""(metric name, base unit) -> value in that unit; times are in ns."""

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A column, the base unit, and the names that mean it, the best first."""

    column: str
    unit: str
    names: tuple[str, ...]


COUNTERS = (
    Counter(
        column="duration_ns",
        unit="ns",
        names=(
            "gpu__time_duration.sum",
            "gpu__time_duration.max",
            "gpu__time_duration.avg",
            "gpu__time_duration_measured_user.sum",
            "gpu__time_active.sum",
            "Duration",
        ),
    ),
    Counter(
        column="sm_pct",
        unit="%",
        names=(
            "sm__throughput.avg.pct_of_peak_sustained_elapsed",
            "Compute (SM) Throughput",
            "Compute (SM) [%]",
            "SOL SM",
            "SM [%]",
        ),
    ),
    Counter(
        column="memory_pct",
        unit="%",
        names=(
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
            "Memory Throughput",
            "Memory [%]",
            "SOL Memory",
        ),
    ),
    Counter(
        column="dram_pct",
        unit="%",
        names=(
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "DRAM Throughput",
            "SOL DRAM",
        ),
    ),
    Counter(
        column="l2_pct",
        unit="%",
        names=(
            "lts__throughput.avg.pct_of_peak_sustained_elapsed",
            "L2 Cache Throughput",
            "SOL L2 Cache",
        ),
    ),
    Counter(
        column="occupancy_pct",
        unit="%",
        names=("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
    ),
    Counter(
        column="theoretical_occupancy_pct",
        unit="%",
        names=("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"),
    ),
    Counter(
        column="waves_per_sm",
        unit="",
        names=("launch__waves_per_multiprocessor", "Waves Per SM"),
    ),
)
_CYCLES = ("gpc__cycles_elapsed.max", "Elapsed Cycles", "sm__cycles_elapsed.max")
_REGISTERS = ("launch__registers_per_thread", "Registers Per Thread")
_SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_PRECISIONS = (("fadd", "fmul", "ffma"), ("dadd", "dmul", "dfma"), ("hadd", "hmul", "hfma"))
_FFMA_PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"


Named = Mapping[str, float]
"""Metrics that were collected, by name, whatever their unit."""


def by_name(values: Values) -> Named:
    """Return the metrics that were collected; the first of a name in several units."""
    named: dict[str, float] = {}
    for (name, _), value in values.items():
        if not math.isnan(value):
            named.setdefault(name, value)
    return named


def any_unit(named: Named, names: tuple[str, ...]) -> float:
    """Return the first of these metrics that was collected; else NaN."""
    return next((named[name] for name in names if name in named), NAN)


def counters_of(values: Values) -> dict[str, float]:
    """Return the value of every numeric counter column; NaN is "not collected"."""
    row = {c.column: _first(values, c.names, c.unit) for c in COUNTERS}
    row["dram_bytes"] = _dram_bytes(values, row["duration_ns"])
    named = by_name(values)
    row["flops"] = _flops(values, named, row["duration_ns"])
    row["peak_flops_per_s"] = (
        2 * _any(named, _FFMA_PEAK) * _any(named, "sm__cycles_elapsed.avg.per_second")
    )
    row["elapsed_cycles"] = any_unit(named, _CYCLES)
    row["l2_bytes"] = _l2_bytes(values, named)
    share = _any(named, _L2_SHARE) / 100
    is_known = share > 0 and row["duration_ns"] > 0
    rate = row["l2_bytes"] / (row["duration_ns"] * 1e-9) if is_known else NAN
    row["peak_l2_bytes_per_s"] = rate / share if is_known else NAN
    row["registers"] = any_unit(named, _REGISTERS)
    return row


def _first(values: Values, names: tuple[str, ...], unit: str) -> float:
    for name in names:
        value = values.get((name, unit), NAN)
        if not math.isnan(value):
            return value
    return NAN


def _any(named: Named, name: str) -> float:
    return named.get(name, NAN)


def _dram_bytes(values: Values, duration_ns: float) -> float:
    """Bytes read + written; else the sum; else the mean rate (bytes/s) times the duration (s)."""
    parts = _first(values, ("dram__bytes_read.sum",), "byte") + _first(
        values, ("dram__bytes_write.sum",), "byte"
    )
    if not math.isnan(parts):
        return parts
    total = _first(values, ("dram__bytes.sum",), "byte")
    if not math.isnan(total):
        return total
    rate = _first(values, ("dram__bytes.sum.per_second", "Memory Throughput"), "byte/s")
    return rate * duration_ns / 1e9


_L2_SHARE = "lts__t_sectors.sum.pct_of_peak_sustained_elapsed"
_SECTOR_BYTES = 32


def _l2_bytes(values: Values, named: Named) -> float:
    """Bytes through the tags of the L2 slices, as ncu's own hierarchical roofline counts them."""
    total = _first(values, ("lts__t_bytes.sum",), "byte")
    return total if not math.isnan(total) else _SECTOR_BYTES * _any(named, "lts__t_sectors.sum")


def _flops(values: Values, named: Named, duration_ns: float) -> float:
    """add + mul + 2 fma of every precision collected, in operations of the whole launch.

    Tensor cores have counters of their own. Where they worked and those counters were not
    collected, the sum would leave most of the work out, so the answer is NaN.
    """
    tensor = _tensor_flops(values)
    if math.isnan(tensor):
        return NAN
    sums = [_precision_flops(named, ops, duration_ns) for ops in _PRECISIONS]
    known = [s for s in sums if not math.isnan(s)]
    return sum(known) + tensor if known else NAN


def _precision_flops(named: Named, ops: tuple[str, str, str], duration_ns: float) -> float:
    counts = [_executed(named, _SASS.format(op), duration_ns) for op in ops]
    return counts[0] + counts[1] + 2 * counts[2]


def _executed(named: Named, name: str, duration_ns: float) -> float:
    """Instructions: the sum; else per cycle times cycles; else per second times the duration."""
    total = _any(named, name)
    if not math.isnan(total):
        return total
    per_cycle = _any(named, f"{name}.per_cycle_elapsed")
    cycles = any_unit(named, ("sm__cycles_elapsed.avg", "smsp__cycles_elapsed.avg"))
    if math.isnan(cycles):
        clock = any_unit(
            named, ("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
        )
        cycles = clock * duration_ns / 1e9
    return per_cycle * cycles


def _tensor_flops(values: Values) -> float:
    """0 where no tensor core worked, their operations where counted, NaN where they are unknown."""
    tensor_counters = [(name, value) for (name, _), value in values.items() if "tensor" in name]
    ops = {
        name: value
        for name, value in tensor_counters
        if name.startswith("sm__ops_path_tensor") and name.endswith(".sum")
    }
    dense = [v for n, v in ops.items() if "sparsity_on" not in n and not math.isnan(v)]
    if dense:
        return sum(dense)
    activity = [
        value
        for name, value in tensor_counters
        if name.startswith(("sm__inst_executed_pipe", "sm__pipe_tensor"))
    ]
    return NAN if any(value > 0 for value in activity) else 0.0
