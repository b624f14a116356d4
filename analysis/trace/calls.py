"""What the host's calls are for, and which of them launched what."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.trace.model import MISSING, Bools, Int32s, Int64s, OpKind, Trace
from core import trace_rules


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


def named(trace: Trace, test: Callable[[str], bool]) -> Bools:
    """Say for each host call whether its name passes the test."""
    used = np.flatnonzero(np.bincount(trace.host_calls.name, minlength=len(trace.names)))
    passes = np.zeros(len(trace.names), bool)
    passes[used] = [test(trace.names[i]) for i in used.tolist()]
    return passes[trace.host_calls.name]


def launches_of(trace: Trace, since_ns: int | None = None) -> Launches:
    """Return the facts; calls that began before `since_ns` count as no launches."""
    ops, calls = trace.gpu_ops, trace.host_calls
    is_counted = ~calls.is_failed
    if since_ns is not None:
        is_counted &= calls.start_ns >= since_ns
    is_launch = named(trace, trace_rules.is_launch) & is_counted
    is_answered = np.zeros(len(calls) + 1, bool)
    is_answered[ops.launch] = True
    kernels = ops.launch[(ops.kind == OpKind.KERNEL) & (ops.launch >= 0)]
    num_kernels = np.bincount(kernels, minlength=len(calls))
    launches_one = named(trace, trace_rules.launches_one_kernel)
    return Launches(
        is_launch=is_launch,
        is_graph=named(trace, trace_rules.is_graph_launch) & is_launch,
        is_answered=is_answered[:-1],
        is_captured=is_launch & ~is_answered[:-1] & _is_captured(trace),
        num_repeated=int(np.maximum(num_kernels - 1, 0)[launches_one].sum()),
    )


def _is_captured(trace: Trace) -> Bools:
    """Say which calls lie between the begin and the end of a graph's capture on their thread."""
    calls = trace.host_calls
    begins, ends = named(trace, trace_rules.begins_capture), named(trace, trace_rules.ends_capture)
    found = np.zeros(len(calls), bool)
    if not begins.any():
        return found
    for thread in np.unique(calls.thread[begins]).tolist():
        own = np.flatnonzero(calls.thread == thread)
        depth = np.cumsum(begins[own].astype(np.int64) - ends[own])
        # An end without a begin (recorded from the middle on) starts the count anew.
        found[own] = depth > np.minimum(np.minimum.accumulate(depth), 0)
    return found


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
    for owner in np.flatnonzero(np.bincount(call_process[call_process >= 0])).tolist():
        rows = _with_id(call_process, call_correlation, owner)
        wanted = _with_id(process, correlation, owner)
        if not len(rows):
            continue
        found, repeats = _first_rows(call_correlation[rows], correlation[wanted])
        num_repeats += repeats
        launch[wanted] = np.append(rows, MISSING)[found]
    return launch, num_repeats


def _with_id(process: Int32s, correlation: Int64s, owner: int) -> NDArray[np.intp]:
    return np.flatnonzero((process == owner) & (correlation > 0))


def _first_rows(ids: Int64s, wanted: Int64s) -> tuple[Int64s, int]:
    """Return where each wanted id comes first among `ids` (MISSING: nowhere), and the repeats."""
    low, high = int(ids.min()), int(ids.max())
    if high - low < 4 * len(ids) + 1024:  # counted upwards, as CUPTI does
        place = np.full(high - low + 2, MISSING, np.int64)
        place[ids[::-1] - low] = np.arange(len(ids) - 1, -1, -1)
        is_within = (wanted >= low) & (wanted <= high)
        num_distinct = int((place >= 0).sum())
        return place[np.where(is_within, wanted - low, -1)], len(ids) - num_distinct
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    at = np.minimum(np.searchsorted(ordered, wanted), len(ids) - 1)
    num_repeats = int((ordered[1:] == ordered[:-1]).sum())
    return np.where(ordered[at] == wanted, order[at], MISSING), num_repeats
