"""Give each GPU operation to the host ranges that launched it.

An operation belongs to the ranges of its launching thread that enclose the launch call. Autograd
launches backward kernels from a thread of its own that the program does not annotate: they belong
to the annotation of the same process that encloses their launch in time, where exactly one thread
qualifies. Otherwise they stay without a range and are counted. Where no launch was recorded at all,
an operation belongs to the ranges in which it began.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from analysis.trace.calls import PART_ROWS, of_launch
from analysis.trace.model import MISSING, Bools, Int32s, Int64s, Trace
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
    "Operations without a range because ranges of several threads enclose them equally."

    @property
    def phase(self) -> Int32s:
        """Return the phase shown beside an operation."""
        return np.where(self.by_process >= 0, self.by_process, self.by_thread)


def attribute(trace: Trace, phases: PhaseRanges) -> Attribution:
    """Return the ranges of every GPU operation."""
    ops = trace.gpu_ops
    is_by_device = not (ops.launch >= 0).any()
    launch_ns = ops.start_ns
    if not is_by_device:
        launch_ns = of_launch(trace.host_calls.start_ns, ops.launch, 0)
    innermost, by_process = (np.full(len(ops), MISSING, np.int32) for _ in range(2))
    num_ambiguous = 0
    if len(trace.host_ranges) and len(ops):
        finder = _Finder(trace, phases, is_by_device=is_by_device)
        for first in range(0, len(ops), PART_ROWS):
            part = slice(first, first + PART_ROWS)
            innermost[part], by_process[part], num = finder.find(part, launch_ns[part])
            num_ambiguous += num
    return Attribution(
        innermost=innermost,
        by_thread=phases.phase[innermost],
        by_process=by_process,
        launch_ns=launch_ns,
        is_by_device_time=is_by_device,
        num_ambiguous=num_ambiguous,
    )


class _Finder:
    """Finds the ranges of some operations at a time, so that temporary arrays stay small."""

    def __init__(self, trace: Trace, phases: PhaseRanges, *, is_by_device: bool) -> None:
        ranges = trace.host_ranges
        self._trace, self._phases, self._is_by_device = trace, phases, is_by_device
        rows = np.arange(len(ranges))
        self._threads = [] if is_by_device else list(by_thread(ranges, rows, ranges.parent))
        self._annotated = _annotated_threads(trace, phases)
        self._runs_kernels = _kernel_threads(trace)
        is_measured = phases.within(MEASURED_RANGE, trace.names)
        self._rank_of = phases.is_annotated.astype(np.int8) + is_measured
        self._rank_of[MISSING] = -1

    def find(self, part: slice, launch_ns: Int64s) -> tuple[Int32s, Int32s, int]:
        """Return the innermost range on the launching thread, the phase on another, and how many
        operations have several of these."""
        trace = self._trace
        ops = trace.gpu_ops.take(part)
        thread = of_launch(trace.host_calls.thread, ops.launch, MISSING)
        last_ns = launch_ns
        if not self._is_by_device:
            last_ns = of_launch(trace.host_calls.end_ns, ops.launch, 0)
        innermost = np.full(len(thread), MISSING, np.int32)
        for number, intervals in self._threads:
            mine = np.flatnonzero(thread == number)
            if len(mine):
                innermost[mine] = intervals.innermost(launch_ns[mine], last_ns[mine])
        is_open = ~self._phases.is_annotated[innermost]
        if not self._is_by_device:
            # A thread that only copies (a data loader's) works for another step than it overlaps.
            is_open &= self._runs_kernels[thread]
        chosen = np.flatnonzero(is_open)
        process = _process(trace, thread, ops.process)
        by_process = np.full(len(thread), MISSING, np.int32)
        by_process[chosen], num_ambiguous = self._on_other_threads(
            thread[chosen], process[chosen], launch_ns[chosen], last_ns[chosen]
        )
        return innermost, by_process, num_ambiguous

    def _on_other_threads(
        self, thread: Int32s, process: Int32s, first_ns: Int64s, last_ns: Int64s
    ) -> tuple[Int32s, int]:
        """Return the phase on another thread for each operation, and how many had several.

        Ranges inside the measured part go before others: a data loader's range takes nothing from
        it.
        """
        best = np.full(len(thread), MISSING, np.int32)
        best_rank = np.zeros(len(thread), np.int8)
        num_best = np.zeros(len(thread), np.int32)
        for number, owner, intervals in self._annotated:
            mine = np.flatnonzero((process == owner) & (thread != number))
            range_of = intervals.innermost(first_ns[mine], last_ns[mine])
            rank = self._rank_of[range_of]
            better, alike = rank > best_rank[mine], rank == best_rank[mine]
            num_best[mine] = np.where(better, 1, num_best[mine] + (alike & (rank > 0)))
            best[mine] = np.where(better, range_of, best[mine])
            best_rank[mine] = np.maximum(rank, best_rank[mine])
        is_ambiguous = num_best > 1
        return np.where(is_ambiguous, np.int32(MISSING), best), int(is_ambiguous.sum())


def launching_thread(trace: Trace) -> Int32s:
    """Return the thread that launched each GPU operation; MISSING where that is unknown."""
    return of_launch(trace.host_calls.thread, trace.gpu_ops.launch, MISSING)


def _process(trace: Trace, thread: Int32s, own: Int32s) -> Int32s:
    """Return the process of each operation: its launch's, else its own."""
    known = trace.thread_process()[thread]
    if len(trace.sources.processes) == 1:
        return np.zeros(len(own), np.int32)
    return np.where(known >= 0, known, own)


def _kernel_threads(trace: Trace) -> Bools:
    """Say which threads launch kernels; false at the end, for MISSING."""
    ops = trace.gpu_ops
    launches = np.zeros(len(trace.sources.threads) + 1, bool)
    runs = ops.runs_kernels
    launches[trace.host_calls.thread[ops.launch[runs & (ops.launch >= 0)]]] = True
    launches[MISSING] = False
    return launches


def _annotated_threads(trace: Trace, phases: PhaseRanges) -> list[tuple[int, int, Intervals]]:
    """Return (thread, process, phases) of threads that annotate, unless a process has too many."""
    owner_of = trace.thread_process()
    threads = [
        (number, int(owner_of[number]), intervals)
        for number, intervals in by_thread(phases.ranges, phases.rows, phases.parent)
        if phases.is_annotated[intervals.rows].any()
    ]
    count = Counter(owner for _, owner, _ in threads)
    return [entry for entry in threads if count[entry[1]] <= MAX_THREADS]
