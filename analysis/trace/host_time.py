"""When host threads waited for the GPU, and when they were away from launching."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.intervals import merge
from analysis.trace.calls import named
from analysis.trace.model import Int64s, Trace
from core.trace_rules import is_launch, is_wait

HOST_STALL_NS = 100_000
"""PyTorch's eager host work between two launches is 5 to 30 us; beyond 100 us it does else."""

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
    waits_for_gpu, launches = named(trace, is_wait), named(trace, is_launch)
    is_other = ~waits_for_gpu & ~launches
    waits: dict[int, list[Spans]] = {}
    stalls: dict[int, Spans] = {}
    owner_of = trace.thread_process()
    for thread in np.flatnonzero(np.bincount(calls.thread)).tolist():
        own = np.flatnonzero(calls.thread == thread)
        start_ns, end_ns = calls.start_ns[own], calls.end_ns[own]
        stalls[thread] = _stalls(start_ns, end_ns, is_other[own])
        chosen = waits_for_gpu[own]
        spans = merge(start_ns[chosen], end_ns[chosen])
        waits.setdefault(int(owner_of[thread]), []).append(spans)
    return HostTime(waits={p: united(parts) for p, parts in waits.items()}, stalls=stalls)


def _stalls(start_ns: Int64s, end_ns: Int64s, is_other: np.ndarray) -> Spans:
    reached = np.maximum.accumulate(np.append(start_ns[0], end_ns))[:-1]
    silent = np.flatnonzero(start_ns - reached >= HOST_STALL_NS)
    is_long = is_other & (end_ns - start_ns >= HOST_STALL_NS)
    return merge(
        np.concatenate([reached[silent], start_ns[is_long]]),
        np.concatenate([start_ns[silent], end_ns[is_long]]),
    )
