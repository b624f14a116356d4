"""Sum the GPU work under each range path: host time, GPU projection and kernel sum, kept apart.

The operations under one range are a slice of its thread's launches in time order, so sums come
from running totals and the projection from slice extremes: no loop a kernel, and no assumption
that ranges nest (start/end ranges need not).

`kernel_ns` is missing for a path with opaque CUDA graph launches: the kernels inside were not
recorded, and a sum without them would look complete. `projected_ns` includes graphs and copies.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import SliceMin
from analysis.readers.nsys_attribution import Attribution
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, Codes
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_nesting import RangeTree
from analysis.tables import PHASE_COLUMNS

MAX_PATHS = 20_000
RECOUNT_BUDGET = 50_000_000
"""Operations looked at singly for launches that outlast their range; real captures have none."""
NO_VALUE = np.iinfo(np.int64).max


@dataclass(slots=True, kw_only=True)
class _Totals:
    """Sums by path, filled thread by thread."""

    num_kernels: Ints
    kernel_ns: Ints
    num_opaque: Ints
    num_adopted: Ints
    projected_ns: Ints
    num_uncounted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases frame (PHASE_COLUMNS) and what did not fit."""

    frame: pd.DataFrame
    num_left_out: int
    num_uncounted: int
    "Ranges whose count includes launches that outlast them (only crafted files)."


def phases(work: GpuWork, given: Attribution, tree: RangeTree) -> Phases:
    """Return one row a path and process; kernel figures are missing where no GPU work is known."""
    zeros = (np.zeros(len(tree.paths), np.int64) for _ in range(5))
    totals = _Totals(**dict(zip(_FIELDS, zeros, strict=True)))
    members = _members(given, tree)
    for index, (_tid, where) in enumerate(tree.threads):
        if len(members[index]):
            _add_thread(totals, work, given, tree, where, members[index])
    frame = _frame(totals, work, given, tree)
    kept = _largest(frame)
    return Phases(
        frame=kept, num_left_out=len(frame) - len(kept), num_uncounted=totals.num_uncounted
    )


_FIELDS = ("num_kernels", "kernel_ns", "num_opaque", "num_adopted", "projected_ns")


def _members(given: Attribution, tree: RangeTree) -> list[Codes]:
    """Return the operations under each thread's ranges, its own and the adopted ones."""
    thread_of = np.full(len(tree.ranges), MISSING, np.int32)
    for index, (_tid, where) in enumerate(tree.threads):
        thread_of[where] = index
    found: list[list[Codes]] = [[] for _ in tree.threads]
    for chosen in (given.own, given.adopted):
        members = np.flatnonzero(chosen >= 0).astype(np.int32)
        thread = thread_of[chosen[members]]
        if (thread[1:] < thread[:-1]).any():
            order = np.argsort(thread, kind="stable")
            members, thread = members[order], thread[order]
        bounds = np.searchsorted(thread, np.arange(len(found) + 1))
        for index in range(len(found)):
            found[index].append(members[bounds[index] : bounds[index + 1]])
    return [np.concatenate(parts) for parts in found]


def _add_thread(
    totals: _Totals,
    work: GpuWork,
    given: Attribution,
    tree: RangeTree,
    where: slice,
    members: Codes,
) -> None:
    members, first, last = _in_launch_order(given, members)
    start, end = tree.ranges.start_ns[where], tree.ranges.end_ns[where]
    path = tree.path[where]
    low = np.searchsorted(first, start, side="left")
    high = np.searchsorted(first, end, side="right")
    fresh = _without_repeats(low, high, path)
    kind, begin, finish = work.kind[members], work.start_ns[members], work.end_ns[members]
    is_kernel = kind == KERNEL
    columns = (
        is_kernel,
        np.where(is_kernel, finish - begin, 0),
        kind == GRAPH,
        _is_adopted(given, members, where),
    )
    sums = np.stack([_slice_sums(column, fresh, np.maximum(high, fresh)) for column in columns])
    earliest = SliceMin.of(begin).query(low, high)
    latest = -SliceMin.of(-finish).query(low, high)
    projected = np.where(low < high, latest - earliest, 0)
    _recount(totals, last, end, (low, high, fresh), (columns, begin, finish), sums, projected)
    for name, values in zip(_FIELDS, (*sums, projected), strict=True):
        np.add.at(getattr(totals, name), path, values)


def _in_launch_order(given: Attribution, members: Codes) -> tuple[Codes, Ints, Ints]:
    first, last = given.host_times(members)
    if (first[1:] < first[:-1]).any():
        order = np.argsort(first, kind="stable")
        members, first, last = members[order], first[order], last[order]
    return members, first, last


def _slice_sums(values: NDArray[np.generic], low: NDArray[np.intp], high: NDArray[np.intp]) -> Ints:
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    return running[high] - running[low]


def _is_adopted(given: Attribution, members: Codes, where: slice) -> NDArray[np.bool_]:
    """Say which members came from another thread."""
    adopter = given.adopted[members]
    return (adopter >= where.start) & (adopter < where.stop)


def _without_repeats(
    low: NDArray[np.intp], high: NDArray[np.intp], path: NDArray[np.int32]
) -> NDArray[np.intp]:
    """Return the slices' starts moved past what an earlier range of the same path has counted.

    Only start/end ranges of one name that overlap each other need it: once in each path.
    """
    order = np.lexsort((low, path))
    size = int(high.max(initial=0)) + 1
    base = (path[order].astype(np.int64) + 1) * size
    reached = np.maximum.accumulate(high[order] + base) if len(order) else base
    before = np.concatenate([[0], reached[:-1]]) - base if len(order) else base
    fresh = low.copy()
    fresh[order] = np.maximum(low[order], np.minimum(before, high[order]))
    return fresh


def _recount(
    totals: _Totals,
    last: Ints,
    end: Ints,
    slices: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]],
    data: tuple[tuple[NDArray[np.generic], ...], Ints, Ints],
    sums: Ints,
    projected: Ints,
) -> None:
    """Correct, in place, ranges with a launch that starts inside and ends after them."""
    low, high, fresh = slices
    columns, begin, finish = data
    reach = np.append(np.maximum.accumulate(last), np.iinfo(np.int64).min)
    doubtful = np.flatnonzero((low < high) & (reach[high - 1] > end))
    budget = RECOUNT_BUDGET
    for i in doubtful.tolist():
        budget -= int(high[i] - low[i])
        if budget < 0:
            totals.num_uncounted += 1
            continue
        inside = np.flatnonzero(last[low[i] : high[i]] <= end[i]) + low[i]
        counted = inside[inside >= fresh[i]]
        sums[:, i] = [column[counted].sum(dtype=np.int64) for column in columns]
        projected[i] = finish[inside].max() - begin[inside].min() if len(inside) else 0


def _frame(totals: _Totals, work: GpuWork, given: Attribution, tree: RangeTree) -> pd.DataFrame:
    num_paths = len(tree.paths)
    path = tree.path
    host = np.zeros(num_paths, np.int64)
    np.add.at(host, path, tree.ranges.end_ns - tree.ranges.start_ns)
    first_start = np.full(num_paths, NO_VALUE)
    np.minimum.at(first_start, path, tree.ranges.start_ns)
    has_work = len(work) > 0
    by_process = "device_time" if given.by_device_time else "process_time"
    frame = pd.DataFrame(
        {
            "path": pd.Series(tree.paths, dtype="str"),
            "process": np.searchsorted(work.processes, tree.path_process),
            "num_ranges": np.bincount(path, minlength=num_paths),
            "host_ns": pd.array(host, "Int64"),
            "projected_ns": _known(totals.projected_ns, np.full(num_paths, has_work)),
            "kernel_ns": _known(totals.kernel_ns, has_work & (totals.num_opaque == 0)),
            "num_kernels": totals.num_kernels,
            "attribution": np.where(totals.num_adopted > 0, by_process, "launch_thread"),
            "first_start_ns": first_start,
        },
        columns=list(PHASE_COLUMNS),
    )
    return frame.sort_values(["process", "first_start_ns"], kind="stable", ignore_index=True)


def _known(values: Ints, is_known: NDArray[np.bool_]) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.copy(), ~is_known)


def _largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_PATHS rows: the shallow ones first, then the longest."""
    if len(frame) <= MAX_PATHS:
        return frame
    depth = frame["path"].str.count("/")
    order = np.lexsort((-frame["host_ns"].to_numpy(np.int64), depth))
    return frame.iloc[np.sort(order[:MAX_PATHS])].reset_index(drop=True)
