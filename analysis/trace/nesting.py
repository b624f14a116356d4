"""Nesting of host ranges: order, parents and depths, over many threads."""

import numpy as np
from numpy.typing import NDArray

from analysis.trace.model import MISSING, HostRanges, Int32s, Int64s


def nesting_order(start_ns: Int64s, end_ns: Int64s, thread: Int32s) -> NDArray[np.intp]:
    """Return the order of `HostRanges`: by thread, then start, then the longer first."""
    return np.lexsort((-end_ns, start_ns, thread))


def parents(
    end_ns: Int64s, thread: Int32s, *, start_ns: Int64s | None = None, rounding_ns: int = 0
) -> Int32s:
    """Return the parent of each range, given in `nesting_order`; MISSING where there is none.

    That is the nearest range before it on its thread that ends no earlier. A range that overlaps
    another only in part is not a child of it, unless by `rounding_ns` or less (with `start_ns`):
    recorders that round start and duration each on its own let a callee end after its caller.

    Every range looks one candidate back at a time and takes over the candidate's own candidate, so
    a flat list of n ranges takes log2(n) rounds.
    """
    parent = np.arange(-1, len(end_ns) - 1, dtype=np.int32)
    open_rows = np.arange(len(end_ns))
    while len(open_rows):
        candidate = parent[open_rows]
        is_other = (candidate < 0) | (thread[candidate] != thread[open_rows])
        parent[open_rows[is_other]] = MISSING
        end = end_ns[candidate]
        is_around = end >= end_ns[open_rows]
        if rounding_ns and start_ns is not None:
            is_near = end + rounding_ns >= end_ns[open_rows]
            is_around |= is_near & (start_ns[open_rows] < end)
        is_short = ~is_other & ~is_around
        open_rows = open_rows[is_short]
        parent[open_rows] = parent[candidate[is_short]]
    return parent


def depths(parent: Int32s) -> Int32s:
    """Return how many ranges lie around each one."""
    depth = (parent >= 0).astype(np.int32)
    above = parent.copy()
    open_rows = np.flatnonzero(above >= 0)
    while len(open_rows):
        depth[open_rows] += depth[above[open_rows]]
        above[open_rows] = above[above[open_rows]]
        open_rows = open_rows[above[open_rows] >= 0]
    return depth


def innermost(ranges: HostRanges, thread: Int32s, times_ns: Int64s) -> Int32s:
    """Return the row of the innermost range of each thread that is open at its time, or MISSING."""
    row = np.full(len(times_ns), MISSING, np.int64)
    order = np.argsort(thread, kind="stable")
    threads, begin = np.unique(thread[order], return_index=True)
    ends = np.append(begin[1:], len(order))[: len(begin)]
    for number, low, high in zip(threads.tolist(), begin.tolist(), ends.tolist(), strict=True):
        if number < 0:
            continue
        mine = order[low:high]
        first, last = np.searchsorted(ranges.thread, [number, number + 1])
        at = np.searchsorted(ranges.start_ns[first:last], times_ns[mine], side="right") - 1
        row[mine] = np.where(at >= 0, at + first, MISSING)
    parent = np.append(ranges.parent, MISSING)
    end = np.append(ranges.end_ns, 0)
    while True:
        is_over = (row >= 0) & (end[row] < times_ns)
        if not is_over.any():
            return row.astype(np.int32)
        row = np.where(is_over, parent[row], row)
