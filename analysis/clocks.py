"""Put captures that were recorded at the same time on one clock.

Ranks of one run each count time from the start of their own session. Where all of them say when
that was by UTC (nsys: utcEpochNs, PyTorch: baseTimeNanoseconds) and they overlap, their times are
moved to the clock of the earliest. Captures made one after the other keep their own axis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow.compute as pc

from analysis.rundata import RunCapture
from analysis.shift import moved
from analysis.span_file import SpanFile
from analysis.tables import CaptureTables
from analysis.trace.rank_clocks import Clock, ClockSource
from core.states import Pass

SESSION_START = "session_start_utc_ns"


def session_starts(captures: Sequence[RunCapture]) -> list[int] | None:
    """Return when each session began [ns, UTC]; None unless all captures state it."""
    starts = [c.tables.environment.get(SESSION_START) for c in captures]
    known = [s for s in starts if isinstance(s, int)]
    return known if known and len(known) == len(starts) else None


def are_aligned(captures: Sequence[RunCapture]) -> bool:
    """Say whether these captures of one pass can share a clock: known starts, and they overlap."""
    starts = session_starts(captures)
    extents = [_extent(c.tables) for c in captures]
    if starts is None or len(captures) < 2 or None in extents:
        return False
    whole = sorted((s + e[0], s + e[1]) for s, e in zip(starts, extents, strict=True) if e)
    return all(later[0] <= earlier[1] for earlier, later in pairwise(whole))


def on_one_clock(
    captures: Sequence[RunCapture], clocks: Mapping[str, Clock] | None = None
) -> list[RunCapture]:
    """Return the captures, those of each pass moved to one clock where possible.

    `clocks`: those that collectives join, by file name, for all captures of a pass.
    """
    clocks = clocks or {}
    clock_of: dict[int, Clock] = {}
    for pass_name in (str(Pass.NSYS), str(Pass.TRACE)):
        places = [
            i
            for i, c in enumerate(captures)
            if c.pass_name == pass_name and c.tables.spans is not None
        ]
        mine = [captures[i] for i in places]
        if mine and all(c.file_name in clocks for c in mine):
            clock_of |= {place: clocks[c.file_name] for place, c in zip(places, mine, strict=True)}
            continue
        if not are_aligned(mine):
            continue
        starts = session_starts(mine) or []
        for place, start_ns in zip(places, starts, strict=True):
            if offset_ns := start_ns - min(starts):
                clock_of[place] = Clock(source=ClockSource.STATED, offset_ns=offset_ns)
    return [
        _by_clock(capture, clock_of[place]) if place in clock_of else capture
        for place, capture in enumerate(captures)
    ]


def _extent(tables: CaptureTables) -> tuple[int, int] | None:
    """Return the first start and the last end of the operations."""
    spans = tables.spans
    if spans is None or not len(spans):
        return None
    if isinstance(spans, SpanFile):
        return spans.least("start_ns"), spans.greatest("end_ns")
    return int(pc.min(spans["start_ns"]).as_py()), int(pc.max(spans["end_ns"]).as_py())


def _by_clock(capture: RunCapture, clock: Clock) -> RunCapture:
    shift = replace(
        capture.shift, offset_ns=clock.offset_ns, drift=clock.drift, origin_ns=clock.origin_ns
    )
    return replace(capture, tables=moved(capture.tables, clock.aligned), shift=shift)
