"""Operators of a trace without GPU work: the time each spent itself, its callees left out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.torch_trace_events import TraceEvents

Ints = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Operators:
    """Every operator call, ordered by thread and start; `self_ns` is its own time."""

    start: Ints
    end: Ints
    self_ns: Ints
    name: Ints
    thread: Ints


def operators(events: TraceEvents) -> Operators:
    """Return the operators with their self time: duration minus that of direct callees."""
    start = np.asarray(events.op_start, np.int64)
    dur = np.asarray(events.op_dur, np.int64)
    thread = np.asarray(events.op_thread, np.int64)
    order = np.lexsort((-dur, start, thread))
    start, dur, thread = start[order], dur[order], thread[order]
    end = start + dur
    own = dur.tolist()
    stack: list[tuple[int, int]] = []
    last_thread = -1
    for row, (begin, until, here) in enumerate(
        zip(start.tolist(), end.tolist(), thread.tolist(), strict=True)
    ):
        if here != last_thread:
            stack, last_thread = [], here
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if stack:
            # Times rounded to microseconds can let a callee end after its caller.
            own[stack[-1][1]] -= min(until, stack[-1][0]) - begin
        stack.append((until, row))
    return Operators(
        start=start,
        end=end,
        self_ns=np.maximum(np.array(own, np.int64), 0),
        name=np.asarray(events.op_name, np.int64)[order],
        thread=thread,
    )
