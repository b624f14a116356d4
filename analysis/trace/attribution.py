"""Give each GPU operation to the host ranges that launched it.

An operation belongs to the ranges of its launching thread that enclose the launch call. Autograd
launches backward kernels from a thread of its own that the program does not annotate: they belong
to the annotation of the same process that encloses their launch in time, where exactly one thread
qualifies. Otherwise they stay without a range and are counted. Where no launch was recorded at all,
an operation belongs to the ranges in which it began.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.trace.model import MISSING, Bools, GpuOps, Int32s, Int64s, OpKind, Trace
from analysis.trace.ranges import Intervals, PhaseRanges, by_thread
from core.trace_rules import MEASURED_RANGE

MAX_THREADS = 64
"""Threads with annotations in one process that are compared for an operation without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The ranges of each GPU operation, as rows of `Trace.host_ranges`."""

    innermost: Int32s
    "Innermost range of any kind on the launching thread (an operator where there are some)."
    by_thread: Int32s
    "Innermost phase on the launching thread; MISSING if none."
    by_process: Int32s
    "Innermost phase on another thread of the process that was given the operation; else MISSING."
    launch_ns: Int64s
    "Start of the launch, of the operation itself where `is_by_device_time`."
    is_by_device_time: bool
    "No launch was recorded at all."
    num_ambiguous: int
    "Operations that stayed without a range because several threads' ranges enclose them alike."

    @property
    def phase(self) -> Int32s:
        """Return the phase shown beside an operation."""
        return np.where(self.by_process >= 0, self.by_process, self.by_thread)


def attribute(trace: Trace, phases: PhaseRanges) -> Attribution:
    """Return the ranges of every GPU operation."""
    ops, calls, ranges = trace.gpu_ops, trace.host_calls, trace.host_ranges
    is_by_device = not (ops.launch >= 0).any()
    launch_ns = ops.start_ns if is_by_device else _launch_column(calls.start_ns, ops)
    last_ns = ops.start_ns if is_by_device else _launch_column(calls.end_ns, ops)
    innermost = np.full(len(ops), MISSING, np.int32)
    by_process, num_ambiguous = innermost.copy(), 0
    thread = launching_thread(trace)
    if len(ranges) and len(ops):
        if not is_by_device:
            rows = np.arange(len(ranges))
            _find_on_thread(by_thread(ranges, rows, ranges.parent), thread, launch_ns, last_ns,
                            innermost)  # fmt: skip
        is_open = ~phases.is_annotated[innermost]
        if not is_by_device:
            is_open &= _launches_kernels(trace, thread)
        chosen = np.flatnonzero(is_open)
        found, num_ambiguous = _on_other_threads(
            trace, phases, thread[chosen], _process(trace, thread)[chosen],
            launch_ns[chosen], last_ns[chosen],
        )  # fmt: skip
        by_process[chosen] = found
    return Attribution(
        innermost=innermost,
        by_thread=phases.phase[innermost],
        by_process=by_process,
        launch_ns=launch_ns,
        is_by_device_time=is_by_device,
        num_ambiguous=num_ambiguous,
    )


def launching_thread(trace: Trace) -> Int32s:
    """Return the thread that launched each GPU operation; MISSING where that is unknown."""
    return np.append(trace.host_calls.thread, np.int32(MISSING))[trace.gpu_ops.launch]


def _launch_column(times_ns: Int64s, ops: GpuOps) -> Int64s:
    return np.append(times_ns, 0)[ops.launch]


def _process(trace: Trace, thread: Int32s) -> Int32s:
    """Return the process of each operation: its launch's, else its own."""
    known = trace.thread_process()[thread]
    own = trace.gpu_ops.process
    if len(trace.sources.processes) == 1:
        own = np.zeros(len(own), np.int32)
    return np.where(known >= 0, known, own)


def _launches_kernels(trace: Trace, thread: Int32s) -> Bools:
    """Say which operations come from threads that launch kernels.

    A thread that only copies (a data loader's) works for another step than the one it overlaps.
    """
    kind = trace.gpu_ops.kind
    runs = (kind == OpKind.KERNEL) | (kind == OpKind.GRAPH)
    launches = np.zeros(len(trace.sources.threads) + 1, bool)
    launches[thread[runs]] = True
    launches[MISSING] = False
    return launches[thread]


def _find_on_thread(
    threads: Iterator[tuple[int, Intervals]],
    thread: Int32s,
    first_ns: Int64s,
    last_ns: Int64s,
    found: Int32s,
) -> None:
    """Fill in the innermost range on the launching thread."""
    order = np.argsort(thread, kind="stable")
    grouped = thread[order]
    for number, intervals in threads:
        low, high = np.searchsorted(grouped, (number, number + 1))
        mine = order[low:high]
        if len(mine):
            found[mine] = intervals.innermost(first_ns[mine], last_ns[mine])


def _on_other_threads(
    trace: Trace,
    phases: PhaseRanges,
    thread: Int32s,
    process: Int32s,
    first_ns: Int64s,
    last_ns: Int64s,
) -> tuple[Int32s, int]:
    """Return the phase on another thread for each operation, and how many had several.

    Ranges inside the measured part go before others: a data loader's range takes nothing from it.
    """
    is_measured = phases.within(MEASURED_RANGE, trace.names)
    rank_of = phases.is_annotated.astype(np.int8) + is_measured
    rank_of[MISSING] = -1
    best = np.full(len(thread), MISSING, np.int32)
    best_rank = np.zeros(len(thread), np.int8)
    num_best = np.zeros(len(thread), np.int32)
    for number, owner, intervals in _comparable(trace, phases, set(np.unique(process).tolist())):
        mine = np.flatnonzero((process == owner) & (thread != number))
        found = intervals.innermost(first_ns[mine], last_ns[mine])
        rank = rank_of[found]
        better, alike = rank > best_rank[mine], rank == best_rank[mine]
        num_best[mine] = np.where(better, 1, num_best[mine] + (alike & (rank > 0)))
        best[mine] = np.where(better, found, best[mine])
        best_rank[mine] = np.maximum(rank, best_rank[mine])
    is_ambiguous = num_best > 1
    return np.where(is_ambiguous, MISSING, best).astype(np.int32), int(is_ambiguous.sum())


def _comparable(
    trace: Trace, phases: PhaseRanges, processes: set[int]
) -> list[tuple[int, int, Intervals]]:
    """Return (thread, process, phases) of threads that annotate, unless a process has too many."""
    owner_of = trace.thread_process()
    found = [
        (number, int(owner_of[number]), intervals)
        for number, intervals in by_thread(phases.ranges, phases.rows, phases.parent)
        if int(owner_of[number]) in processes and phases.is_annotated[intervals.rows].any()
    ]
    count = Counter(owner for _, owner, _ in found)
    return [entry for entry in found if count[entry[1]] <= MAX_THREADS]
