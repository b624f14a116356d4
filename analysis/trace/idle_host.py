"""What the host did while the GPU waited for it.

Each gap on the GPU ends with an operation; the thread that launched that one is the one the GPU
waited for. What the thread was in from the gap's start until the launch returned is what took the
time: the innermost range, and the API call inside it. The rest of the gap is launch latency, and so
is what a launch shortly before the gap still takes. Where the operation was launched long before
the gap the host is not to blame: it was queued.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.intervals import last_started, merge, overlap_between_ns, overlap_ns
from analysis.iterations import normalise
from analysis.tables import IDLE_COLUMNS
from analysis.trace.attribution import launching_thread
from analysis.trace.calls import of_launch
from analysis.trace.gaps import MAX_START_NS, clipped, idle_times, start_latency_ns
from analysis.trace.model import (
    MISSING,
    Bools,
    HostRanges,
    Int32s,
    Int64s,
    OpKind,
    RangeKind,
    Trace,
)
from analysis.trace.ranges import levels
from analysis.trace.steps import Steps
from core.trace_rules import is_launch, is_wait

GROUPS = {
    "data_loader": "the data loader",
    "optimizer": "the optimizer's host code",
    "wait": "copies and waits",
    "launch": "launching kernels",
    "allocation": "allocating memory",
    "operator": "operators' host code",
    "python": "Python code",
    "range": "host code in ranges",
    "outside": "host code outside CUDA calls",
    "call": "other API calls",
    "transfer": "copies on the GPU",
    "latency": "launch latency",
    "queued": "work queued behind other work",
    "unknown": "an unknown launch",
}
_LOADER = re.compile(r"data_?loader|collate|(next|load|fetch|get)_?(batch|data)|prefetch", re.I)
_OPTIMIZER = re.compile(r"^Optimizer\.|optimi[sz]er", re.I)
_ALLOCATES = re.compile(r"(Malloc|Free|MemAlloc|MemCreate|MemMap)", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHost:
    """Where idle time went, by what the host did."""

    frame: pd.DataFrame
    "IDLE_COLUMNS."
    num_steps: int
    "Regular steps; 0 where the whole capture is meant."
    time_ns: int
    "Of those steps, or of the capture."
    stack: Int64s
    "Range of each piece of host-caused idle time; MISSING outside of any."
    call: Int64s
    "Row of `Trace.names` of the call in it; MISSING outside of calls."
    frame_of: Int64s
    "Innermost frame of the host's call stack (`Trace.backtraces`); MISSING where none is known."
    piece_ns: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaps:
    start_ns: Int64s
    end_ns: Int64s
    op: Int64s
    "Row of the operation that ends it; where none does, of the last one."
    is_last: Bools
    "No operation ends it."


def idle_host(trace: Trace, steps: Steps) -> IdleHost | None:
    """Return what the host did in the gaps of the leading GPU; None without calls or gaps."""
    if not len(trace.host_calls) or not len(trace.gpu_ops):
        return None
    device, windows, num_steps = leading_windows(trace, steps)
    time_ns = int((windows[1] - windows[0]).sum())
    gaps = _gaps(trace, device, windows)
    if time_ns <= 0 or not len(gaps.op):
        return None
    calls = trace.host_calls
    launch = trace.gpu_ops.launch[gaps.op]
    known = launch >= 0
    began = of_launch(calls.start_ns, launch, 0)
    done = np.clip(of_launch(calls.end_ns, launch, 0), gaps.start_ns, gaps.end_ns)
    done = np.where(gaps.is_last & known, gaps.end_ns, done)
    is_late = known & (began >= gaps.start_ns)
    # A launch that began before the gap and returned in it was the host's as well.
    is_late |= known & (done > gaps.start_ns)
    length, waited = gaps.end_ns - gaps.start_ns, gaps.end_ns - done
    is_held = is_late & (waited > MAX_START_NS)
    starting = np.clip(began + start_latency_ns(trace) - gaps.start_ns, 0, length)
    latency = np.where(is_late, np.where(is_held, 0, waited), starting)
    queued = np.where(is_late, np.where(is_held, waited, 0), length - starting)
    totals: dict[tuple[str, str, str | None], int] = {}
    for group, chosen, values in (
        ("latency", known, latency),
        ("queued", known, queued),
        ("unknown", ~known, length),
    ):
        if total := int(values[chosen].sum()):
            totals[group, GROUPS[group], None] = total
    if copies := _copies(trace, device, windows):
        totals["transfer", GROUPS["transfer"], None] = copies
    ranges, names, frames, pieces = _pieces(trace, gaps, done, is_late)
    _add_pieces(trace, totals, ranges, names, frames, pieces)
    return IdleHost(
        frame=_frame(totals, num_steps, time_ns),
        num_steps=num_steps,
        time_ns=time_ns,
        stack=ranges,
        call=names,
        frame_of=frames,
        piece_ns=pieces,
    )


def leading_windows(trace: Trace, steps: Steps) -> tuple[int, tuple[Int64s, Int64s], int]:
    """Return the leading GPU, the time on it that counts, and the number of steps in that."""
    ops, frame = trace.gpu_ops, steps.frame
    device = steps.device
    counts = (frame["process"].to_numpy() == steps.process) & frame["is_regular"].to_numpy(bool)
    counts &= (frame["gpu_start_ns"].notna() & frame["period_ns"].notna()).to_numpy(bool)
    if counts.any():
        start = frame["gpu_start_ns"].to_numpy(np.int64, na_value=0)[counts]
        period = frame["period_ns"].to_numpy(np.int64, na_value=0)[counts]
        end = np.minimum(start + period, np.append(start[1:], _FAR))
        return device, (start, end), len(start)
    runs = (ops.device == device) & _is_kernel(trace)
    if not runs.any():
        return device, (np.zeros(0, np.int64), np.zeros(0, np.int64)), 0
    first, last = ops.start_ns[runs].min(), ops.end_ns[runs].max()
    return device, (np.array([first]), np.array([last])), 0


_FAR = np.iinfo(np.int64).max
PART_GAPS = 1 << 18
"""Gaps that are looked into at a time: temporary arrays stay small."""


def _is_kernel(trace: Trace) -> Any:
    kind = trace.gpu_ops.kind
    return (kind == OpKind.KERNEL) | (kind == OpKind.GRAPH)


def _gaps(trace: Trace, device: int, windows: tuple[Int64s, Int64s]) -> _Gaps:
    """Return the times in the windows in which nothing ran, copies neither."""
    ops = trace.gpu_ops
    mine = np.flatnonzero(ops.device == device)
    before, after, next_op = idle_times(trace, mine, windows)
    row, low, high = clipped(before, after, windows)
    return _Gaps(start_ns=low, end_ns=high, op=next_op[row], is_last=row == len(mine))


def _copies(trace: Trace, device: int, windows: tuple[Int64s, Int64s]) -> int:
    """Return how long copies ran on the GPU in the windows while no kernel did."""
    ops = trace.gpu_ops
    here = ops.device == device
    kernels = here & _is_kernel(trace)

    def covered(chosen: Any) -> int:
        spans = merge(ops.start_ns[chosen], ops.end_ns[chosen])
        return int(overlap_ns(*spans, *windows).sum())

    return covered(here) - covered(kernels)


def _pieces(trace: Trace, gaps: _Gaps, done: Int64s, is_late: Any) -> tuple[Int64s, ...]:
    """Return range, call and frame of each piece of host time in a gap, and its length."""
    thread = launching_thread(trace)[gaps.op]
    pieces = []
    for number in np.flatnonzero(np.bincount(thread[is_late])).tolist():
        mine = is_late & (thread == number)
        starts, ends = merge(gaps.start_ns[mine], done[mine])
        timeline = _Timeline(trace, number)
        for first in range(0, len(starts), PART_GAPS):
            low, high = starts[first : first + PART_GAPS], ends[first : first + PART_GAPS]
            time_ns, *inside = timeline.until(int(low[0]), int(high[-1]))
            spent = overlap_between_ns(low, high, np.append(time_ns, high[-1]))
            pieces.append(_summed(inside, spent))
    if not pieces:
        return (np.empty(0, np.int64),) * 4
    return tuple(np.concatenate(part) for part in zip(*pieces, strict=True))


def _summed(inside: Sequence[Int64s], spent: Int64s) -> tuple[Int64s, ...]:
    """Return the time spent in each range, call and frame, of those with any, in their order."""
    kept = np.flatnonzero(spent > 0)
    key = np.zeros(len(kept), np.int64)
    for codes in inside:
        span = int(codes.max(initial=MISSING)) + 2
        if int(key.max(initial=0)) + 1 > _FAR // span:  # codes with gaps, in a huge capture
            _, key = np.unique(key, return_inverse=True)
        key = key * span + codes[kept] + 1
    order = np.argsort(key)
    firsts = np.flatnonzero(np.diff(key[order], prepend=-1))
    total = np.add.reduceat(spent[kept[order]], firsts) if len(firsts) else spent[:0]
    return (*(codes[kept[order[firsts]]] for codes in inside), total)


class _Timeline:
    """What a thread was executing, interval by interval."""

    def __init__(self, trace: Trace, thread: int) -> None:
        self._calls, self._thread = trace.host_calls, thread
        rows = np.flatnonzero(trace.host_ranges.thread == thread)
        self._changes, self._inside = _changes(trace.host_ranges, rows)
        self._turns, self._frames = _sampled(trace, thread)
        self._next = 0
        self._open_until = -_FAR
        self._name = MISSING

    def until(self, low: int, high: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return when what the thread is in changes between two times, the first of which comes
        with it, and the innermost range, call and frame from then on. Stretches follow one another.
        """
        stop = int(np.searchsorted(self._calls.start_ns, high))
        part = slice(self._next, stop)
        own = np.flatnonzero(self._calls.thread[part] == self._thread)
        start = np.append(-_FAR, self._calls.start_ns[part][own])
        ends = self._calls.end_ns[part][own]
        end = np.maximum.accumulate(np.append(self._open_until, ends))
        name = np.append(self._name, self._calls.name[part][own]).astype(np.int64)
        first, last = np.searchsorted(self._changes, (low, high))
        turn, last_turn = np.searchsorted(self._turns, (low, high))
        turns = self._turns[turn:last_turn]
        time_ns = np.concatenate(
            [[low, self._open_until], self._changes[first:last], start[1:], ends, turns]
        )
        time_ns = time_ns[(time_ns >= low) & (time_ns <= high)]
        time_ns.sort()
        time_ns = time_ns[np.diff(time_ns, prepend=low - 1) > 0]
        row = np.append(self._inside, MISSING)[last_started(self._changes, time_ns)]
        at = last_started(start, time_ns)
        call = np.where(end[at] > time_ns, name[at], MISSING)
        self._next, self._open_until, self._name = stop, int(end[-1]), int(name[-1])
        frame = self._frames[np.searchsorted(self._turns, time_ns, side="right")]
        return time_ns, row, call, frame


def _sampled(trace: Trace, thread: int) -> tuple[Int64s, Int64s]:
    """Return when the sample that tells a thread's stack changes, and the frame before and after.

    A moment's stack is that of the nearest sample, if that is not far for samples of this thread.
    """
    backtraces = trace.backtraces
    nothing = np.empty(0, np.int64), np.full(1, MISSING, np.int64)
    if backtraces is None:
        return nothing
    mine = np.flatnonzero(backtraces.sample_thread == thread)
    if len(mine) < 2:
        return nothing
    at, frame = backtraces.sample_ns[mine], backtraces.sample_frame[mine]
    reach = int(np.median(np.diff(at)))
    begin = np.maximum(at - reach, np.append(at[0] - reach, (at[:-1] + at[1:]) // 2))
    end = np.minimum(at + reach, np.append((at[:-1] + at[1:]) // 2, at[-1] + reach))
    turns = np.stack([begin, end], axis=1).ravel()
    frames = np.stack([frame, np.full(len(frame), MISSING)], axis=1).ravel()
    return turns, np.append(MISSING, frames)


def _changes(ranges: HostRanges, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return when the innermost range of a thread changes, and to which."""
    depth = ranges.depth[rows].astype(np.int64)
    time_ns = np.concatenate([ranges.start_ns[rows], ranges.end_ns[rows]])
    inside = np.concatenate([rows, ranges.parent[rows].astype(np.int64)])
    # At one moment ranges end before others start: inner ones end first, outer ones start first.
    turn = np.concatenate([depth + 1, -depth - 1])
    order = np.lexsort((turn, time_ns))
    return time_ns[order], inside[order]


def _add_pieces(
    trace: Trace,
    totals: dict[tuple[str, str, str | None], int],
    ranges: Int64s,
    calls: Int64s,
    frames: Int64s,
    pieces: Int64s,
) -> None:
    """Add the host's pieces by group, activity and call."""
    marks = _marks(trace)[ranges]
    functions, frame_marks = _functions(trace)
    marks = np.where(marks > 0, marks, frame_marks[frames])
    name = np.append(trace.host_ranges.name, MISSING)[ranges].astype(np.int64)
    kind = np.append(trace.host_ranges.kind, MISSING)[ranges].astype(np.int64)
    function_of = np.where((name < 0) & (calls < 0), functions[frames], MISSING)
    sums = _summed([name, kind, marks, calls, function_of], pieces)
    for code, range_kind, mark, call, function, ns in zip(
        *map(np.ndarray.tolist, sums), strict=True
    ):
        called = trace.names[call] if call >= 0 else None
        group = _group(called, int(range_kind), int(mark))
        outside = trace.names[function] if function >= 0 else GROUPS["outside"]
        activity = trace.names[code] if code >= 0 else called or outside
        if range_kind == RangeKind.ANNOTATION:
            activity = normalise(activity)
        key = (group, activity, called)
        totals[key] = totals.get(key, 0) + int(ns)


def _functions(trace: Trace) -> tuple[Int64s, Int64s]:
    """Return the innermost named function of each frame, and its mark as `_marks` has them.

    One more at the end, for no frame.
    """
    backtraces = trace.backtraces
    if backtraces is None:
        return np.full(1, MISSING), np.zeros(1, np.int64)
    by_name = _marks_of_names(trace, backtraces.name)
    num = len(backtraces.name) + 1
    function, marks = np.full(num, MISSING), np.zeros(num, np.int64)
    for row, (above, name) in enumerate(
        zip(backtraces.parent.tolist(), backtraces.name.tolist(), strict=True)
    ):
        is_named = not trace.names[name].startswith(("[", "("))
        function[row] = name if is_named else function[above]
        marks[row] = max(by_name[name], marks[above])
    return function, marks


def _marks_of_names(trace: Trace, codes: Int64s | Int32s) -> Int64s:
    by_name = np.zeros(len(trace.names), np.int64)
    for code in np.unique(codes).tolist():
        name = trace.names[code]
        by_name[code] = 1 if _LOADER.search(name) else 2 if _OPTIMIZER.search(name) else 0
    return by_name


def _marks(trace: Trace) -> Int64s:
    """Return 1 for ranges in a data loader, 2 in an optimizer, else 0; one more at the end."""
    ranges = trace.host_ranges
    by_name = _marks_of_names(trace, ranges.name)
    marks = np.append(by_name[ranges.name], 0)
    for members in levels(ranges):
        marks[members] = np.maximum(marks[members], marks[ranges.parent[members]])
    return marks


def _group(call: str | None, range_kind: int, mark: int) -> str:
    if mark == 1:
        return "data_loader"
    if call is not None and is_wait(call):
        return "wait"
    if mark == 2:
        return "optimizer"
    if call is not None:
        if is_launch(call):
            return "launch"
        return "allocation" if _ALLOCATES.search(call) else "call"
    if range_kind == RangeKind.OPERATOR:
        return "operator"
    if range_kind == RangeKind.PYTHON:
        return "python"
    return "range" if range_kind != MISSING else "outside"


def _frame(
    totals: dict[tuple[str, str, str | None], int], num_steps: int, time_ns: int
) -> pd.DataFrame:
    rows = [(*key, ns, ns / max(num_steps, 1), ns / time_ns) for key, ns in totals.items()]
    frame = pd.DataFrame(rows, columns=list(IDLE_COLUMNS))
    return frame.sort_values("idle_ns", ascending=False, kind="stable", ignore_index=True)


def host_share(frame: pd.DataFrame, most: int = 4) -> list[tuple[str, float]]:
    """Return what the host did while the GPU waited, in words, with its share of a step's time.

    The largest first; small ones are left out. Of waits and allocations the operator is named.
    """
    shares: dict[str, float] = {}
    for row in frame.itertuples(index=False):
        words = GROUPS[str(row.group)]
        if row.group in ("wait", "allocation") and row.activity != row.call:
            words = f"`{row.activity}` {words}"
        shares[words] = shares.get(words, 0.0) + float(row.idle_frac)
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return [(words, share) for words, share in ordered[:most] if share >= 0.01]
