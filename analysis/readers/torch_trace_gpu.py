"""Check GPU operations for durations that cannot be, and join them with their launches."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.torch_trace_events import TraceEvents, rank_of

Ints = NDArray[np.int64]
_SLACK_NS = 1_000_000_000
_DAY_NS = 86_400 * 10**9
_ROUNDING_NS = 2_000
"""Older traces round start and duration to microseconds, each on its own."""
_LOOK_AHEAD = 8
_STEP = re.compile(r"ProfilerStep#\d+")
_LAUNCH = re.compile(r"launch", re.IGNORECASE)
_NO_LAUNCH = re.compile(r"LaunchHostFunc|GetLaunch|SetLaunch", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class GpuOps:
    """GPU operations that can be, ordered by start. `launch` is a row of the host calls or -1."""

    start: Ints
    end: Ints
    kind: Ints
    name: Ints
    corr: Ints
    stream: Ints
    bytes: Ints
    grid: Ints
    block: Ints
    registers: Ints
    shared: Ints
    launch: Ints
    is_first_step: NDArray[np.bool_]
    num_impossible: int = 0
    num_before_launch: int = 0
    num_colliding: int = 0


def gpu_ops(events: TraceEvents, calls: pd.DataFrame) -> GpuOps:
    """Return the sane operations joined with `calls` (see `host_calls`)."""
    start, dur = _column(events.gpu_start), _column(events.gpu_dur)
    keep = ~_impossible(events, start, dur)
    order = np.flatnonzero(keep)
    order = order[np.argsort(start[order], kind="stable")]

    def pick(values: object) -> Ints:
        return _column(values)[order]

    ops = GpuOps(
        start=start[order],
        end=(start + np.where(keep, dur, 0))[order],
        kind=pick(events.gpu_kind),
        name=pick(events.gpu_name),
        corr=pick(events.gpu_corr),
        stream=pick(events.gpu_stream),
        bytes=pick(events.gpu_bytes),
        grid=pick(events.gpu_grid),
        block=pick(events.gpu_block),
        registers=pick(events.gpu_registers),
        shared=pick(events.gpu_shared),
        launch=np.full(len(order), -1, np.int64),
        is_first_step=np.zeros(len(order), bool),
        num_impossible=int((~keep).sum()) + events.num_bad_gpu,
    )
    _join(ops, calls, events)
    return ops


def _column(values: object) -> Ints:
    return np.asarray(values, dtype=np.int64)


def host_calls(events: TraceEvents) -> pd.DataFrame:
    """Return host CUDA calls: start, end, name, corr, thread, is_launch."""
    start, dur = _column(events.run_start), _column(events.run_dur)
    names = events.names.values
    calls = pd.DataFrame(
        {
            "start": start,
            "end": start + np.minimum(dur, _DAY_NS),
            "name": _column(events.run_name),
            "corr": _column(events.run_corr),
            "thread": _column(events.run_thread),
        }
    )
    launching = {
        i
        for i in calls["name"].unique()
        if _LAUNCH.search(names[i]) and not _NO_LAUNCH.search(names[i])
    }
    calls["is_launch"] = calls["name"].isin(launching)
    return calls


def _impossible(events: TraceEvents, start: Ints, dur: Ints) -> NDArray[np.bool_]:
    """Mark operations outside the recording, and those that outlast the operations after them."""
    bad = (dur > _DAY_NS) | (dur < 0)
    if not len(start):
        return bad
    end = start + np.where(bad, 0, dur)
    first, last = events.window or _host_window(events) or (None, None)
    if first is not None and last is not None:
        bad |= (start < first - _SLACK_NS) | (end > last + _SLACK_NS)
    middle = int(np.median(start[~bad])) if (~bad).any() else int(np.median(start))
    bad |= np.abs(start - middle) > _DAY_NS
    stream, corr = _column(events.gpu_stream), _column(events.gpu_corr)
    usual = _usual(_column(events.gpu_name), np.where(bad, 0, dur))
    for number in np.unique(stream):
        rows = np.flatnonzero((stream == number) & ~bad)
        rows = rows[np.argsort(start[rows], kind="stable")]
        bad[rows] |= _outlasts(end[rows], corr[rows]) & ~usual[rows]
    return bad


def _usual(name: Ints, dur: Ints) -> NDArray[np.bool_]:
    """Mark durations that are ordinary for their name: at most 3 times the median of 4 or more.

    Some builds write one stream number for several queues; long kernels beside short ones are real
    there.
    """
    groups = pd.Series(dur).groupby(name)
    is_usual = (dur <= 3 * groups.transform("median")) & (groups.transform("size") >= 4)
    return np.asarray(is_usual, bool)


def _host_window(events: TraceEvents) -> tuple[int, int] | None:
    """Without a recorded window: what the host did, and a minute for the GPU to finish."""
    starts = [c for c in (_column(events.run_start), _column(events.op_start)) if len(c)]
    if not starts:
        return None
    low, high = min(int(c.min()) for c in starts), max(int(c.max()) for c in starts)
    return (low, high + 60 * _SLACK_NS) if high - low < _DAY_NS else None


def _outlasts(end: Ints, corr: Ints) -> NDArray[np.bool_]:
    """Mark what ends after two or more later operations of its stream have begun and ended.

    A stream runs in order: an overlap with the next start happens (programmatic dependent launch),
    outlasting whole operations does not, save for branches of one graph (one correlation id).
    """
    num_outlasted = np.zeros(len(end), np.int64)
    for ahead in range(1, min(_LOOK_AHEAD, len(end) - 1) + 1):
        is_other = (corr[:-ahead] != corr[ahead:]) | (corr[:-ahead] < 0)
        num_outlasted[:-ahead] += (end[ahead:] + _ROUNDING_NS < end[:-ahead]) & is_other
    return num_outlasted >= 2


def _join(ops: GpuOps, calls: pd.DataFrame, events: TraceEvents) -> None:
    """Give each operation the call of its correlation id, which only a process keeps unique."""
    known = calls[calls["corr"] > 0]
    if not len(known) or not len(ops.corr):
        return
    ids, wanted = _within_ranks(known, ops, events)
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    pids = pd.factorize(pd.Series([str(pid) for pid, _ in events.threads.values]))[0]
    process = pids[known["thread"].to_numpy()[order]]
    is_repeated = sorted_ids[1:] == sorted_ids[:-1]
    ops.num_colliding = int(is_repeated.sum())
    torn = np.unique(sorted_ids[1:][is_repeated & (process[1:] != process[:-1])])
    at = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
    rows = known.index.to_numpy()[order][at]
    is_sure = (sorted_ids[at] == wanted) & ~np.isin(wanted, torn)
    ops.launch = np.where(is_sure, rows, -1)
    has = ops.launch >= 0
    launched = calls["start"].to_numpy()[np.maximum(ops.launch, 0)]
    ops.num_before_launch = int((has & (ops.start < launched)).sum())


def _within_ranks(calls: pd.DataFrame, ops: GpuOps, events: TraceEvents) -> tuple[Ints, Ints]:
    """Return the ids of calls and operations, told apart by rank where process ids name one."""
    ids, wanted = calls["corr"].to_numpy(np.int64), ops.corr
    of_calls = [rank_of(pid) for pid, _ in events.threads.values]
    of_streams = [rank for _, _, rank in events.streams.values]
    ranks = {rank: i for i, rank in enumerate(dict.fromkeys(of_calls))}
    if len(ranks) < 2 or not set(of_streams) <= set(ranks):
        return ids, wanted
    dense = np.unique(np.concatenate([ids, wanted]), return_inverse=True)[1] * len(ranks)
    call_rank = np.array([ranks[r] for r in of_calls], np.int64)[calls["thread"].to_numpy()]
    op_rank = np.array([ranks[r] for r in of_streams], np.int64)[ops.stream]
    return dense[: len(ids)] + call_rank, dense[len(ids) :] + op_rank


def first_step_end(events: TraceEvents) -> int | None:
    """Return when the first profiler step ends, None where fewer than two steps were recorded."""
    steps = sorted(
        (s, s + d, name) for s, d, _, name in events.annotations if _STEP.fullmatch(name)
    )
    if len({name for _, _, name in steps}) < 2:
        return None
    return max(end for _, end, name in steps if name == steps[0][2])  # of all ranks


def mark_first_step(ops: GpuOps, calls: pd.DataFrame, end_ns: int | None) -> None:
    """Mark operations launched before the first step's end; by their own start without a launch."""
    if end_ns is None:
        return
    launched = calls["start"].to_numpy()
    when = ops.start.copy()
    has = ops.launch >= 0
    when[has] = launched[ops.launch[has]]
    ops.is_first_step = when < end_ns
