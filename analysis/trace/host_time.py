"""When host threads waited for the GPU, and when they were away from launching."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.intervals import merge
from analysis.trace.calls import named
from analysis.trace.model import Bools, Int64s, Trace
from core.trace_rules import is_launch, is_wait

HOST_STALL_NS = 100_000
"""PyTorch's eager host work between two launches is 5 to 30 us; beyond 100 us it does else."""
WINDOW_CALLS = 1 << 17

Spans = tuple[Int64s, Int64s]
"""Disjoint intervals in order: starts and ends."""
NOTHING: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """Disjoint sorted intervals of the host."""

    waits: Mapping[int, Spans]
    "In a waiting call, by process."
    stalls: Mapping[int, Spans]
    "No call for over HOST_STALL_NS, or in one that neither launches nor waits, by thread."

    def waits_of(self, processes: Iterator[int] | list[int]) -> Spans:
        """Return when any of these processes waited."""
        return united([self.waits[p] for p in processes if p in self.waits])


def united(parts: list[Spans]) -> Spans:
    """Return the union of sets of intervals."""
    if not parts:
        return NOTHING
    return merge(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def host_time(trace: Trace) -> HostTime | None:
    """Return the host's waits and stalls; None where no call was recorded."""
    calls = trace.host_calls
    if not len(calls):
        return None
    waits_for_gpu = named(trace, is_wait)
    is_other = ~waits_for_gpu & ~named(trace, is_launch)
    owner_of = trace.thread_process()
    reached: dict[int, int] = {}
    waits: dict[int, list[Spans]] = {}
    stalls: dict[int, list[Spans]] = {}
    for first in range(0, len(calls), WINDOW_CALLS):
        part = slice(first, first + WINDOW_CALLS)
        thread = calls.thread[part]
        for number in np.flatnonzero(np.bincount(thread)).tolist():
            own = np.flatnonzero(thread == number)
            start_ns, end_ns = calls.start_ns[part][own], calls.end_ns[part][own]
            before = np.maximum.accumulate(np.append(reached.get(number, start_ns[0]), end_ns))
            reached[number] = int(before[-1])
            spans = _stalls(start_ns, end_ns, before[:-1], is_other[part][own])
            stalls.setdefault(number, []).append(spans)
            chosen = waits_for_gpu[part][own]
            spans = merge(start_ns[chosen], end_ns[chosen])
            waits.setdefault(int(owner_of[number]), []).append(spans)
    return HostTime(
        waits={process: united(parts) for process, parts in waits.items()},
        stalls={thread: united(parts) for thread, parts in stalls.items()},
    )


def _stalls(start_ns: Int64s, end_ns: Int64s, before_ns: Int64s, is_other: Bools) -> Spans:
    """Return when a thread made no call since `before_ns`, or was long in another kind of call."""
    silent = np.flatnonzero(start_ns - before_ns >= HOST_STALL_NS)
    is_long = is_other & (end_ns - start_ns >= HOST_STALL_NS)
    return merge(
        np.concatenate([before_ns[silent], start_ns[is_long]]),
        np.concatenate([start_ns[silent], end_ns[is_long]]),
    )
