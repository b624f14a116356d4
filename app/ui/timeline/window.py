"""Thin a run's spans to what a screen can show.

Spans narrower than a pixel of the asked window are joined with their neighbours in the same pixel
of the same lane; wider ones stay as they are. The joined span carries how many it stands for and
the name of the longest, so nothing is dropped silently.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from app.ui.timeline.load import Timeline

PIXELS = 4000
"""Horizontal resolution of one answer: about two screens, so a small zoom needs no new one."""
MAX_EXACT_SPANS = 20_000
MAX_RANGES = 4_000
_NAME_BITS = 20
_BLOCK_ROWS = 2**16

SPAN_FIELDS = ("start", "dur", "lane", "name", "count", "path", "launch", "fill")
RANGE_FIELDS = ("start", "dur", "row", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one view of the timeline shows."""

    spans: pd.DataFrame
    """SPAN_FIELDS: float ns from `origin_ns`; `launch` is the delay from launch to start, or NaN;
    `fill` is the busy part (0-1) of a joined span."""
    ranges: pd.DataFrame
    "RANGE_FIELDS."
    is_merged: bool
    num_spans: int


def window(
    timeline: Timeline, start_ns: float | None = None, end_ns: float | None = None
) -> Window:
    """Return what [start, end] (ns from the origin; default everything) looks like on a screen."""
    low = 0.0 if start_ns is None else max(0.0, float(start_ns))
    high = float(timeline.extent_ns) if end_ns is None else float(end_ns)
    high = max(high, low + 1.0)
    slices = [_lane_slice(timeline, i, low, high) for i in range(len(timeline.lanes))]
    total = sum(s.stop - s.start for s in slices)
    pixel = (high - low) / PIXELS
    is_merged = total > MAX_EXACT_SPANS
    parts = [
        _merged(timeline, part, lane, pixel) if is_merged else _exact(timeline, part, lane)
        for lane, part in enumerate(slices)
        if part.stop > part.start
    ]
    columns = zip(*parts, strict=True) if parts else [[np.zeros(0)]] * len(SPAN_FIELDS)
    spans = pd.DataFrame(
        {
            field: np.concatenate(list(values)).astype(_dtype(field))
            for field, values in zip(SPAN_FIELDS, columns, strict=True)
        }
    )
    return Window(
        spans=spans,
        ranges=_range_window(timeline, low, high, pixel),
        is_merged=is_merged,
        num_spans=int(total),
    )


def _dtype(field: str) -> type:
    return np.float64 if field in ("start", "dur", "launch", "fill") else np.int32


def _lane_slice(timeline: Timeline, lane: int, low: float, high: float) -> slice:
    first, last = timeline.lane_bounds[lane], timeline.lane_bounds[lane + 1]
    starts = timeline.start_ns[first:last]
    begin = int(np.searchsorted(starts, low, side="left"))
    while begin > 0 and timeline.end_ns[first + begin - 1] > low:
        begin -= 1
    stop = int(np.searchsorted(starts, high, side="right"))
    return slice(int(first) + begin, int(first) + max(begin, stop))


def _exact(timeline: Timeline, part: slice, lane: int) -> tuple[np.ndarray, ...]:
    start = timeline.start_ns[part]
    size = len(start)
    return (
        start,
        timeline.end_ns[part] - start,
        np.full(size, lane),
        timeline.name[part],
        np.ones(size),
        timeline.path[part],
        start - timeline.launch_ns[part],
        np.ones(size),
    )


def _merged(timeline: Timeline, part: slice, lane: int, pixel: float) -> tuple[np.ndarray, ...]:
    """Join sub-pixel spans that start in the same pixel and follow each other.

    In blocks, whose arrays are used again for the next one: those of a million spans would be new
    memory each time, which takes longer than the arithmetic.
    """
    starts = range(part.start, part.stop, _BLOCK_ROWS)
    blocks = (slice(max(part.start, s - 1), min(s + _BLOCK_ROWS, part.stop)) for s in starts)
    opened = [_openings(timeline, rows, pixel) for rows in blocks]
    first = np.concatenate([[part.start], *opened])
    cuts = np.unique([*np.searchsorted(first, starts), len(first)]).tolist()
    bounds = [*first[cuts[:-1]].tolist(), part.stop]
    joined = [
        _joined(timeline, first[a:b] - low, slice(low, high), lane)
        for (a, b), (low, high) in zip(pairwise(cuts), pairwise(bounds), strict=True)
    ]
    return tuple(np.concatenate(column) for column in zip(*joined, strict=True))


def _openings(timeline: Timeline, rows: slice, pixel: float) -> np.ndarray:
    """Return which of these rows, after the first, is not joined to the one before it."""
    start = timeline.start_ns[rows]
    cell = (start / pixel).astype(np.int64)
    is_wide = timeline.end_ns[rows] - start >= pixel
    opens = is_wide[1:] | is_wide[:-1] | (cell[1:] != cell[:-1])
    return np.flatnonzero(opens) + rows.start + 1


def _joined(
    timeline: Timeline, first: np.ndarray, rows: slice, lane: int
) -> tuple[np.ndarray, ...]:
    """Return SPAN_FIELDS of joined spans; each begins at a row of `first`, counted in `rows`."""
    start, end = timeline.start_ns[rows], timeline.end_ns[rows]
    dur = end - start
    counts = np.diff(np.append(first, len(start)))
    longest = np.maximum.reduceat((dur << _NAME_BITS) | timeline.name[rows], first)
    merged_end = np.maximum.reduceat(end, first)
    single = counts == 1
    paths = np.where(single, timeline.path[rows][first], -1)
    launch = np.where(single, start[first] - timeline.launch_ns[rows][first], np.nan)
    name = longest & ((1 << _NAME_BITS) - 1)
    return (
        start[first],
        merged_end - start[first],
        np.full(len(first), lane),
        name,
        counts,
        paths,
        launch,
        np.add.reduceat(dur, first) / np.maximum(merged_end - start[first], 1),
    )


def _range_window(timeline: Timeline, low: float, high: float, pixel: float) -> pd.DataFrame:
    ranges = timeline.ranges
    if ranges.empty:
        return pd.DataFrame({f: np.zeros(0) for f in RANGE_FIELDS[:3]} | {"name": []})
    start = ranges["start_ns"].to_numpy()
    end = ranges["end_ns"].to_numpy()
    seen = (end > low) & (start < high)
    if seen.sum() > MAX_RANGES:
        seen &= (end - start) >= pixel
    chosen = ranges[seen]
    if len(chosen) > MAX_RANGES:
        longest = (chosen["end_ns"] - chosen["start_ns"]).nlargest(MAX_RANGES).index
        chosen = chosen.loc[longest].sort_values("start_ns")
    return pd.DataFrame(
        {
            "start": chosen["start_ns"].to_numpy(dtype=np.float64),
            "dur": (chosen["end_ns"] - chosen["start_ns"]).to_numpy(dtype=np.float64),
            "row": chosen["row"].to_numpy(dtype=np.int32),
            "name": chosen["name"].astype(str).to_numpy(),
        }
    )
