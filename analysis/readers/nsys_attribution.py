"""Give each GPU operation to the host ranges that launched it.

An operation belongs to the ranges of its launching thread that enclose the launch call. Autograd
launches backward kernels from a thread of its own that opens no range: such operations belong to
the range of the same process that encloses their launch in time, where exactly one thread
qualifies (design/product.md 3). Otherwise they stay without a range and are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, TID_BITS, ApiCalls, Codes
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_nesting import RangeTree

MEASURED_RANGE = "BENCHMARK"
MAX_THREADS = 64
"""Threads with ranges in one process that are compared for an operation without a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Which range each operation is under."""

    own: Codes
    "Deepest range on the launching thread, by operation; MISSING if none."
    adopted: Codes
    "Deepest range on another thread of the process, by operation; MISSING if none."
    first_ns: Ints
    "Start of each launch call (of each operation itself with `by_device_time`)."
    last_ns: Ints
    launch: Codes | None
    "Index of each operation into the launch calls; None with `by_device_time`."
    num_ambiguous: int
    "Operations that several threads' ranges enclose alike; left without a range."
    by_device_time: bool
    "No launch was recorded at all: the operation's own time decided."

    def host_times(self, members: NDArray[np.integer]) -> tuple[Ints, Ints]:
        """Return when the launch calls of these operations began and ended."""
        where = members if self.launch is None else np.maximum(self.launch[members], 0)
        return self.first_ns[where], self.last_ns[where]

    def deepest(self) -> Codes:
        """Return the range shown beside an operation: the adopting one where there is one."""
        return np.where(self.adopted >= 0, self.adopted, self.own)


def attribute(work: GpuWork, calls: ApiCalls, tree: RangeTree) -> Attribution:
    """Return the range of every operation of the capture."""
    by_device_time = len(calls) == 0
    if by_device_time:
        thread = np.full(len(work), MISSING, np.int64)
    else:
        thread = calls.threads_of(np.maximum(work.launch, 0))
        thread[work.launch < 0] = MISSING
    given = Attribution(
        own=np.full(len(work), MISSING, np.int32),
        adopted=np.full(len(work), MISSING, np.int32),
        first_ns=work.start_ns if by_device_time else calls.start_ns,
        last_ns=work.end_ns if by_device_time else calls.end_ns,
        launch=None if by_device_time else work.launch,
        num_ambiguous=0,
        by_device_time=by_device_time,
    )
    _find_own(tree, thread, given)
    candidates = np.flatnonzero(_may_be_adopted(work, tree, given.own, thread, by_device_time))
    first, last = given.host_times(candidates)
    chosen, num_ambiguous = _adopt(tree, work, candidates, thread[candidates], first, last)
    given.adopted[candidates] = chosen
    return replace(given, num_ambiguous=num_ambiguous)


def _find_own(tree: RangeTree, thread: Ints, given: Attribution) -> None:
    """Fill in the ranges of the launching thread."""
    order = np.argsort(thread, kind="stable")
    grouped = thread[order]
    tids = np.array([tid for tid, _ in tree.threads], np.int64)
    lows = np.searchsorted(grouped, tids, side="left")
    highs = np.searchsorted(grouped, tids, side="right")
    for index in np.flatnonzero(highs > lows).tolist():
        where = tree.threads[index][1]
        mine = order[lows[index] : highs[index]]
        given.own[mine] = tree.deepest(where, *given.host_times(mine))


def _may_be_adopted(
    work: GpuWork, tree: RangeTree, own: Codes, thread: Ints, by_device_time: bool
) -> NDArray[np.bool_]:
    """Say which operations have no phase of their own but come from a thread that runs kernels.

    A thread that only copies (a data loader's) works for another step than the one it overlaps.
    """
    has_phase = np.append(_has_phase(tree), False)[own]
    if by_device_time:
        return ~has_phase
    runs_kernels = (work.kind == KERNEL) | (work.kind == GRAPH)
    kernel_threads = np.unique(thread[runs_kernels & (thread != MISSING)])
    return ~has_phase & np.isin(thread, kernel_threads)


def _has_phase(tree: RangeTree) -> NDArray[np.bool_]:
    """Say for each range whether it, or one around it, was opened by the program."""
    return _down_the_tree(tree, ~tree.ranges.is_library)


def _is_measured(tree: RangeTree) -> NDArray[np.bool_]:
    """Say for each range whether it is, or lies in, the measured part."""
    names = np.array([n == MEASURED_RANGE for n in tree.ranges.names], bool)
    return _down_the_tree(tree, names[tree.ranges.name] if len(names) else np.empty(0, bool))


def _down_the_tree(tree: RangeTree, flag: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the flag of each range or of any range around it; parents come before children."""
    result = flag.tolist()
    for i, above in enumerate(tree.parent.tolist()):
        result[i] = result[i] or (above >= 0 and result[above])
    return np.array(result, bool)


def _adopt(
    tree: RangeTree, work: GpuWork, candidates: Ints, thread: Ints, first: Ints, last: Ints
) -> tuple[Ints, int]:
    """Return the range on another thread for each candidate, and how many had several alike."""
    rank_of = np.append(_has_phase(tree).astype(np.int8) + _is_measured(tree), -1)
    process = np.append(work.processes, MISSING)[work.process[candidates]]
    best = np.full(len(candidates), MISSING, np.int64)
    best_rank = np.zeros(len(candidates), np.int8)
    num_best = np.zeros(len(candidates), np.int32)
    owners = set(np.unique(process).tolist())
    for tid, where in _comparable_threads(tree):
        if tid >> TID_BITS not in owners:
            continue
        mine = np.flatnonzero((process == tid >> TID_BITS) & (thread != tid))
        found = tree.deepest(where, first[mine], last[mine])
        rank = rank_of[found]
        better, alike = rank > best_rank[mine], rank == best_rank[mine]
        num_best[mine] = np.where(better, 1, num_best[mine] + (alike & (rank > 0)))
        best[mine] = np.where(better, found, best[mine])
        best_rank[mine] = np.maximum(rank, best_rank[mine])
    is_ambiguous = num_best > 1
    return np.where(is_ambiguous, MISSING, best), int(is_ambiguous.sum())


def _comparable_threads(tree: RangeTree) -> Sequence[tuple[int, slice]]:
    """Return the threads with ranges of their program, none of a process that has too many."""
    has_phase = _has_phase(tree)
    threads = [(tid, where) for tid, where in tree.threads if has_phase[where].any()]
    owners = np.array([tid >> TID_BITS for tid, _ in threads], np.int64)
    owner, count = np.unique(owners, return_counts=True)
    small = set(owner[count <= MAX_THREADS].tolist())
    return [(tid, where) for tid, where in threads if tid >> TID_BITS in small]
