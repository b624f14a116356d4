"""Tell threads of a process apart that run loops of their own.

A server runs two models, an evaluation or the next batch's preparation runs beside training: their
launches interleave as chance has it, and steps are those of one thread. Threads of one loop take
turns instead: an autograd thread launches the backward pass while the thread that called it waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.trace.attribution import launching_thread
from analysis.trace.launches import launch_sequence
from analysis.trace.model import MISSING, Bools, Int64s, Trace
from analysis.trace.repetition import MIN_ENTRIES, find_repetition

MAX_THREADS = 8
"""Threads of one process that are looked at, those with the most GPU time."""
MIN_TURNS = 4
"""Fewer turns than this tell nothing of how two loops interleave."""
MIN_TOGETHER = 0.5
"""Share of one thread's turns that begin after the same launches of the other, in one loop."""
MIN_STEADY = 0.9
"""Share of one thread's turns in which equally many of the other begin, in one loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turns:
    """The turns of one thread alone."""

    code: Int64s
    "What each entry launched."
    time_ns: Int64s
    start_ns: Int64s
    "Of each usual turn, on the host."
    devices: frozenset[int]


def only(trace: Trace, threads: Sequence[int]) -> Bools:
    """Return which threads these are, as `launch_sequence` takes them."""
    chosen = np.zeros(len(trace.sources.threads) + 1, bool)
    chosen[list(threads)] = True
    return chosen


def own_loops(trace: Trace, process: int | None) -> list[int]:
    """Return the threads that run loops of their own beside the one with the most GPU time."""
    first, *others = _busiest(trace, process) or [MISSING]
    others = [thread for thread in others if not _plainly_take_turns(trace, first, thread)]
    leading = _turns(trace, process, first) if others else None
    if leading is None:
        return []
    found = ((thread, _turns(trace, process, thread)) for thread in others)
    return [thread for thread, turns in found if turns and not _is_one_loop(leading, turns)]


def _plainly_take_turns(trace: Trace, a: int, b: int) -> bool:
    """Tell threads of one loop at sight, without looking for what each of them repeats.

    On the GPU nearly all runs of either thread have one length and end with the same two kernels.
    """
    ops = trace.gpu_ops
    thread = launching_thread(trace)
    rows = np.flatnonzero(ops.runs_kernels & ((thread == a) | (thread == b)))
    is_b = thread[rows] == b
    ends = np.flatnonzero(is_b[:-1] != is_b[1:])[1:]
    if len(ends) < 2 * MIN_TURNS:
        return False
    label = ops.label[rows].astype(np.int64)
    last_two = label[ends - 1] * (len(trace.labels) + 1) + label[ends]
    lengths = np.diff(ends, prepend=ends[0])
    of_b = is_b[ends]
    return all(
        _commonest_frac(values[1:][of_b[1:] == own]) >= MIN_STEADY
        for own in (False, True)
        for values in (lengths, last_two)
    )


def _commonest_frac(values: Int64s) -> float:
    return float(np.unique(values, return_counts=True)[1].max() / len(values))


def _busiest(trace: Trace, process: int | None) -> list[int]:
    """Return the threads that launched enough kernels for a loop, most GPU time first."""
    ops = trace.gpu_ops
    works = ops.runs_kernels & (ops.launch >= 0) & (process is None or ops.process == process)
    thread = launching_thread(trace)[works]
    is_known = thread >= 0
    count = np.bincount(thread[is_known])
    busy = np.bincount(thread[is_known], (ops.end_ns - ops.start_ns)[works][is_known].astype(float))
    order = np.argsort(-busy, kind="stable")
    return [int(t) for t in order if count[t] >= MIN_ENTRIES][:MAX_THREADS]


def _turns(trace: Trace, process: int | None, thread: int) -> _Turns | None:
    """Return what a thread repeats, of its own launches alone; None where that is nothing."""
    sequence = launch_sequence(trace, process, only(trace, [thread]))
    found = find_repetition(sequence)
    if found is None or found.is_alike.sum() < MIN_TURNS:
        return None
    works = sequence.num_ops > 0
    return _Turns(
        code=sequence.code[works],
        time_ns=sequence.time_ns[works],
        start_ns=sequence.time_ns[found.first[found.is_alike]],
        devices=frozenset(trace.gpu_ops.device[sequence.ops].tolist()),
    )


def _is_one_loop(a: _Turns, b: _Turns) -> bool:
    """Tell whether two threads take turns: each begins after the same launches of the other.

    On GPUs of their own they hardly wait for one another: there equally many turns are enough.
    """
    is_steady = _is_steady(*sorted((a, b), key=lambda turns: len(turns.start_ns)))
    if not a.devices & b.devices:
        return is_steady
    return is_steady and min(_after_the_same(a, b), _after_the_same(b, a)) >= MIN_TOGETHER


def _is_steady(a: _Turns, b: _Turns) -> bool:
    """Tell whether most turns of `a` see as many turns of `b` begin, of which there are more."""
    count = np.diff(np.searchsorted(b.start_ns, a.start_ns))
    count = count[(a.start_ns[:-1] >= b.start_ns[0]) & (a.start_ns[1:] <= b.start_ns[-1])]
    return not len(count) or bool(np.bincount(count).max() >= MIN_STEADY * len(count))


def _after_the_same(a: _Turns, b: _Turns) -> float:
    """Return the share of the turns of `a` that begin after the commonest two launches of `b`."""
    at = np.searchsorted(b.time_ns, a.start_ns)
    at = at[(at >= 2) & (at < len(b.time_ns))]
    if not len(at):
        return 1.0
    before = b.code[at - 1] ^ (b.code[at - 2] << 1)
    return _commonest_frac(before)
