"""Which host ranges are phases, what their paths are, and which range a moment of a thread is in.

Phases are what the program annotated and what libraries open around their own calls. Operators and
Python functions are not phases: a phase's parent is the nearest phase around it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.trace.model import MISSING, Bools, HostRanges, Int32s, Int64s, RangeKind, Trace
from analysis.trace.nesting import depths, nesting_order, parents
from core.trace_rules import PATH_SEPARATOR, path_part

PHASE_KINDS = (RangeKind.ANNOTATION, RangeKind.LIBRARY)
MAX_PHASE_DEPTH = 64
"""Programs nest a dozen; paths of crafted files would grow without bound."""
FAR = np.iinfo(np.int64).max


def nested(ranges: HostRanges) -> HostRanges:
    """Return the ranges in the order of the table, with parents and depths."""
    order = nesting_order(ranges.start_ns, ranges.end_ns, ranges.thread)
    ordered = ranges.take(order)
    parent = parents(ordered.end_ns, ordered.thread)
    ordered.parent[:] = parent
    ordered.depth[:] = depths(parent)
    return ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Ranges of one thread in order of start, for looking up moments."""

    rows: NDArray[np.intp]
    "Rows of the table that they come from."
    start_ns: Int64s
    end_ns: Int64s
    "One more at the end, which encloses everything."
    parent: NDArray[np.intp]
    "Place of the range around each one; MISSING at the top."

    def innermost(self, first_ns: Int64s, last_ns: Int64s) -> Int64s:
        """Return the row of the latest-started range that encloses each interval, or MISSING.

        Ends are inclusive, as in Nsight Systems' own projection of ranges.
        """
        at = np.searchsorted(self.start_ns, first_ns, side="right") - 1
        todo = np.flatnonzero(self.end_ns[at] < last_ns)
        while len(todo):
            at[todo] = self.parent[at[todo]]
            todo = todo[self.end_ns[at[todo]] < last_ns[todo]]
        return np.append(self.rows, MISSING)[at]


def by_thread(
    ranges: HostRanges, rows: NDArray[np.intp], parent: Int32s
) -> Iterator[tuple[int, Intervals]]:
    """Give each thread with its ranges among `rows`; `parent` holds rows of the table."""
    thread = ranges.thread[rows]
    starts = np.flatnonzero(np.diff(thread, prepend=MISSING)).tolist()
    place = np.full(len(ranges) + 1, MISSING, np.intp)
    for first, stop in zip(starts, [*starts[1:], len(rows)][: len(starts)], strict=True):
        own = rows[first:stop]
        place[own] = np.arange(len(own))
        yield (
            int(thread[first]),
            Intervals(
                rows=own,
                start_ns=ranges.start_ns[own],
                end_ns=np.append(ranges.end_ns[own], FAR),
                parent=place[parent[own]],
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRanges:
    """The ranges that are phases. Columns are parallel to `ranges`, with one more at the end."""

    ranges: HostRanges
    phase: Int32s
    "Row of the nearest phase at or around each range; MISSING outside of any."
    parent: Int32s
    "Row of the nearest phase around each range; MISSING at the top."
    path: Int32s
    "Row of `paths` of each phase; MISSING for other ranges."
    is_annotated: Bools
    "An annotation of the program is at or around the range."
    paths: tuple[str, ...]
    path_process: Int64s
    "Row of `Sources.processes` of each path."
    num_too_deep: int

    @property
    def rows(self) -> NDArray[np.intp]:
        """Return the rows of the phases."""
        return np.flatnonzero(self.path[:-1] >= 0)

    def within(self, name: str, names: tuple[str, ...]) -> Bools:
        """Mark the ranges with this name and everything inside them."""
        codes = [i for i, text in enumerate(names) if text == name]
        return _or_around(self.ranges, np.isin(self.ranges.name, codes))


def phase_ranges(trace: Trace) -> PhaseRanges:
    """Find the phases of a capture and name their paths."""
    ranges = trace.host_ranges
    is_phase = np.isin(ranges.kind, PHASE_KINDS)
    phase, parent, level = _nearest_phases(ranges, is_phase)
    is_deep = is_phase & (level[:-1] >= MAX_PHASE_DEPTH)
    if is_deep.any():
        is_phase &= ~is_deep
        phase, parent, level = _nearest_phases(ranges, is_phase)
    process = trace.thread_process()[ranges.thread]
    path, paths, owners = _paths(trace, np.flatnonzero(is_phase), parent, process)
    return PhaseRanges(
        ranges=ranges,
        phase=phase,
        parent=parent,
        path=path,
        is_annotated=_or_around(ranges, ranges.kind == RangeKind.ANNOTATION),
        paths=paths,
        path_process=owners,
        num_too_deep=int(is_deep.sum()),
    )


def levels(ranges: HostRanges) -> Iterator[NDArray[np.intp]]:
    """Give the ranges that have one around them, level by level from the top."""
    order = np.argsort(ranges.depth, kind="stable")
    depth = ranges.depth[order]
    bounds = np.append(np.flatnonzero(np.diff(depth, prepend=0)), len(depth))
    for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield order[first:stop]


def _nearest_phases(ranges: HostRanges, is_phase: Bools) -> tuple[Int32s, Int32s, Int32s]:
    own = np.where(is_phase, np.arange(len(ranges)), MISSING).astype(np.int32)
    phase, parent = np.append(own, np.int32(MISSING)), np.full(len(ranges) + 1, MISSING, np.int32)
    level = np.zeros(len(ranges) + 1, np.int32)
    for members in levels(ranges):
        above = phase[ranges.parent[members]]
        parent[members] = above
        level[members] = np.where(above >= 0, level[above] + 1, 0)
        phase[members] = np.where(own[members] >= 0, own[members], above)
    return phase, parent, level


def _or_around(ranges: HostRanges, flag: Bools) -> Bools:
    """Return the flag of each range or of any range around it; false for the one more."""
    result = np.append(flag, False)
    for members in levels(ranges):
        result[members] |= result[ranges.parent[members]]
    return result


def _paths(
    trace: Trace, rows: NDArray[np.intp], parent: Int32s, process: Int32s
) -> tuple[Int32s, tuple[str, ...], Int64s]:
    ranges = trace.host_ranges
    codes: dict[tuple[int, int, int], int] = {}
    path = [MISSING] * (len(ranges) + 1)
    columns = (rows, process[rows], parent[rows], ranges.name[rows])
    for row, owner, around, name in zip(*(c.tolist() for c in columns), strict=True):
        above = path[around] if around >= 0 else MISSING
        path[row] = codes.setdefault((owner, above, name), len(codes))
    texts: list[str] = []
    for _, above, name in codes:
        part = path_part(trace.names[name])
        texts.append(f"{texts[above]}{PATH_SEPARATOR}{part}" if above >= 0 else part)
    owners = np.array([owner for owner, _, _ in codes], np.int64)
    return np.array(path, np.int32), tuple(texts), owners
