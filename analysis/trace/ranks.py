"""What each rank of a capture did: its kernels, its communication, and what covered that.

A rank here is a process together with one GPU, as the capture has them; which rank of the job it is
may be known from the capture, or later from the file's name (`analysis.rank_times`). All numbers of
this module are on the capture's own clock and need no other rank.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.intervals import merge, overlap_ns
from analysis.trace.collectives import collective_frame, is_communication
from analysis.trace.model import MISSING, Bools, Int64s, OpKind, RangeKind, Trace
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
    "utc_origin_ns",  # Int64, UTC of the capture's time 0
    "world_size",  # Int64, ranks of the job, as the capture says
)
"""One row a process and GPU that ran kernels."""

NUM_MOMENTS = 16
"""Moments of an idle time at which the host is looked at."""
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
    runs = (ops.kind == OpKind.KERNEL) | (ops.kind == OpKind.GRAPH)
    talks = is_communication(trace)
    if op_step is None and talks.any():
        op_step = steps_of_ops(trace)
    places = _places(trace, runs)
    rows, frames = [], []
    for process, device in places:
        mine = np.flatnonzero(runs & (ops.device == device) & (ops.process == process))
        use = _use(trace, mine, talks)
        rows.append(
            {
                "process": process,
                "device": device,
                **_identity(trace, process, device),
                **use.row,
            }
        )
        if len(use.talking):
            frames.append(_collectives(trace, use, op_step))
    empty = collective_frame(trace, np.empty(0, np.int64))
    found = pd.concat(frames, ignore_index=True) if frames else empty
    return RankTables(
        ranks=pd.DataFrame(rows, columns=list(RANK_COLUMNS)).astype(_NULLABLE),
        collectives=found.sort_values(["start_ns", "end_ns"], kind="stable", ignore_index=True),
    )


def steps_of_ops(trace: Trace) -> Int64s:
    """Return the number of the step, within its process, of each GPU operation; else MISSING."""
    steps = find_steps(trace)
    number = np.append(steps.frame["step"].to_numpy(np.int64), MISSING)
    found: Int64s = number[steps.op_step]
    return found


_NULLABLE: Any = {name: "Int64" for name in ("rank", "utc_origin_ns", "world_size")}


def _places(trace: Trace, runs: Bools) -> list[tuple[int, int]]:
    """Return each (process, device) that ran kernels, in order."""
    ops = trace.gpu_ops
    keys = (ops.process[runs].astype(np.int64) << 32) | (ops.device[runs].astype(np.int64) + 1)
    return [(key >> 32, (key & 0xFFFFFFFF) - 1) for key in np.unique(keys).tolist()]


def _identity(trace: Trace, process: int, device: int) -> dict[str, Any]:
    sources = trace.sources
    known = sources.processes[process] if process >= 0 else None
    gpu = sources.devices.get(device, {})
    return {
        "rank": known.rank if known is not None else None,
        "gpu": gpu.get("name"),
        "utc_origin_ns": sources.utc_origin_ns,
        "world_size": _world_size(trace),
    }


def _world_size(trace: Trace) -> int | None:
    """Return the size of the largest process group that was recorded."""
    sizes = trace.collectives.group_size
    largest = int(sizes.max()) if len(sizes) else 0
    return largest if largest > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What one rank's GPU did."""

    row: dict[str, int]
    busy: Spans
    compute: Spans
    talking: Int64s
    "Rows of `Trace.gpu_ops` that communicate."


def _use(trace: Trace, mine: Int64s, talks: Bools) -> _Use:
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
    return _Use(row=row, busy=busy, compute=compute, talking=mine[is_talk])


def _length(spans: Spans) -> int:
    return int((spans[1] - spans[0]).sum())


def _collectives(trace: Trace, use: _Use, op_step: Int64s | None) -> pd.DataFrame:
    """Return the collectives of one rank, each with what it did before."""
    ops = trace.gpu_ops
    frame = collective_frame(trace, use.talking)
    start, end = ops.start_ns[use.talking], ops.end_ns[use.talking]
    frame["exposed_ns"] = end - start - overlap_ns(*use.compute, start, end)
    if op_step is not None:
        step = op_step[use.talking]
        frame["step"] = pd.arrays.IntegerArray(np.maximum(step, 0), step == MISSING)
    before = np.append(start[0], np.maximum.accumulate(end)[:-1])
    frame["compute_before_ns"] = overlap_ns(*use.compute, np.minimum(before, start), start)
    frame["idle_before_ns"], gap = _longest_gaps(use.busy, start)
    frame["idle_in"] = pd.Series(_ranges_in_gaps(trace, use, gap), dtype=object)
    return frame


def _longest_gaps(busy: Spans, start: Int64s) -> tuple[Int64s, Int64s]:
    """Return the longest idle time since the collective before, and which gap it is (-1: none).

    Gap i lies between the busy intervals i and i + 1; `start` is ascending.
    """
    opened, closed = busy[1][:-1], busy[0][1:]
    length, which = np.zeros(len(start), np.int64), np.full(len(start), MISSING, np.int64)
    owner = np.searchsorted(start, closed, side="left")
    inside = np.flatnonzero(owner < len(start))
    if not len(inside):
        return length, which
    order = inside[np.lexsort((closed[inside] - opened[inside], owner[inside]))]
    last = np.flatnonzero(np.append(owner[order][1:] != owner[order][:-1], True))
    longest = order[last]
    length[owner[longest]] = closed[longest] - opened[longest]
    which[owner[longest]] = longest
    return length, which


def _ranges_in_gaps(trace: Trace, use: _Use, gap: Int64s) -> list[str | None]:
    """Return the host range that most of each gap's time is spent in, None where none is open.

    Innermost ranges at some moments of the gap, steps themselves left out. Looked for on the thread
    of the process that has the most ranges: there the program's own code runs.
    """
    names: list[str | None] = [None] * len(gap)
    known = np.flatnonzero(gap >= 0)
    thread = _main_thread(trace, int(trace.gpu_ops.process[use.talking[0]])) if len(known) else None
    if thread is None:
        return names
    opened, closed = use.busy[1][gap[known]], use.busy[0][gap[known] + 1]
    shares = (np.arange(NUM_MOMENTS) + 0.5) / NUM_MOMENTS
    moments = opened[:, None] + np.rint((closed - opened)[:, None] * shares).astype(np.int64)
    row = innermost(trace.host_ranges, thread, moments.ravel())
    code = np.append(trace.host_ranges.name, MISSING)[row]
    is_frame = np.array([is_iteration(n) or n == MEASURED_RANGE for n in trace.names] + [True])
    code = np.where(is_frame[code], MISSING, code).reshape(moments.shape)
    for place, of_gap in zip(known.tolist(), code, strict=True):
        found, count = np.unique(of_gap[of_gap >= 0], return_counts=True)
        if len(found):
            names[place] = trace.names[found[count.argmax()]]
    return names


def _main_thread(trace: Trace, process: int) -> int | None:
    """Return the thread of the process with the most ranges of its program; None without any."""
    ranges = trace.host_ranges
    is_own = ranges.kind != RangeKind.LIBRARY
    counts = np.bincount(ranges.thread[is_own], minlength=len(trace.sources.threads))
    is_here = trace.thread_process()[:-1] == process
    counts = np.where(is_here, counts[: len(is_here)], 0)
    return int(counts.argmax()) if len(counts) and counts.max() > 0 else None
