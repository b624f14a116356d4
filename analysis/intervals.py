"""Unions, overlaps and slice extremes of intervals in integer nanoseconds, all vectorised."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def merge(start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """Return the union as disjoint intervals (starts, ends), sorted; touching ones become one."""
    if len(start_ns) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts, ends = start_ns, end_ns
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        starts, ends = start_ns[order], end_ns[order]
    reach = np.maximum.accumulate(ends)
    opens = np.empty(len(starts), bool)
    opens[0] = True
    np.greater(starts[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(starts)) - 1
    return starts[first], reach[last]


def overlap_ns(starts: Ints, ends: Ints, window_start: Ints, window_end: Ints) -> Ints:
    """Return, for each window, how much of it the disjoint sorted intervals cover [ns]."""
    if len(starts) == 0:
        return np.zeros(len(window_start), np.int64)
    done = np.cumsum(ends - starts)
    covered = _covered_until(starts, ends, done, window_end)
    covered -= _covered_until(starts, ends, done, window_start)
    return np.maximum(covered, 0, out=covered)


def union_of_each_ns(group: Ints, start_ns: Ints, end_ns: Ints, num_groups: int) -> Ints:
    """Return, for each group, the length of the union of its intervals [ns]."""
    union = np.zeros(num_groups, np.int64)
    if not len(group):
        return union
    order: Any = slice(None)
    if (group[1:] < group[:-1]).any() or (start_ns[1:] < start_ns[:-1]).any():
        order = np.lexsort((start_ns, group))
    of = group[order]
    # One pass over all groups: each is moved behind the one before it.
    shift = of * (int(end_ns.max() - start_ns.min()) + 1) - int(start_ns.min())
    start, end = start_ns[order] + shift, end_ns[order] + shift
    before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end)[:-1])
    np.add.at(union, of, np.maximum(end - np.maximum(start, before), 0))
    return union


def overlap_between_ns(starts: Ints, ends: Ints, times_ns: Ints) -> Ints:
    """Return, from each of some ascending times to the next, how much the intervals cover [ns]."""
    if len(starts) == 0:
        return np.zeros(max(len(times_ns) - 1, 0), np.int64)
    return np.diff(_covered_until(starts, ends, np.cumsum(ends - starts), times_ns))


def _covered_until(starts: Ints, ends: Ints, done: Ints, time_ns: Ints) -> Ints:
    """Return how much the intervals cover before some times; `done`: until each one's end."""
    last = last_started(starts, time_ns)
    covered = done[last]
    covered -= np.maximum(ends[last] - time_ns, 0)
    covered[last < 0] = 0
    return covered


def last_started(starts: Ints, time_ns: Ints) -> NDArray[np.intp]:
    """Return the last of some ascending starts at or before each time; -1 before the first."""
    if len(starts) < len(time_ns) and not (time_ns[1:] < time_ns[:-1]).any():
        # Fewer searches, of each start among the times, tell the same.
        first = np.searchsorted(time_ns, starts, side="left")
        counts = np.diff(first, prepend=0, append=len(time_ns))
        return np.repeat(np.arange(-1, len(starts)), counts)
    last = np.searchsorted(starts, time_ns, side="right")
    last -= 1
    return last


def slice_minima(
    values: Ints, first: NDArray[np.integer[Any]], last: NDArray[np.integer[Any]]
) -> Ints:
    """Return min(values[first:last]) of each pair; the int64 maximum for an empty slice."""
    is_long = int((last - first).sum()) > 64 * len(values)
    if is_long or not len(values):  # slices that overlap again and again
        return SliceMin.of(values).query(first, last)
    padded = np.append(values, np.iinfo(np.int64).max)
    bounds = np.stack([first, last], axis=1).reshape(-1)
    minima: Ints = np.minimum.reduceat(padded, bounds)[::2] if len(bounds) else padded[:0]
    return np.where(first < last, minima, np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class SliceMin:
    """Answer the minimum over many slices of one array: a pyramid of pairwise minima."""

    levels: tuple[Ints, ...]

    @classmethod
    def of(cls, values: Ints) -> "SliceMin":
        levels = [values]
        while len(levels[-1]) > 1:
            below = levels[-1]
            if len(below) % 2:
                below = np.append(below, np.iinfo(np.int64).max)
            levels.append(np.minimum(below[0::2], below[1::2]))
        return cls(tuple(levels))

    def query(self, first: NDArray[np.integer[Any]], last: NDArray[np.integer[Any]]) -> Ints:
        """Return min(values[first:last]) of each pair; the int64 maximum for an empty slice."""
        lo, hi = first.astype(np.int64), last.astype(np.int64)
        best = np.full(len(lo), np.iinfo(np.int64).max)
        for level in self.levels:
            active = lo < hi
            if not active.any():
                break
            take = active & (lo % 2 == 1)
            best[take] = np.minimum(best[take], level[lo[take]])
            lo = lo + take
            take = active & (hi % 2 == 1) & (lo < hi)
            best[take] = np.minimum(best[take], level[hi[take] - 1])
            hi = hi - take
            lo, hi = lo // 2, hi // 2
        return best
