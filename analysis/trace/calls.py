"""Classify host calls, and join each GPU operation with the call that launched it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.trace.model import MISSING, Bools, HostCalls, Int32s, Int64s, OpKind, Trace
from core import trace_rules

PART_ROWS = 1 << 17
"""Rows that are joined at a time: temporary arrays stay in the cache."""


FEW_NAMES = 1 << 10
"""So many names are tested sooner than those of the calls are found among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Facts about the launch calls of a capture; columns are by row of `Trace.host_calls`."""

    is_launch: Bools
    "Starts a kernel or a graph and did not fail."
    is_graph: Bools
    is_answered: Bools
    "A GPU operation refers to it."
    is_captured: Bools
    "A launch that went into a CUDA graph instead of running."
    num_repeated: int
    "Kernels beyond one of calls that launch one kernel."

    @property
    def num_unanswered(self) -> int:
        """Return how many launches should have run something and have no GPU operation."""
        return int((self.is_launch & ~self.is_answered & ~self.is_captured).sum())

    @property
    def num_lost_graphs(self) -> int:
        """Return how many graphs were launched if none of them left a GPU record, else 0."""
        is_unanswered = self.is_graph & ~self.is_answered
        return int(is_unanswered.sum()) if (is_unanswered == self.is_graph).all() else 0


def of_launch(column: NDArray[Any], launch: Int64s, missing: int) -> NDArray[Any]:
    """Return the value of each operation's launch call; `missing` where none was recorded."""
    has_launch = launch >= 0
    if has_launch.all():
        return column[launch]
    values = np.full(len(launch), missing, column.dtype)
    values[has_launch] = column[launch[has_launch]]
    return values


def named(trace: Trace, test: Callable[[str], bool]) -> Bools:
    """Return for each host call whether its name passes the test."""
    name = trace.host_calls.name
    num_names = int(name.max(initial=MISSING)) + 1
    used = np.arange(num_names)
    if num_names > FEW_NAMES:
        used = np.flatnonzero(np.bincount(name))
    passes = np.zeros(num_names, bool)
    passes[used] = [test(trace.names[i]) for i in used.tolist()]
    return passes[name] if passes.any() else np.zeros(len(name), bool)


def launches_of(trace: Trace) -> Launches:
    """Return the facts; calls that failed count as no launches."""
    ops, calls = trace.gpu_ops, trace.host_calls
    is_launch = named(trace, trace_rules.is_launch) & ~calls.is_failed
    is_answered = np.zeros(len(calls) + 1, bool)
    is_answered[ops.launch] = True
    kernels = ops.launch[(ops.kind == OpKind.KERNEL) & (ops.launch >= 0)]
    kernels = kernels[named(trace, trace_rules.launches_one_kernel)[kernels]]
    has_kernel = np.zeros(len(calls), bool)
    has_kernel[kernels] = True
    return Launches(
        is_launch=is_launch,
        is_graph=named(trace, trace_rules.is_graph_launch) & is_launch,
        is_answered=is_answered[:-1],
        is_captured=is_launch & ~is_answered[:-1] & _is_captured(trace),
        num_repeated=len(kernels) - int(has_kernel.sum()),
    )


def _is_captured(trace: Trace) -> Bools:
    """Flag the calls made while their thread was capturing a CUDA graph."""
    calls = trace.host_calls
    begins, ends = named(trace, trace_rules.begins_capture), named(trace, trace_rules.ends_capture)
    captured = np.zeros(len(calls), bool)
    if not begins.any():
        return captured
    for thread in np.unique(calls.thread[begins]).tolist():
        own = np.flatnonzero(calls.thread == thread)
        depth = np.cumsum(begins[own].astype(np.int64) - ends[own])
        # An end without a begin (recorded from the middle on) restarts the count.
        captured[own] = depth > np.minimum(np.minimum.accumulate(depth), 0)
    return captured


def join_launches(
    process: Int32s,
    correlation: Int64s,
    start_ns: Int64s,
    call_process: Int32s,
    calls: HostCalls,
) -> tuple[Int64s, int]:
    """Return the call that launched each operation, and how many calls repeat an id.

    Correlation ids are counted per process: two ranks in one file share hundreds of them, so a join
    by the id alone invents launches. The first call of an id is the launch; where a process counts
    its ids anew, the last one before the operation. Ids of 0 and below, and unknown processes, have
    none.
    """
    call_correlation = calls.correlation
    launch = np.full(len(process), MISSING, np.int64)
    num_repeats = 0
    for owner in _distinct(call_process):
        is_call = (call_process == owner) & (call_correlation > 0)
        if not is_call.any():
            continue
        index = _IdIndex(call_correlation, is_call)
        is_op = (process == owner) & (correlation > 0)
        for part in _parts(len(process)):
            chosen = is_op[part]
            launch[part][chosen] = index.find(correlation[part][chosen])
        if not index.num_repeats:
            continue
        rows = np.flatnonzero(is_call)
        again = counted_anew(call_correlation[rows], calls.start_ns[rows], calls.end_ns[rows])
        num_repeats += index.num_repeats
        if len(again):
            num_repeats -= len(again) - len(np.unique(call_correlation[rows[again]]))
            ops = np.flatnonzero(is_op)
            last = last_before(
                (call_correlation[rows[again]], calls.start_ns[rows[again]]),
                (correlation[ops], start_ns[ops]),
            )
            launch[ops] = np.where(last >= 0, rows[again][last], launch[ops])
    return launch, num_repeats


def counted_anew(ids: Int64s, start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """Return the rows of calls whose ids their process counted again, from the start.

    Ids have 32 bits, and profilers start again: then they fall by most of their range. Calls that
    share an id while one runs (runtime and driver) are one launch: of them the first is meant.
    Empty where an id returns without such a fall: those ids tell nothing.
    """
    in_time = np.argsort(start_ns, kind="stable")
    falls = ids[in_time][:-1] - ids[in_time][1:] > (int(ids.max()) - int(ids.min())) // 2
    turn = np.empty(len(ids), np.int64)
    turn[in_time] = np.append(0, np.cumsum(falls))
    order = np.lexsort((start_ns, ids))
    of = ids[order]
    is_new = np.append(True, of[1:] != of[:-1])
    reached = _greatest_so_far(end_ns[order], np.cumsum(is_new))
    is_own = is_new | (start_ns[order] >= np.append(0, reached[:-1]))
    order, group = order[is_own], np.cumsum(is_new)[is_own]
    is_twice = np.bincount(group)[group] > 1
    order, group = order[is_twice], group[is_twice]
    is_same = (group[1:] == group[:-1]) & (turn[order][1:] == turn[order][:-1])
    return order[:0] if is_same.any() else order


def _greatest_so_far(values: Int64s, group: Int64s) -> Int64s:
    """Return for each row the greatest value of its group up to it; groups stand in order."""
    in_order = np.argsort(values, kind="stable")
    first = group * len(values)
    rank = np.empty(len(values), np.int64)
    rank[in_order] = np.arange(len(values))
    return values[in_order][np.maximum.accumulate(rank + first) - first]


def last_before(calls: tuple[Int64s, Int64s], ops: tuple[Int64s, Int64s]) -> Int64s:
    """Return for each operation the last call of its id that began before it, else the id's first.

    Both: ids and starts. MISSING where no call has the id.
    """
    num = len(calls[0])
    ids, start_ns = (np.concatenate(pair) for pair in zip(calls, ops, strict=True))
    is_op = np.arange(len(ids)) >= num
    order = np.lexsort((is_op, start_ns, ids))
    place = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_op[order], MISSING, place))
    after = np.minimum.accumulate(np.where(is_op[order], len(order), place)[::-1])[::-1]
    ids = np.append(ids[order], MISSING)  # `before` and `after` may point beyond an end
    near = np.where(ids[before] == ids[:-1], before, after)
    near = np.where(ids[near] == ids[:-1], near, MISSING)
    found = np.empty(len(order), np.int64)
    found[order] = np.where(near >= 0, np.append(order, MISSING)[near], MISSING)
    return found[num:]


def _distinct(process: Int32s) -> list[int]:
    parts = (np.flatnonzero(np.bincount(process[p] + 1)[1:]) for p in _parts(len(process)))
    return sorted({owner for part in parts for owner in part.tolist()})


def _parts(num_rows: int) -> list[slice]:
    return [slice(i, i + PART_ROWS) for i in range(0, num_rows, PART_ROWS)]


class _IdIndex:
    """The first row of each correlation id of one process."""

    def __init__(self, ids: Int64s, chosen: Bools) -> None:
        self._rows: NDArray[np.intp] | None = None
        "Row of each of `_ids`; None where they are the rows themselves."
        self._ids = ids
        if not chosen.all():
            self._rows = np.flatnonzero(chosen)
            self._ids = ids[self._rows]
        if (self._ids[1:] < self._ids[:-1]).any():  # CUPTI counts upwards, threads overtake
            order = np.argsort(self._ids, kind="stable")
            self._ids = self._ids[order]
            self._rows = order if self._rows is None else self._rows[order]
        self.num_repeats = int((self._ids[1:] == self._ids[:-1]).sum())

    def find(self, wanted: Int64s) -> Int64s:
        """Return the row of each id; MISSING for one that is not there."""
        at = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        rows = at if self._rows is None else self._rows[at]
        return np.where(self._ids[at] == wanted, rows, MISSING)
