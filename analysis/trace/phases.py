"""The phases table: host time, GPU projection and kernel sum of each range path, kept apart.

What was launched inside a range is a slice of its thread's operations in order of launch, so sums
come from running totals and the projection from extremes of slices, whether ranges nest or overlap.
An operation counts once in a path. `kernel_ns` is missing for a path with opaque CUDA graph
launches: the kernels inside were not recorded, and a sum without them would look complete.
`projected_ns` includes graphs and copies.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import SliceMin
from analysis.tables import PHASE_COLUMNS
from analysis.trace.attribution import Attribution, launching_thread
from analysis.trace.model import Bools, Int32s, Int64s, OpKind, Trace
from analysis.trace.ranges import FAR, Intervals, PhaseRanges, by_thread
from core.trace_rules import PATH_SEPARATOR

MAX_PATHS = 20_000
RECOUNT_BUDGET = 50_000_000
"""Operations that are counted one by one where launches outlast their range (crafted files)."""
LAUNCH_THREAD, PROCESS_TIME, DEVICE_TIME = "launch_thread", "process_time", "device_time"
SUMS = ("num_kernels", "kernel_ns", "num_opaque", "num_by_process")

Rows = NDArray[np.intp]


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
    order = np.argsort(thread, kind="stable")
    grouped = thread[order]
    taken = np.flatnonzero(given.by_process >= 0)
    taker = ranges.ranges.thread[given.by_process[taken]]
    for number, intervals in by_thread(ranges.ranges, ranges.rows, ranges.parent):
        low, high = np.searchsorted(grouped, (number, number + 1))
        own, others = order[low:high], taken[taker == number]
        rows = np.concatenate([own, others])
        is_by_process = np.zeros(len(rows), bool)
        is_by_process[len(own) :] = True
        if len(rows):
            yield intervals, rows, is_by_process


class _Work:
    """The operations under the phases of one thread, in order of launch."""

    def __init__(self, trace: Trace, given: Attribution, rows: Rows, is_by_process: Bools) -> None:
        launch_ns = given.launch_ns[rows]
        if (launch_ns[1:] < launch_ns[:-1]).any():
            order = np.argsort(launch_ns, kind="stable")
            rows, launch_ns, is_by_process = rows[order], launch_ns[order], is_by_process[order]
        ops = trace.gpu_ops
        self._launch_ns = launch_ns
        self._launch_end_ns = (
            launch_ns
            if given.is_by_device_time
            else np.append(trace.host_calls.end_ns, 0)[ops.launch[rows]]
        )
        self._start_ns, self._end_ns = ops.start_ns[rows], ops.end_ns[rows]
        self._kind = ops.kind[rows]
        self._is_by_process = is_by_process

    def add_to(self, totals: dict[str, Int64s], intervals: Intervals, path: Int32s) -> int:
        """Add the sums of each path; return how many ranges count launches that outlast them."""
        end_ns = intervals.end_ns[:-1]
        low = np.searchsorted(self._launch_ns, intervals.start_ns, side="left")
        is_in_order = not (self._launch_end_ns[1:] < self._launch_end_ns[:-1]).any()
        last_ns = self._launch_end_ns if is_in_order else self._launch_ns
        high = np.maximum(np.searchsorted(last_ns, end_ns, side="right"), low)
        fresh = _without_repeats(low, high, path)
        sums = {
            name: _slice_sums(column, fresh, np.maximum(high, fresh))
            for name, column in self._columns()
        }
        first = SliceMin.of(self._start_ns).query(low, high)
        last = -SliceMin.of(-self._end_ns).query(low, high)
        sums["projected_ns"] = np.where(low < high, last - first, 0)
        num_straddled = 0 if is_in_order else self._recount(end_ns, (low, high, fresh), sums)
        for name, values in sums.items():
            np.add.at(totals[name], path, values)
        return num_straddled

    def _columns(self) -> Iterator[tuple[str, NDArray[np.generic]]]:
        is_kernel = self._kind == OpKind.KERNEL
        yield "num_kernels", is_kernel
        yield "kernel_ns", np.where(is_kernel, self._end_ns - self._start_ns, 0)
        yield "num_opaque", self._kind == OpKind.GRAPH
        yield "num_by_process", self._is_by_process

    def _recount(
        self, end_ns: Int64s, slices: tuple[Rows, Rows, Rows], sums: dict[str, Int64s]
    ) -> int:
        """Correct, in place, ranges with a launch that starts inside and ends after them."""
        low, high, fresh = slices
        reach = np.append(np.maximum.accumulate(self._launch_end_ns), -FAR)
        budget, num_straddled = RECOUNT_BUDGET, 0
        columns = None
        for i in np.flatnonzero((low < high) & (reach[high - 1] > end_ns)).tolist():
            budget -= int(high[i] - low[i])
            if budget < 0:
                num_straddled += 1
                continue
            columns = columns or dict(self._columns())
            inside = np.flatnonzero(self._launch_end_ns[low[i] : high[i]] <= end_ns[i]) + low[i]
            counted = inside[inside >= fresh[i]]
            for name, column in columns.items():
                sums[name][i] = column[counted].sum(dtype=np.int64)
            first, last = self._start_ns[inside], self._end_ns[inside]
            sums["projected_ns"][i] = last.max() - first.min() if len(inside) else 0
        return num_straddled


def _slice_sums(values: NDArray[np.generic], low: Rows, high: Rows) -> Int64s:
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
