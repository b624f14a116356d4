"""Find GPU operations with impossible timestamps."""

import numpy as np
from numpy.typing import NDArray

from analysis.readers.torch_trace.columns import Column
from analysis.trace.model import Bools, Int32s, Int64s

_SLACK_NS = 1_000_000_000
_DAY_NS = 86_400 * 10**9
ROUNDING_NS = 2_000
"""Older traces round start and duration to microseconds, each on its own."""
_LOOK_AHEAD = 8


def impossible(
    gpu: dict[str, Column],
    queue: Int32s,
    window: tuple[int, int] | None,
    host_starts: tuple[Int64s, ...],
) -> Bools:
    """Mark operations outside the recording, and those that outlast the operations after them.

    `queue` numbers the (device, stream) of each operation. Without a recorded `window` it is what
    the host did, and a minute for the GPU to finish.
    """
    start, dur = gpu["start"], gpu["dur"]
    bad = (dur > _DAY_NS) | (dur < 0)
    if not len(start):
        return bad
    end = start + np.where(bad, 0, dur)
    window = window or _host_window(host_starts)
    if window is not None:
        bad |= (start < window[0] - _SLACK_NS) | (end > window[1] + _SLACK_NS)
    middle = int(np.median(start[~bad])) if (~bad).any() else int(np.median(start))
    bad |= np.abs(start - middle) > _DAY_NS
    known_dur = np.where(bad, 0, dur)
    order = np.lexsort((start, queue))
    order = order[~bad[order]]
    bounds = np.flatnonzero(np.diff(queue[order])) + 1
    late = np.zeros(len(start), bool)
    for rows in np.split(order, bounds):
        late[rows] = _outlasts(end[rows], gpu["correlation"][rows])
    return bad | (late & ~_usual(gpu["name"], known_dur)) if late.any() else bad


def _usual(name: Column, dur: Int64s) -> Bools:
    """Mark durations that are ordinary for their name: at most 3 times the median of 4 or more.

    Some builds write one stream number for several queues; long kernels beside short ones are real
    there.
    """
    _, group, count = np.unique(name, return_inverse=True, return_counts=True)
    in_order = dur[np.lexsort((dur, group))]
    first = np.cumsum(count) - count
    twice_median = in_order[first + (count - 1) // 2] + in_order[first + count // 2]
    return np.asarray((2 * dur <= 3 * twice_median[group]) & (count[group] >= 4), bool)


def _host_window(starts: tuple[Int64s, ...]) -> tuple[int, int] | None:
    some = [c for c in starts if len(c)]
    if not some:
        return None
    low, high = min(int(c.min()) for c in some), max(int(c.max()) for c in some)
    return (low, high + 60 * _SLACK_NS) if high - low < _DAY_NS else None


def _outlasts(end: Int64s, correlation: Int64s) -> NDArray[np.bool_]:
    """Mark operations that end after two or more later ones of their stream have finished.

    A stream runs in order: an overlap with the next start happens (programmatic dependent launch),
    outlasting whole operations does not, save for branches of one graph (one correlation id).
    """
    num_outlasted = np.zeros(len(end), np.int64)
    for ahead in range(1, min(_LOOK_AHEAD, len(end) - 1) + 1):
        is_other = (correlation[:-ahead] != correlation[ahead:]) | (correlation[:-ahead] < 0)
        num_outlasted[:-ahead] += (end[ahead:] + ROUNDING_NS < end[:-ahead]) & is_other
    return num_outlasted >= 2
