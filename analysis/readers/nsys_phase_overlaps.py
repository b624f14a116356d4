"""Sum the GPU work under the ranges of a thread whose ranges overlap without nesting.

The operations under one range are a slice of its thread's launches in time order, so sums come
from running totals and the projection from slice extremes. An operation counts once in each path.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.intervals import SliceMin
from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_events import GRAPH, KERNEL
from analysis.readers.nsys_nesting import RangeTree
from analysis.readers.nsys_phase_sums import FIELDS, Members

RECOUNT_BUDGET = 50_000_000
"""Operations looked at singly for launches that outlast their range; real captures have none."""


def add_overlapping(
    totals: dict[str, Ints], tree: RangeTree, where: slice, parts: Sequence[Members]
) -> int:
    """Add a thread's sums to FIELDS by path; return how many ranges count launches that outlast
    them (only crafted files)."""
    if not any(len(part.kind) for part in parts):
        return 0
    first, last, kind, begin, finish, is_adopted = _in_launch_order(parts)
    start, end = tree.ranges.start_ns[where], tree.ranges.end_ns[where]
    path = tree.path[where]
    low = np.searchsorted(first, start, side="left")
    high = np.searchsorted(first, end, side="right")
    fresh = _without_repeats(low, high, path)
    is_kernel = kind == KERNEL
    columns = (
        is_kernel,
        np.where(is_kernel, finish - begin, 0),
        kind == GRAPH,
        is_adopted,
    )
    sums = np.stack([_slice_sums(column, fresh, np.maximum(high, fresh)) for column in columns])
    earliest = SliceMin.of(begin).query(low, high)
    latest = -SliceMin.of(-finish).query(low, high)
    projected = np.where(low < high, latest - earliest, 0)
    num_uncounted = _recount(
        last, end, (low, high, fresh), (columns, begin, finish), sums, projected
    )
    for name, values in zip(FIELDS, (*sums, projected), strict=True):
        np.add.at(totals[name], path, values)
    return num_uncounted


def _in_launch_order(parts: Sequence[Members]) -> tuple[NDArray[Any], ...]:
    names = ("first_ns", "last_ns", "kind", "start_ns", "end_ns", "is_adopted")
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    order = np.argsort(columns[0], kind="stable")
    return tuple(column[order] for column in columns)


def _slice_sums(values: NDArray[Any], low: NDArray[np.intp], high: NDArray[np.intp]) -> Ints:
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    return running[high] - running[low]


def _without_repeats(
    low: NDArray[np.intp], high: NDArray[np.intp], path: NDArray[np.int32]
) -> NDArray[np.intp]:
    """Return the slices' starts moved past what an earlier range of the same path has counted."""
    order = np.lexsort((low, path))
    size = int(high.max(initial=0)) + 1
    base = (path[order].astype(np.int64) + 1) * size
    reached = np.maximum.accumulate(high[order] + base) if len(order) else base
    before = np.concatenate([[0], reached[:-1]]) - base if len(order) else base
    fresh = low.copy()
    fresh[order] = np.maximum(low[order], np.minimum(before, high[order]))
    return fresh


def _recount(
    last: Ints,
    end: Ints,
    slices: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]],
    data: tuple[tuple[NDArray[Any], ...], Ints, Ints],
    sums: Ints,
    projected: Ints,
) -> int:
    """Correct, in place, ranges with a launch that starts inside and ends after them."""
    low, high, fresh = slices
    columns, begin, finish = data
    reach = np.append(np.maximum.accumulate(last), np.iinfo(np.int64).min)
    doubtful = np.flatnonzero((low < high) & (reach[high - 1] > end))
    budget, num_uncounted = RECOUNT_BUDGET, 0
    for i in doubtful.tolist():
        budget -= int(high[i] - low[i])
        if budget < 0:
            num_uncounted += 1
            continue
        inside = np.flatnonzero(last[low[i] : high[i]] <= end[i]) + low[i]
        counted = inside[inside >= fresh[i]]
        sums[:, i] = [column[counted].sum(dtype=np.int64) for column in columns]
        projected[i] = finish[inside].max() - begin[inside].min() if len(inside) else 0
    return num_uncounted
