"""What each rank of a capture did: its kernels, its communication, and what covered that.

A rank here is a process together with one GPU, as the capture has them; which rank of the job it is
may be known from the capture, or later from the file's name (`rank_numbers`). All numbers of this
module are on the capture's own clock and need no other rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import merge, overlap_ns
from analysis.trace.collective_kinds import POINT_TO_POINT
from analysis.trace.collectives import collective_frame, is_communication
from analysis.trace.model import MISSING, Bools, Int32s, Int64s, OpKind, RangeKind, Trace
from analysis.trace.nesting import innermost
from analysis.trace.steps import find_steps
from core.trace_rules import MEASURED_RANGE, is_iteration

RANK_COLUMNS = (
    "process",  # int64, row of `Sources.processes`; -1 unknown
    "device",  # int64
    "rank",  # Int64, as the capture says
    "gpu",  # str or None, its name
    "num_kernels",  # int64
    "kernel_time_ns",  # int64, sum of kernel durations
    "start_ns",  # int64, of its first kernel or opaque graph launch
    "span_ns",  # int64, to the end of its last
    "busy_ns",  # int64, union of kernels and opaque graph launches
    "compute_ns",  # int64, union of those that do not communicate
    "communication_ns",  # int64, union of kernels that communicate
    "exposed_ns",  # int64, of that, what no compute kernel of the device covers
    "exposed_sends_ns",  # int64, the same of sends and receives alone
    "utc_origin_ns",  # Int64, UTC of the capture's time 0
    "world_size",  # Int64, ranks of the job, as the capture says
    "largest_group",  # Int64, ranks of the largest process group that it recorded
)
"""One row per process and GPU that ran kernels."""

NUM_MOMENTS = 16
"""Moments of the idle time before a collective at which the host is looked at."""
Spans = tuple[Int64s, Int64s]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTables:
    """The ranks of one capture and their collectives."""

    ranks: pd.DataFrame
    "RANK_COLUMNS."
    collectives: pd.DataFrame
    "COLLECTIVE_COLUMNS."


def rank_tables(trace: Trace, op_step: Int64s | None = None) -> RankTables:
    """Return the ranks and collectives of a capture.

    `op_step` is the step of each GPU operation, in its process; found here when not given.
    """
    ops = trace.gpu_ops
    runs = ops.runs_kernels
    talks = is_communication(trace)
    if op_step is None and talks.any():
        op_step = steps_of_ops(trace)
    uses = [
        _use(trace, process, device, mine, talks)
        for process, device, mine in _places(trace, np.flatnonzero(runs))
    ]
    ops_talking = np.concatenate([use.talking for use in uses]) if uses else np.empty(0, np.int64)
    frame = collective_frame(trace, ops_talking)
    sends = _exposed_sends(trace, uses, frame)
    rows = [
        use.row | {"exposed_sends_ns": sent} | _identity(trace, use.process, use.device)
        for use, sent in zip(uses, sends, strict=True)
    ]
    columns = {name: [row[name] for row in rows] for name in RANK_COLUMNS}
    columns |= {name: pd.array(columns[name], dtype="Int64") for name in _NULLABLE}
    return RankTables(
        ranks=pd.DataFrame(columns),
        collectives=_collectives(trace, uses, frame, ops_talking, op_step),
    )


def steps_of_ops(trace: Trace) -> Int64s:
    """Return the number of the step, within its process, of each GPU operation; else MISSING."""
    steps = find_steps(trace)
    number = np.append(steps.frame["step"].to_numpy(np.int64), MISSING)
    of_op: Int64s = number[steps.op_step]
    return of_op


_NULLABLE = ("rank", "utc_origin_ns", "world_size", "largest_group")


def _places(trace: Trace, runs: Int64s) -> list[tuple[int, int, Int64s]]:
    """Return each (process, device) with its kernels, in order of start; `runs` are all kernels."""
    process, device = trace.gpu_ops.process[runs], trace.gpu_ops.device[runs]
    order = np.lexsort((device, process))
    process, device = process[order], device[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (process[1:] != process[:-1]) | (device[1:] != device[:-1])
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], len(order))[: len(first)]
    return [
        (int(process[a]), int(device[a]), runs[order[a:b]])
        for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]


def _identity(trace: Trace, process: int, device: int) -> dict[str, Any]:
    sources = trace.sources
    largest = int(trace.collectives.group_size.max(initial=0))
    return {
        "process": process,
        "device": device,
        "rank": sources.processes[process].rank if process >= 0 else None,
        "gpu": sources.devices.get(device, {}).get("name"),
        "utc_origin_ns": sources.utc_origin_ns,
        "world_size": sources.world_size,
        "largest_group": largest if largest > 0 else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What one rank's GPU did."""

    process: int
    device: int
    row: dict[str, int]
    busy: Spans
    compute: Spans
    talking: Int64s
    "Rows of `Trace.gpu_ops` that communicate."


def _use(trace: Trace, process: int, device: int, mine: Int64s, talks: Bools) -> _Use:
    ops = trace.gpu_ops
    start, end = ops.start_ns[mine], ops.end_ns[mine]
    is_talk = talks[mine]
    busy = merge(start, end)
    compute = merge(start[~is_talk], end[~is_talk]) if is_talk.any() else busy
    talk = merge(start[is_talk], end[is_talk])
    is_kernel = ops.kind[mine] == OpKind.KERNEL
    communication = _length(talk)
    row = {
        "num_kernels": int(is_kernel.sum()),
        "kernel_time_ns": int((end - start)[is_kernel].sum()),
        "start_ns": int(busy[0][0]),
        "span_ns": int(busy[1][-1] - busy[0][0]),
        "busy_ns": _length(busy),
        "compute_ns": _length(compute),
        "communication_ns": communication,
        "exposed_ns": communication - int(overlap_ns(*compute, *talk).sum()),
    }
    return _Use(
        process=process,
        device=device,
        row=row,
        busy=busy,
        compute=compute,
        talking=mine[is_talk],
    )


def _length(spans: Spans) -> int:
    return int((spans[1] - spans[0]).sum())


def _exposed_sends(trace: Trace, uses: Sequence[_Use], frame: pd.DataFrame) -> list[int]:
    """Return how long each rank was in sends and receives that no compute kernel covered."""
    is_sent = (frame["kind"] == POINT_TO_POINT).to_numpy(bool)
    bounds = np.cumsum([0, *(len(use.talking) for use in uses)])
    exposed = []
    for use, first, last in zip(uses, bounds[:-1], bounds[1:], strict=True):
        rows = use.talking[is_sent[first:last]]
        sent = merge(trace.gpu_ops.start_ns[rows], trace.gpu_ops.end_ns[rows])
        exposed.append(_length(sent) - int(overlap_ns(*use.compute, *sent).sum()))
    return exposed


def _collectives(
    trace: Trace,
    uses: Sequence[_Use],
    frame: pd.DataFrame,
    ops: Int64s,
    op_step: Int64s | None,
) -> pd.DataFrame:
    """Return the collectives of all ranks, each with what its rank did before.

    `frame`: COLLECTIVE_COLUMNS of the operations `ops`, rank by rank.
    """
    if not len(ops):
        return frame
    for name, values in _before(trace, uses).items():
        frame[name] = values
    if op_step is not None:
        frame["step"] = pd.arrays.IntegerArray(np.maximum(op_step[ops], 0), op_step[ops] == MISSING)
    return frame.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True)


def _before(trace: Trace, uses: Sequence[_Use]) -> dict[str, Any]:
    """Return the columns of all collectives that need what else their GPU did, rank by rank."""
    columns: dict[str, list[Int64s]] = {
        name: [] for name in ("exposed_ns", "compute_before_ns", "idle_before_ns")
    }
    moments, thread = [], []
    main = _main_threads(trace)
    for use in uses:
        start, end = trace.gpu_ops.start_ns[use.talking], trace.gpu_ops.end_ns[use.talking]
        if not len(start):
            continue
        columns["exposed_ns"].append(end - start - overlap_ns(*use.compute, start, end))
        before = np.append(start[0], np.maximum.accumulate(end)[:-1])
        columns["compute_before_ns"].append(
            overlap_ns(*use.compute, np.minimum(before, start), start)
        )
        since = np.maximum(start - before, 0)
        busy = overlap_ns(*use.busy, np.minimum(before, start), start)
        columns["idle_before_ns"].append(since - busy)
        times, is_idle = _idle_moments(use.busy, np.minimum(before, start), start)
        moments.append(times)
        own = main.get(use.process, MISSING)
        thread.append(np.where(is_idle, own, MISSING).astype(np.int32))
    summed = {name: np.concatenate(parts) for name, parts in columns.items()}
    where, share = _ranges_at(trace, np.concatenate(thread), np.concatenate(moments))
    spent = (summed["idle_before_ns"] * share).astype(np.int64)
    return {**summed, "idle_in": pd.Series(where, dtype=object), "idle_in_ns": spent}


def _idle_moments(busy: Spans, since: Int64s, until: Int64s) -> tuple[Int64s, Bools]:
    """Return NUM_MOMENTS evenly spaced in the idle time of each window, and which windows have any.

    Between the merged intervals `busy`; a row a window.
    """
    opened, closed = busy[1][:-1], busy[0][1:]
    num = (len(since), NUM_MOMENTS)
    if not len(opened):
        return np.zeros(num, np.int64), np.zeros(len(since), bool)
    done = np.append(0, np.cumsum(closed - opened))
    first, last = (
        overlap_ns(opened, closed, np.full(len(times), opened[0]), np.maximum(times, opened[0]))
        for times in (since, until)
    )
    shares = (np.arange(NUM_MOMENTS) + 0.5) / NUM_MOMENTS
    at = first[:, None] + ((last - first)[:, None] * shares).astype(np.int64)
    gap = np.minimum(np.searchsorted(done, at, side="right") - 1, len(opened) - 1)
    return opened[gap] + at - done[gap], last > first


def _ranges_at(
    trace: Trace, thread: Int32s, moments: Int64s
) -> tuple[list[str | None], NDArray[np.float64]]:
    """Return the host range that a thread is in at most of some moments, a row each, and at what
    share of them.

    The innermost one, if it has half of the moments in any range; else the outermost. Steps
    themselves are left out; None where there is none.
    """
    names: list[str | None] = [None] * len(thread)
    share = np.zeros(len(thread))
    known = np.flatnonzero(thread >= 0)
    if not len(known):
        return names, share
    of_thread = np.repeat(thread[known], NUM_MOMENTS)
    inner = innermost(trace.host_ranges, of_thread, moments[known].ravel())
    name = np.append(trace.host_ranges.name, MISSING)
    is_frame = np.array([is_iteration(n) or n == MEASURED_RANGE for n in trace.names] + [True])
    parent = np.append(trace.host_ranges.parent, MISSING)
    outer = inner
    while (climbs := (parent[outer] >= 0) & ~is_frame[name[parent[outer]]]).any():
        outer = np.where(climbs, parent[outer], outer)
    codes = [
        np.where(is_frame[name[row]], MISSING, name[row]).reshape(-1, NUM_MOMENTS)
        for row in (inner, outer)
    ]
    (own, own_count), (around, around_count) = map(_most_common, codes)
    is_inner = 2 * own_count >= (codes[0] >= 0).sum(axis=1)
    share[known] = np.where(is_inner, own_count, around_count) / NUM_MOMENTS
    chosen = np.where(is_inner, own, around)
    for place, code in zip(known.tolist(), chosen.tolist(), strict=True):
        names[place] = trace.names[code] if code >= 0 else None
    return names, share


def _most_common(codes: NDArray[Any]) -> tuple[NDArray[Any], Int64s]:
    """Return the commonest code of each row, the lowest of several, and how often it is there.

    MISSING and 0 for rows without any.
    """
    codes = np.sort(codes, axis=1)
    times = np.stack([(codes == codes[:, [k]]).sum(axis=1) for k in range(NUM_MOMENTS)], axis=1)
    times = np.where(codes >= 0, times, 0)
    rows, best = np.arange(len(codes)), times.argmax(axis=1)
    return np.where(times.any(axis=1), codes[rows, best], MISSING), times[rows, best]


def _main_threads(trace: Trace) -> dict[int, int]:
    """Return for each process its thread with the most ranges: there its own code runs.

    Ranges of libraries do not count; processes without any range are left out.
    """
    ranges = trace.host_ranges
    is_own = ranges.kind != RangeKind.LIBRARY
    counts = np.bincount(ranges.thread[is_own], minlength=len(trace.sources.threads))
    main: dict[int, int] = {}
    for thread, process in enumerate(trace.thread_process()[:-1].tolist()):
        if counts[thread] > (counts[main[process]] if process in main else 0):
            main[process] = thread
    return main
