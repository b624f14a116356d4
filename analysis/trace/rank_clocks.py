"""Put the clocks of several captures on one axis.

What the files state comes first (UTC of their time 0). A collective ends on all ranks at nearly the
same time, since none finishes before every rank has started. Over many collectives this gives each
clock's offset and drift against the first one's, with a residual that says how far to trust it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from analysis.trace.model import Int64s

MIN_PAIRS = 3
"""Collectives that two clocks must share before a fit is believed."""
MIN_PAIRS_FOR_DRIFT = 16
MAX_DRIFT = 1e-3
"""A faster drift is not a clock's: the collectives were paired wrongly."""
MAX_STATED_ERROR_NS = 60_000_000_000
"""Hosts' clocks are set better than this: files further apart are not of one moment."""
MAX_RESIDUAL_NS = 100_000
MAX_RESIDUAL_OF_DURATION = 0.25
"""Ends that scatter by more than both are not those of the same collectives."""


class ClockSource(StrEnum):
    """How a clock was put on the common axis."""

    SAME = "same"
    "It is the first clock, or its capture's."
    COLLECTIVES = "collectives"
    "By the ends of shared collectives."
    STATED = "stated"
    "By the UTC times that the files state."
    NONE = "none"
    "It stands on an axis of its own."


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How to turn one capture's times into times of the first capture."""

    source: ClockSource
    offset_ns: int = 0
    "Added to a time at `origin_ns`."
    drift: float = 0.0
    "Seconds gained a second after `origin_ns`."
    origin_ns: int = 0
    residual_ns: float | None = None
    "Median distance of shared collectives' ends after it; None where none are shared."

    def aligned(self, times_ns: Int64s) -> Int64s:
        """Return times on the first capture's axis."""
        gained = np.rint(self.drift * (times_ns - self.origin_ns)).astype(np.int64)
        return times_ns + self.offset_ns + gained


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedEnds:
    """When collectives ended, by each clock that saw them: equal-length arrays, sorted by clock."""

    clock: Int64s
    number: Int64s
    "Of the collective, from 0."
    end_ns: Int64s


def align_clocks(
    ends: SharedEnds, utc_origins_ns: Sequence[int | None], typical_ns: float
) -> list[Clock]:
    """Return the clock of each capture, the first being the common one.

    A capture that shares no collective with the first is reached through others. `typical_ns` is a
    usual duration of the collectives.
    """
    limit_ns = most_scatter_ns(typical_ns)
    num_clocks = len(utc_origins_ns)
    bounds = np.searchsorted(ends.clock, np.arange(num_clocks + 1))
    reference = _Reference(int(ends.number.max(initial=-1)) + 1)
    clocks: dict[int, Clock] = {}
    fitted = {0: Clock(source=ClockSource.SAME)}
    while fitted:
        clocks |= fitted
        for i, clock in sorted(fitted.items()):
            mine = slice(bounds[i], bounds[i + 1])
            reference.add(ends.number[mine], clock.aligned(ends.end_ns[mine]))
        fitted = {}
        for i in (i for i in range(num_clocks) if i not in clocks):
            mine = slice(bounds[i], bounds[i + 1])
            stated = _stated(utc_origins_ns[0], utc_origins_ns[i])
            fit = _fit(reference, ends.number[mine], ends.end_ns[mine], stated, limit_ns)
            if fit is not None:
                fitted[i] = fit
    stated_clocks = [_by_statement(utc_origins_ns[0], own) for own in utc_origins_ns]
    return [clocks.get(i, by_statement) for i, by_statement in enumerate(stated_clocks)]


class _Reference:
    """The end of each collective on the common axis, as far as clocks on it saw it.

    Where several did, the first counts: means of rounded times would only blur it.
    """

    def __init__(self, num_collectives: int) -> None:
        self.is_known = np.zeros(num_collectives, np.bool_)
        self.end_ns = np.zeros(num_collectives, np.int64)

    def add(self, number: Int64s, end_ns: Int64s) -> None:
        is_new = ~self.is_known[number]
        self.end_ns[number[is_new]] = end_ns[is_new]
        self.is_known[number] = True


def most_scatter_ns(typical_ns: float) -> float:
    """Return how far apart the ends of one collective may lie, for a usual duration of theirs."""
    return max(MAX_RESIDUAL_NS, MAX_RESIDUAL_OF_DURATION * typical_ns)


def _stated(first: int | None, own: int | None) -> int | None:
    return None if first is None or own is None else own - first


def _by_statement(first: int | None, own: int | None) -> Clock:
    stated = _stated(first, own)
    if stated is None:
        return Clock(source=ClockSource.NONE)
    return Clock(source=ClockSource.STATED, offset_ns=stated)


def _fit(
    reference: _Reference, number: Int64s, own: Int64s, stated: int | None, limit_ns: float
) -> Clock | None:
    """Return offset and drift of a clock by its shared collectives; None where they do not fit."""
    shared = np.flatnonzero(reference.is_known[number])
    if len(shared) < MIN_PAIRS:
        return None
    times = own[shared]
    apart = reference.end_ns[number[shared]] - times
    offset = int(np.median(apart))
    origin = int(times[0])
    x = (times - origin).astype(np.float64)
    y = (apart - offset).astype(np.float64)
    slope, level = _line(x, y)
    residual = float(np.median(np.abs(y - slope * x - level)))
    error_ns = None if stated is None else stated - offset
    if residual > limit_ns or abs(slope) > MAX_DRIFT or abs(error_ns or 0) > MAX_STATED_ERROR_NS:
        return None
    return Clock(
        source=ClockSource.COLLECTIVES,
        offset_ns=offset + round(level),
        drift=slope,
        origin_ns=origin,
        residual_ns=residual,
    )


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Return slope and level of the line through most points; slope 0 for few or close ones.

    Least squares over the points near the median, twice: a rank that left one collective late is
    no property of its clock.
    """
    kept = np.ones(len(x), np.bool_)
    slope, level = 0.0, float(np.median(y))
    for _ in range(2):
        left = np.abs(y - slope * x - level)
        spread = float(np.median(left))
        kept = left <= 3 * spread + 1
        if kept.sum() < MIN_PAIRS_FOR_DRIFT or np.ptp(x[kept]) == 0:
            return 0.0, level
        slope, level = (float(v) for v in np.polyfit(x[kept], y[kept], 1))
    return slope, level
