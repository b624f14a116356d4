"""Classify host calls, and join each GPU operation with the call that launched it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.trace.model import MISSING, Bools, Int32s, Int64s, OpKind, Trace
from core import trace_rules

PART_ROWS = 1 << 20
"""Rows that are joined at a time: temporary arrays stay small."""


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
    values = np.full(len(launch), missing, column.dtype)
    has_launch = launch >= 0
    values[has_launch] = column[launch[has_launch]]
    return values


def named(trace: Trace, test: Callable[[str], bool]) -> Bools:
    """Return for each host call whether its name passes the test."""
    used = np.flatnonzero(np.bincount(trace.host_calls.name, minlength=len(trace.names)))
    passes = np.zeros(len(trace.names), bool)
    passes[used] = [test(trace.names[i]) for i in used.tolist()]
    return passes[trace.host_calls.name]


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
    process: Int32s, correlation: Int64s, call_process: Int32s, call_correlation: Int64s
) -> tuple[Int64s, int]:
    """Return the call that launched each operation, and how many calls repeat an id.

    Correlation ids are counted per process: two ranks in one file share hundreds of them, so a join
    by the id alone invents launches. The first call of an id is the launch. Ids of 0 and below, and
    unknown processes, have none.
    """
    launch = np.full(len(process), MISSING, np.int64)
    num_repeats = 0
    for owner in _distinct(call_process):
        is_call = (call_process == owner) & (call_correlation > 0)
        if not is_call.any():
            continue
        index = _IdIndex(call_correlation, is_call)
        num_repeats += index.num_repeats
        is_op = (process == owner) & (correlation > 0)
        for part in _parts(len(process)):
            chosen = is_op[part]
            launch[part][chosen] = index.find(correlation[part][chosen])
    return launch, num_repeats


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
