"""Give each GPU operation to the host ranges that launched it.

An operation belongs to the ranges of its launching thread that enclose the launch call. Autograd
launches backward kernels from a thread of its own that opens no range: such operations belong to
the range of the same process that encloses their launch in time, where exactly one thread
qualifies (design/product.md 3). Otherwise they stay without a range and are counted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import TID_BITS, Codes
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_nesting import RangeTree
from analysis.readers.nsys_windows import Window

MEASURED_RANGE = "BENCHMARK"
MAX_THREADS = 64
"""Threads with ranges in one process that are compared for an operation without a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Which range each operation of a window is under."""

    own: Codes
    "Deepest range on the launching thread; MISSING if none."
    adopted: Codes
    "Deepest range on another thread of the process; MISSING if none."
    first_ns: Ints
    last_ns: Ints
    "Begin and end of the launch call, of the operation itself where `by_device_time`."

    def deepest(self) -> Codes:
        """Return the range shown beside an operation: the adopting one where there is one."""
        return np.where(self.adopted >= 0, self.adopted, self.own)


class Attributor:
    """Attributes window after window. `num_ambiguous` operations stayed without a range because
    several threads' ranges enclose them alike."""

    def __init__(self, work: GpuWork, calls: ApiCalls, tree: RangeTree) -> None:
        self._calls = calls
        self._tree = tree
        self._processes = work.processes
        self.by_device_time = len(calls) == 0
        "No launch was recorded at all: the operation's own time decides."
        self.num_ambiguous = 0
        has_phase = _has_phase(tree)
        self._has_phase = np.append(has_phase, False)
        self._rank_of = np.append(has_phase.astype(np.int8) + _is_measured(tree), -1)
        self._comparable = _comparable_threads(tree, has_phase)
        self._kernel_threads = np.unique(calls.thread_of_kind[work.launches_kernels])

    def attribute(self, window: Window) -> Attribution:
        """Return the range of every operation of the window."""
        thread = window.threads(self._calls)
        by_device = self.by_device_time
        given = Attribution(
            own=np.full(len(window), MISSING, np.int32),
            adopted=np.full(len(window), MISSING, np.int32),
            first_ns=window.start_ns if by_device else window.first_ns,
            last_ns=window.end_ns if by_device else window.last_ns,
        )
        self._find_own(thread, given)
        chosen = np.flatnonzero(self._may_be_adopted(given.own, thread))
        given.adopted[chosen] = self._adopt(window, thread, given, chosen)
        return given

    def _find_own(self, thread: Ints, given: Attribution) -> None:
        """Fill in the ranges of the launching thread."""
        order = np.argsort(thread, kind="stable")
        grouped = thread[order]
        tids = np.array([tid for tid, _ in self._tree.threads], np.int64)
        lows = np.searchsorted(grouped, tids, side="left")
        highs = np.searchsorted(grouped, tids, side="right")
        for index in np.flatnonzero(highs > lows).tolist():
            where = self._tree.threads[index][1]
            mine = order[lows[index] : highs[index]]
            given.own[mine] = self._tree.deepest(where, given.first_ns[mine], given.last_ns[mine])

    def _may_be_adopted(self, own: Codes, thread: Ints) -> NDArray[np.bool_]:
        """Say which operations have no phase of their own but come from a thread that runs kernels.

        A thread that only copies (a data loader's) works for another step than the one it overlaps.
        """
        has_phase = self._has_phase[own]
        if self.by_device_time:
            return ~has_phase
        return ~has_phase & np.isin(thread, self._kernel_threads)

    def _adopt(
        self, window: Window, thread: Ints, given: Attribution, chosen: NDArray[np.intp]
    ) -> Ints:
        """Return the range on another thread for each chosen operation."""
        process = np.append(self._processes, MISSING)[window.process[chosen]]
        thread, first, last = thread[chosen], given.first_ns[chosen], given.last_ns[chosen]
        best = np.full(len(chosen), MISSING, np.int64)
        best_rank = np.zeros(len(chosen), np.int8)
        num_best = np.zeros(len(chosen), np.int32)
        owners = set(np.unique(process).tolist())
        for tid, where in self._comparable:
            if tid >> TID_BITS not in owners:
                continue
            mine = np.flatnonzero((process == tid >> TID_BITS) & (thread != tid))
            found = self._tree.deepest(where, first[mine], last[mine])
            rank = self._rank_of[found]
            better, alike = rank > best_rank[mine], rank == best_rank[mine]
            num_best[mine] = np.where(better, 1, num_best[mine] + (alike & (rank > 0)))
            best[mine] = np.where(better, found, best[mine])
            best_rank[mine] = np.maximum(rank, best_rank[mine])
        is_ambiguous = num_best > 1
        self.num_ambiguous += int(is_ambiguous.sum())
        return np.where(is_ambiguous, MISSING, best)


def _has_phase(tree: RangeTree) -> NDArray[np.bool_]:
    """Say for each range whether it, or one around it, was opened by the program."""
    return _down_the_tree(tree, ~tree.ranges.is_library)


def _is_measured(tree: RangeTree) -> NDArray[np.bool_]:
    """Say for each range whether it is, or lies in, the measured part."""
    names = np.array([n == MEASURED_RANGE for n in tree.ranges.names], bool)
    return _down_the_tree(tree, names[tree.ranges.name] if len(names) else np.empty(0, bool))


def _down_the_tree(tree: RangeTree, flag: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the flag of each range or of any range around it."""
    result = np.append(flag, False)
    for members in tree.levels():
        result[members] |= result[tree.parent[members]]
    return result[:-1]


def _comparable_threads(tree: RangeTree, has_phase: NDArray[np.bool_]) -> list[tuple[int, slice]]:
    """Return the threads with ranges of their program, none of a process that has too many."""
    threads = [(tid, where) for tid, where in tree.threads if has_phase[where].any()]
    owners = np.array([tid >> TID_BITS for tid, _ in threads], np.int64)
    owner, count = np.unique(owners, return_counts=True)
    small = set(owner[count <= MAX_THREADS].tolist())
    return [(tid, where) for tid, where in threads if tid >> TID_BITS in small]
