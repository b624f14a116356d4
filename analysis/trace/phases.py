"""The phases table: host time, GPU projection and kernel sum of each range path, kept apart.

What was launched inside a range is a slice of its thread's operations in order of launch, so sums
come from running totals and the projection from extremes of slices, whether ranges nest or overlap.
An operation counts once in a path. `kernel_ns` is missing for a path with opaque CUDA graph
launches: the kernels inside were not recorded, and a sum without them would look complete.
`projected_ns` includes graphs and copies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import slice_minima
from analysis.tables import PHASE_COLUMNS
from analysis.trace.attribution import Attribution, launching_thread
from analysis.trace.calls import of_launch
from analysis.trace.model import MISSING, Bools, Int32s, Int64s, OpKind, Trace
from analysis.trace.ranges import FAR, Intervals, PhaseRanges, by_thread
from core.trace_rules import PATH_SEPARATOR

MAX_PATHS = 20_000
RECOUNT_BUDGET = 50_000_000
"""Operations that are counted one by one where launches outlast their range (crafted files)."""
LAUNCH_THREAD, PROCESS_TIME, DEVICE_TIME = "launch_thread", "process_time", "device_time"
SUMS = ("num_kernels", "kernel_ns", "num_opaque", "num_by_process")

Rows = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases frame (PHASE_COLUMNS) and what did not fit."""

    frame: pd.DataFrame
    num_left_out: int
    num_straddled: int
    "Ranges whose count includes launches that outlast them (only crafted files)."


def phase_table(trace: Trace, ranges: PhaseRanges, given: Attribution) -> Phases:
    """Return one row a path and process; kernel figures are missing where no GPU work is known."""
    totals = {name: np.zeros(len(ranges.paths), np.int64) for name in (*SUMS, "projected_ns")}
    num_straddled = 0
    for intervals, rows, is_by_process in _threads(trace, ranges, given):
        work = _Work(trace, given, rows, is_by_process)
        num_straddled += work.add_to(totals, intervals, ranges.path[intervals.rows])
    frame = _frame(trace, ranges, totals, is_by_device_time=given.is_by_device_time)
    kept = _largest(frame)
    return Phases(frame=kept, num_left_out=len(frame) - len(kept), num_straddled=num_straddled)


def _threads(
    trace: Trace, ranges: PhaseRanges, given: Attribution
) -> Iterator[tuple[Intervals, Rows, Bools]]:
    """Give each thread's phases with the operations that it launched or was given."""
    thread = launching_thread(trace)
    taker = np.append(ranges.ranges.thread, np.int32(MISSING))[given.by_process]
    for number, intervals in by_thread(ranges.ranges, ranges.rows, ranges.parent):
        is_taken = taker == number
        rows = np.flatnonzero(is_taken | (thread == number)).astype(np.int32)
        if len(rows):
            yield intervals, rows, is_taken[rows]


class _Work:
    """The operations under the phases of one thread, in order of launch."""

    def __init__(self, trace: Trace, given: Attribution, rows: Rows, is_by_process: Bools) -> None:
        launch_ns = given.launch_ns[rows]
        if (launch_ns[1:] < launch_ns[:-1]).any():
            order = np.argsort(launch_ns, kind="stable").astype(np.int32)
            rows, launch_ns, is_by_process = rows[order], launch_ns[order], is_by_process[order]
        self._trace, self._rows = trace, rows
        self._launch_ns = launch_ns
        self._is_by_process = is_by_process
        self._is_by_device_time = given.is_by_device_time

    def add_to(self, totals: dict[str, Int64s], intervals: Intervals, path: Int32s) -> int:
        """Add the sums of each path; return how many ranges count launches that outlast them."""
        end_ns = intervals.end_ns[:-1]
        low = np.searchsorted(self._launch_ns, intervals.start_ns, side="left")
        launch_end_ns = self._launch_end_ns()
        is_in_order = not (launch_end_ns[1:] < launch_end_ns[:-1]).any()
        last_ns = launch_end_ns if is_in_order else self._launch_ns
        high = np.maximum(np.searchsorted(last_ns, end_ns, side="right"), low)
        del last_ns, launch_end_ns
        fresh = _without_repeats(low, high, path)
        sums = {
            name: _slice_sums(self._column(name), fresh, np.maximum(high, fresh)) for name in SUMS
        }
        ops = self._trace.gpu_ops
        first = slice_minima(ops.start_ns[self._rows], low, high)
        last = -slice_minima(-ops.end_ns[self._rows], low, high)
        sums["projected_ns"] = np.where(low < high, last - first, 0)
        num_straddled = 0 if is_in_order else self._recount(end_ns, (low, high, fresh), sums)
        for name, values in sums.items():
            np.add.at(totals[name], path, values)
        return num_straddled

    def _launch_end_ns(self) -> Int64s:
        if self._is_by_device_time:
            return self._launch_ns
        launch = self._trace.gpu_ops.launch[self._rows]
        return of_launch(self._trace.host_calls.end_ns, launch, 0)

    def _column(self, name: str) -> NDArray[Any]:
        if name == "num_by_process":
            return self._is_by_process
        ops, rows = self._trace.gpu_ops, self._rows
        kind = ops.kind[rows]
        if name == "num_opaque":
            return np.asarray(kind == OpKind.GRAPH)
        is_kernel = np.asarray(kind == OpKind.KERNEL)
        if name == "num_kernels":
            return is_kernel
        duration = ops.end_ns[rows]
        duration -= ops.start_ns[rows]
        duration[~is_kernel] = 0
        return duration

    def _recount(
        self, end_ns: Int64s, slices: tuple[Rows, Rows, Rows], sums: dict[str, Int64s]
    ) -> int:
        """Correct, in place, ranges with a launch that starts inside and ends after them."""
        low, high, fresh = slices
        ops, launch_end_ns = self._trace.gpu_ops, self._launch_end_ns()
        reach = np.append(np.maximum.accumulate(launch_end_ns), -FAR)
        columns = {name: self._column(name) for name in SUMS}
        budget, num_straddled = RECOUNT_BUDGET, 0
        for i in np.flatnonzero((low < high) & (reach[high - 1] > end_ns)).tolist():
            budget -= int(high[i] - low[i])
            if budget < 0:
                num_straddled += 1
                continue
            inside = np.flatnonzero(launch_end_ns[low[i] : high[i]] <= end_ns[i]) + low[i]
            counted = inside[inside >= fresh[i]]
            for name, column in columns.items():
                sums[name][i] = column[counted].sum(dtype=np.int64)
            first, last = ops.start_ns[self._rows[inside]], ops.end_ns[self._rows[inside]]
            sums["projected_ns"][i] = last.max() - first.min() if len(inside) else 0
        return num_straddled


def _slice_sums(values: NDArray[Any], low: Rows, high: Rows) -> Int64s:
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    return running[high] - running[low]


def _without_repeats(low: Rows, high: Rows, path: Int32s) -> Rows:
    """Return the slices' starts moved past what an earlier range of the same path has counted."""
    order = np.lexsort((low, path))
    size = int(high.max(initial=0)) + 1
    base = (path[order].astype(np.int64) + 1) * size
    reached = np.maximum.accumulate(high[order] + base) if len(order) else base
    before = np.concatenate([[0], reached[:-1]]) - base if len(order) else base
    fresh = low.copy()
    fresh[order] = np.maximum(low[order], np.minimum(before, high[order]))
    return fresh


def _frame(
    trace: Trace, ranges: PhaseRanges, totals: dict[str, Int64s], *, is_by_device_time: bool
) -> pd.DataFrame:
    num_paths, rows = len(ranges.paths), ranges.rows
    path = ranges.path[rows]
    start_ns, end_ns = trace.host_ranges.start_ns[rows], trace.host_ranges.end_ns[rows]
    host = np.zeros(num_paths, np.int64)
    np.add.at(host, path, end_ns - start_ns)
    first_start = np.full(num_paths, FAR)
    np.minimum.at(first_start, path, start_ns)
    has_work = len(trace.gpu_ops) > 0
    by_process = DEVICE_TIME if is_by_device_time else PROCESS_TIME
    frame = pd.DataFrame(
        {
            "path": pd.Series(ranges.paths, dtype="str"),
            "process": ranges.path_process,
            "num_ranges": np.bincount(path, minlength=num_paths),
            "host_ns": pd.array(host, "Int64"),
            "projected_ns": _known(totals["projected_ns"], np.full(num_paths, has_work)),
            "kernel_ns": _known(totals["kernel_ns"], has_work & (totals["num_opaque"] == 0)),
            "num_kernels": totals["num_kernels"],
            "attribution": np.where(totals["num_by_process"] > 0, by_process, LAUNCH_THREAD),
            "first_start_ns": first_start,
        },
        columns=list(PHASE_COLUMNS),
    )
    return frame.sort_values(["process", "first_start_ns"], kind="stable", ignore_index=True)


def _known(values: Int64s, is_known: Bools) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.copy(), ~is_known)


def _largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_PATHS rows: the shallow ones first, then the longest."""
    if len(frame) <= MAX_PATHS:
        return frame
    depth = frame["path"].str.count(PATH_SEPARATOR)
    order = np.lexsort((-frame["host_ns"].to_numpy(np.int64), depth))
    return frame.iloc[np.sort(order[:MAX_PATHS])].reset_index(drop=True)
