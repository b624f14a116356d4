"""Split a device's idle time, between its first and last kernel, by what it waited for.

Inside each gap, in this order: time in which a copy ran is `transfer`; time before the next
kernel's launch in which the host sat in a waiting call is `synchronisation`; stretches of over
HOST_STALL_NS before that launch in which its thread made no CUDA call, or sat in one that neither
launches nor waits (an allocation, a module load), are `host`; the rest is `launch` when the launch
was issued in the gap. A kernel that was queued before the gap and still did not start (start-up
latency, a dependency between streams), or one without a recorded launch, leaves the rest `unknown`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import merge, overlap_ns
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, TID_BITS, ApiCalls, Codes
from analysis.readers.nsys_launches import GpuWork
from analysis.tables import GAP_COLUMNS, empty

HOST_STALL_NS = 100_000
"""PyTorch's eager host work between two launches is 5 to 30 us; beyond 100 us it does else."""
BLOCK_GAPS = 1 << 18
NO_TIME = np.iinfo(np.int64).min
EVIDENCE = {
    "transfer": "copies or memory sets ran on the device while no kernel did",
    "synchronisation": "the host sat in a waiting call before it launched the next kernel",
    "host": "for over 100 us before the next launch its thread made no CUDA call, or sat in an "
    "allocation or module load",
    "launch": "the next kernel's launch was issued while the device was idle",
    "unknown": "the next kernel was launched before the gap, or its launch was not recorded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """The API calls with what each is for."""

    calls: ApiCalls
    is_wait: NDArray[np.bool_]
    is_launch: NDArray[np.bool_]


Intervals = tuple[Ints, Ints]


def gaps_frame(work: GpuWork, host: HostCalls) -> pd.DataFrame:
    """Return idle time by cause (GAP_COLUMNS); it sums to span - busy over all devices."""
    runs = np.flatnonzero((work.kind == KERNEL) | (work.kind == GRAPH))
    copies = np.flatnonzero((work.kind != KERNEL) & (work.kind != GRAPH))
    totals = {cause: [0, 0] for cause in EVIDENCE}
    launched = work.launch[runs]
    kinds = np.unique(host.calls.kind[launched[launched >= 0]])
    stalls = _stalls(host, np.unique(host.calls.thread_of_kind[kinds]))
    for device in np.unique(work.device[runs]).tolist():
        mine = runs[work.device[runs] == device]
        beside = copies[work.device[copies] == device]
        copy = merge(work.start_ns[beside], work.end_ns[beside])
        for block in _split(work, host, mine, copy, stalls):
            for cause, spent in block.items():
                totals[cause][0] += int((spent > 0).sum())
                totals[cause][1] += int(spent.sum())
    rows = [
        (cause, count, total, f"{count} gaps: {EVIDENCE[cause]}")
        for cause, (count, total) in totals.items()
        if total > 0
    ]
    if not rows:
        return empty(GAP_COLUMNS)
    frame = pd.DataFrame(rows, columns=list(GAP_COLUMNS))
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _split(
    work: GpuWork,
    host: HostCalls,
    mine: NDArray[np.intp],
    copy: Intervals,
    stalls: dict[int, Intervals],
) -> Iterator[dict[str, Ints]]:
    """Give the split of the device's gaps, block by block: the arrays of all gaps are large."""
    start = work.start_ns[mine]
    if (start[1:] < start[:-1]).any():
        mine = mine[np.argsort(start, kind="stable")]
        start = work.start_ns[mine]
    starts, ends = merge(start, work.end_ns[mine])
    waiting = _union(copy, _waits(work, host, mine))
    away = {tid: _union(waiting, stall) for tid, stall in stalls.items()}
    for first in range(0, len(starts) - 1, BLOCK_GAPS):
        last = min(first + BLOCK_GAPS, len(starts) - 1)
        opened, closed = ends[first:last], starts[first + 1 : last + 1]
        launch = work.launch[mine[np.searchsorted(start, closed)]]
        yield _split_block(host, (opened, closed), launch, copy, waiting, away)


def _split_block(
    host: HostCalls,
    gaps: Intervals,
    launch: Codes,
    copy: Intervals,
    waiting: Intervals,
    away_of: dict[int, Intervals],
) -> dict[str, Ints]:
    opened, closed = gaps
    transfer = overlap_ns(*copy, opened, closed)
    rest = closed - opened - transfer
    if len(host.calls) == 0:
        return {"transfer": transfer, "unknown": rest}
    issued = np.where(launch >= 0, host.calls.start_ns[launch], NO_TIME)
    before = np.clip(issued, opened, closed)
    copied = overlap_ns(*copy, opened, before)
    waited = overlap_ns(*waiting, opened, before)
    away = waited.copy()
    thread = np.where(launch >= 0, host.calls.threads_of(launch), MISSING)
    for tid, spells in away_of.items():
        own = np.flatnonzero(thread == tid)
        away[own] = overlap_ns(*spells, opened[own], before[own])
    rest = rest - (away - copied)
    is_late = issued >= opened
    return {
        "transfer": transfer,
        "synchronisation": waited - copied,
        "host": away - waited,
        "launch": np.where(is_late, rest, 0),
        "unknown": np.where(is_late, 0, rest),
    }


def _waits(work: GpuWork, host: HostCalls, mine: NDArray[np.intp]) -> Intervals:
    """Return the waiting calls of the processes that use the device."""
    owners = np.unique(work.process[mine])
    processes = work.processes[owners[owners >= 0]]
    waits = np.flatnonzero(host.is_wait)
    waits = waits[np.isin(host.calls.threads_of(waits) >> TID_BITS, processes)]
    return host.calls.start_ns[waits], host.calls.end_ns[waits]


def _stalls(host: HostCalls, threads: Ints) -> dict[int, Intervals]:
    """Return when each launching thread was away from launching for longer than HOST_STALL_NS."""
    calls = host.calls
    group_of_kind = np.searchsorted(threads, calls.thread_of_kind).astype(np.int32)
    is_ours = np.isin(calls.thread_of_kind, threads)
    group = np.where(is_ours, group_of_kind, len(threads)).astype(np.int32)[calls.kind]
    order = np.argsort(group, kind="stable").astype(np.int32)
    bounds = np.searchsorted(group[order], np.arange(len(threads) + 1))
    del group
    return {
        tid: _spells(host, order[bounds[index] : bounds[index + 1]])
        for index, tid in enumerate(threads.tolist())
    }


def _spells(host: HostCalls, own: Codes) -> Intervals:
    """Return when one thread made no call, or sat in one that neither launches nor waits."""
    calls = host.calls
    start = calls.start_ns[own]
    if (start[1:] < start[:-1]).any():
        own = own[np.argsort(start, kind="stable")]
    del start
    begins: list[Ints] = []
    ends: list[Ints] = []
    reached: int | None = None
    for first in range(0, len(own), BLOCK_GAPS):
        block = own[first : first + BLOCK_GAPS]
        start, end = calls.start_ns[block], calls.end_ns[block]
        before = np.maximum.accumulate(np.append(start[0] if reached is None else reached, end))
        silent = np.flatnonzero(start - before[:-1] >= HOST_STALL_NS)
        is_long = ~host.is_wait[block] & ~host.is_launch[block] & (end - start >= HOST_STALL_NS)
        begins += [before[silent], start[is_long]]
        ends += [start[silent], end[is_long]]
        reached = int(before[-1])
    nothing = np.empty(0, np.int64)
    return merge(np.concatenate([nothing, *begins]), np.concatenate([nothing, *ends]))


def _union(a: Intervals, b: Intervals) -> Intervals:
    return merge(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))
