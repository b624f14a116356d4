"""Sum the GPU work under each range of threads whose ranges nest, window by window.

An operation under a range is under all ranges around it: what lies directly under each range is
summed, and sums are then passed up the tree. Threads whose ranges overlap without nesting
(start/end ranges may) are left to `nsys_phase_overlaps`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_attribution import Attribution
from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, Codes
from analysis.readers.nsys_nesting import RangeTree
from analysis.readers.nsys_windows import Window

FIELDS = ("num_kernels", "kernel_ns", "num_opaque", "num_adopted", "projected_ns")
NO_TIME = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Operations under the ranges of one thread."""

    first_ns: Ints
    last_ns: Ints
    "Of the launch call."
    kind: NDArray[np.int8]
    start_ns: Ints
    end_ns: Ints
    is_adopted: NDArray[np.bool_]


class PhaseSums:
    """Sums by range. `overlapping` holds the operations of threads whose ranges do not nest."""

    def __init__(self, tree: RangeTree) -> None:
        size = len(tree.ranges)
        self._tree = tree
        self._sums = {name: np.zeros(size, np.int64) for name in FIELDS[:4]}
        self._earliest = np.full(size, NO_TIME, np.int64)
        self._latest = np.full(size, -NO_TIME, np.int64)
        self.overlapping: dict[int, list[Members]] = {i: [] for i in tree.overlapping_threads}

    def add(self, window: Window, given: Attribution) -> None:
        """Add a window's operations to the ranges that they were given to."""
        for chosen, is_adopted in ((given.own, False), (given.adopted, True)):
            members = np.flatnonzero(chosen >= 0)
            if not len(members):
                continue
            for index, lists in self.overlapping.items():
                where = self._tree.threads[index][1]
                inside = (chosen[members] >= where.start) & (chosen[members] < where.stop)
                lists.append(_members(window, given, members[inside], is_adopted))
                members = members[~inside]
            self._add(window, members, chosen[members], is_adopted)

    def _add(
        self, window: Window, members: NDArray[np.intp], under: Codes, is_adopted: bool
    ) -> None:
        start, end, kind = window.start_ns[members], window.end_ns[members], window.kind[members]
        kernels = kind == KERNEL
        np.add.at(self._sums["num_kernels"], under[kernels], 1)
        np.add.at(self._sums["kernel_ns"], under[kernels], (end - start)[kernels])
        np.add.at(self._sums["num_opaque"], under[kind == GRAPH], 1)
        if is_adopted:
            np.add.at(self._sums["num_adopted"], under, 1)
        np.minimum.at(self._earliest, under, start)
        np.maximum.at(self._latest, under, end)

    def by_path(self) -> dict[str, Ints]:
        """Return FIELDS by path; to be asked once, after the last window."""
        tree = self._tree
        for members in reversed(list(tree.levels())):
            above = tree.parent[members]
            for sums in self._sums.values():
                np.add.at(sums, above, sums[members])
            np.minimum.at(self._earliest, above, self._earliest[members])
            np.maximum.at(self._latest, above, self._latest[members])
        projected = np.where(self._earliest < NO_TIME, self._latest - self._earliest, 0)
        found = {name: np.zeros(len(tree.paths), np.int64) for name in FIELDS}
        for name, values in (*self._sums.items(), ("projected_ns", projected)):
            np.add.at(found[name], tree.path, values)
        return found


def _members(
    window: Window, given: Attribution, chosen: NDArray[np.intp], is_adopted: bool
) -> Members:
    return Members(
        first_ns=given.first_ns[chosen],
        last_ns=given.last_ns[chosen],
        kind=window.kind[chosen],
        start_ns=window.start_ns[chosen],
        end_ns=window.end_ns[chosen],
        is_adopted=np.full(len(chosen), is_adopted),
    )
