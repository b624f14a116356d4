"""Nest the ranges of each thread into a tree of paths, and find the deepest range around a call."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import TID_BITS
from analysis.readers.nsys_nvtx import Ranges

MAX_DEPTH = 64
STEPS_A_RANGE = 64
"""How many open ranges that overlap without nesting are looked through, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTree:
    """The ranges with their parents and paths."""

    ranges: Ranges
    parent: NDArray[np.int32]
    "Index of the innermost range on the same thread that contains this one, MISSING at the root."
    path: NDArray[np.int32]
    "Index into `paths`."
    depth: NDArray[np.int32]
    process: Ints
    "globalPid >> 24 of each range."
    paths: tuple[str, ...]
    path_process: Ints
    "globalPid >> 24 of each path."
    threads: tuple[tuple[int, slice], ...]
    "globalTid and where its ranges lie."
    overlapping_threads: tuple[int, ...]
    "Indices into `threads` of those whose ranges overlap without nesting."
    num_too_deep: int
    "Ranges below MAX_DEPTH, which are left out."

    def levels(self) -> Iterator[NDArray[np.intp]]:
        """Give the ranges that have one above them, level by level from the top."""
        order = np.argsort(self.depth, kind="stable")
        bounds = np.searchsorted(self.depth[order], np.arange(1, MAX_DEPTH + 1))
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            if first < last:
                yield order[first:last]

    def deepest(self, where: slice, first_ns: Ints, last_ns: Ints) -> Ints:
        """Return, for each host interval, the latest-started range of a thread that encloses it.

        MISSING where none does. Ends are inclusive, as in the vendor's own projection.
        """
        starts = self.ranges.start_ns[where]
        at = np.searchsorted(starts, first_ns, side="right") - 1 + where.start
        at[at < where.start] = MISSING
        ends = np.append(self.ranges.end_ns, np.iinfo(np.int64).max)
        parent = np.append(self.parent, MISSING)
        todo = np.flatnonzero(ends[at] < last_ns)
        while len(todo):
            at[todo] = parent[at[todo]]
            todo = todo[ends[at[todo]] < last_ns[todo]]
        return at


def build_tree(ranges: Ranges) -> RangeTree:
    """Return the tree; a range is under the innermost one of its thread that contains it whole."""
    parent: list[int] = []
    overlapping: set[int] = set()
    for thread, where in _threads(ranges):
        own, nests = _parents(ranges, where)
        parent += own
        if not nests:
            overlapping.add(thread)
    depth = _depths(parent)
    keep = np.flatnonzero(depth < MAX_DEPTH)
    new_index = np.append(np.cumsum(depth < MAX_DEPTH) - 1, MISSING)
    parents = new_index[np.array(parent, np.int64)][keep].astype(np.int32)
    kept = ranges.take(keep)
    process = kept.thread >> TID_BITS
    path, codes = _paths(kept, process.tolist(), parents.tolist())
    threads = _threads(kept)
    return RangeTree(
        ranges=kept,
        parent=parents,
        path=path,
        depth=depth[keep],
        process=process,
        paths=_path_texts(kept.names, codes),
        path_process=np.array([key[0] for key in codes], np.int64),
        threads=threads,
        overlapping_threads=tuple(i for i, (t, _) in enumerate(threads) if t in overlapping),
        num_too_deep=len(ranges) - len(kept),
    )


def _threads(ranges: Ranges) -> tuple[tuple[int, slice], ...]:
    thread, first = np.unique(ranges.thread, return_index=True)
    last = np.append(first, len(ranges))[1:]
    return tuple(
        (int(t), slice(int(a), int(b))) for t, a, b in zip(thread, first, last, strict=True)
    )


def _parents(ranges: Ranges, where: slice) -> tuple[list[int], bool]:
    """Return each range's parent, and whether any two ranges nest or lie apart.

    A loop a range: captures have far fewer of them than kernels.
    """
    starts = ranges.start_ns[where].tolist()
    ends = ranges.end_ns[where].tolist()
    budget = STEPS_A_RANGE * len(starts)
    open_ranges: list[int] = []
    nests = True
    parents = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        while open_ranges and ends[open_ranges[-1]] < start:
            open_ranges.pop()
        at = len(open_ranges) - 1
        while at >= 0 and ends[open_ranges[at]] < end and budget > 0:
            nests = nests and ends[open_ranges[at]] == start
            at -= 1
            budget -= 1
        is_inside = at >= 0 and ends[open_ranges[at]] >= end
        parents.append(open_ranges[at] + where.start if is_inside else MISSING)
        open_ranges.append(i)
    return parents, nests


def _depths(parent: list[int]) -> NDArray[np.int32]:
    depth: list[int] = []
    for above in parent:
        depth.append(depth[above] + 1 if above >= 0 else 0)
    return np.array(depth, np.int32)


_PathCodes = dict[tuple[int, int, int], int]
"(process, code of the path above, name) -> code"


def _paths(
    ranges: Ranges, process: list[int], parent: list[int]
) -> tuple[NDArray[np.int32], _PathCodes]:
    codes: _PathCodes = {}
    path: list[int] = []
    for i, name in enumerate(ranges.name.tolist()):
        above = path[parent[i]] if parent[i] >= 0 else MISSING
        path.append(codes.setdefault((process[i], above, name), len(codes)))
    return np.array(path, np.int32), codes


def _path_texts(names: tuple[str, ...], codes: _PathCodes) -> tuple[str, ...]:
    texts: list[str] = []
    for _process, above, name in codes:
        texts.append(f"{texts[above]}/{names[name]}" if above >= 0 else names[name])
    return tuple(texts)
