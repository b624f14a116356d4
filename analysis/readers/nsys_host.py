"""When host threads waited for the GPU, and when they were away from launching."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.intervals import merge
from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_chunks import time_windows
from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_events import TID_BITS, Codes

HOST_STALL_NS = 100_000
"""PyTorch's eager host work between two launches is 5 to 30 us; beyond 100 us it does else."""

Intervals = tuple[Ints, Ints]
NOTHING: Intervals = (np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTime:
    """Disjoint sorted intervals of the host."""

    waits: Mapping[int, Intervals]
    "In a waiting call, by process (globalPid >> 24)."
    stalls: Mapping[int, Intervals]
    "No call for over HOST_STALL_NS, or in one that neither launches nor waits, by globalTid."

    def waits_of(self, processes: Ints) -> Intervals:
        """Return when any of these processes waited."""
        return united([self.waits[p] for p in processes.tolist() if p in self.waits])


def united(parts: list[Intervals]) -> Intervals:
    """Return the union of sets of intervals."""
    if not parts:
        return NOTHING
    return merge(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def host_time(
    calls: ApiCalls, is_wait: NDArray[np.bool_], is_launch: NDArray[np.bool_]
) -> HostTime:
    """Return the host's waits and stalls; `is_wait` and `is_launch` are by kind of call."""
    spells = _Spells(calls, is_wait, is_launch)
    waits: dict[int, list[Intervals]] = {}
    names = ("start", "end", "kind")
    for low_ns, high_ns in time_windows([calls.rows]):
        rows = calls.rows.between(low_ns, high_ns, names)
        if not rows:
            continue
        start, end, kind = rows["start"], rows["end"], rows["kind"]
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end, kind = start[order], end[order], kind[order]
        spells.add(start, end, kind)
        for process, spell in _waits(calls, start, end, kind, is_wait):
            waits.setdefault(process, []).append(spell)
    return HostTime(
        waits={process: united(parts) for process, parts in waits.items()}, stalls=spells.found()
    )


def _waits(
    calls: ApiCalls, start: Ints, end: Ints, kind: Codes, is_wait: NDArray[np.bool_]
) -> Iterator[tuple[int, Intervals]]:
    chosen = np.flatnonzero(is_wait[kind])
    process = calls.thread_of_kind[kind[chosen]] >> TID_BITS
    for owner in np.unique(process).tolist():
        own = chosen[process == owner]
        yield owner, merge(start[own], end[own])


class _Spells:
    """Finds, window by window, when each thread was away from launching."""

    def __init__(
        self, calls: ApiCalls, is_wait: NDArray[np.bool_], is_launch: NDArray[np.bool_]
    ) -> None:
        self._threads, self._group_of_kind = np.unique(calls.thread_of_kind, return_inverse=True)
        self._is_other = ~is_wait & ~is_launch
        self._reached: dict[int, int] = {}
        self._parts: dict[int, list[Intervals]] = {}

    def add(self, start: Ints, end: Ints, kind: Codes) -> None:
        """Take the calls of a window, in order of start."""
        group = self._group_of_kind[kind]
        present = np.flatnonzero(np.bincount(group))
        for index in present.tolist():
            own = slice(None) if len(present) == 1 else np.flatnonzero(group == index)
            self._add_thread(index, start[own], end[own], self._is_other[kind[own]])

    def _add_thread(self, index: int, start: Ints, end: Ints, is_other: NDArray[np.bool_]) -> None:
        reached = self._reached.get(index, int(start[0]))
        before = np.maximum.accumulate(np.append(reached, end))
        silent = np.flatnonzero(start - before[:-1] >= HOST_STALL_NS)
        is_long = is_other & (end - start >= HOST_STALL_NS)
        spells = merge(
            np.concatenate([before[silent], start[is_long]]),
            np.concatenate([start[silent], end[is_long]]),
        )
        self._parts.setdefault(index, []).append(spells)
        self._reached[index] = int(before[-1])

    def found(self) -> dict[int, Intervals]:
        threads = self._threads.tolist()
        return {threads[index]: united(parts) for index, parts in self._parts.items()}
