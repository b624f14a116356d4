"""Put captures that were recorded at the same time on one clock.

Ranks of one run each count time from the start of their own session. Where all of them say when
that was by UTC (nsys: utcEpochNs, PyTorch: baseTimeNanoseconds) and they overlap, their times are
moved to the clock of the earliest. Captures made one after the other keep their own axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from analysis.rundata import RunCapture
from analysis.span_file import SpanFile
from analysis.tables import CaptureTables
from analysis.trace.model import Int64s
from analysis.trace.rank_clocks import Clock
from core.states import Pass

Change = Callable[[Int64s], Int64s]

SESSION_START = "session_start_utc_ns"
_COLUMNS = {
    "spans": ("start_ns", "end_ns", "launch_start_ns"),
    "ranges": ("start_ns", "end_ns"),
    "host": ("start_ns", "end_ns"),
    "steps": ("start_ns", "end_ns"),
    "phases": ("first_start_ns",),
    "memory_points": ("time_ns",),
}
"""Where a capture holds moments, by table."""


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
    moved = list(captures)
    clocks = clocks or {}
    for pass_name in (str(Pass.NSYS), str(Pass.TRACE)):
        places = [
            i
            for i, c in enumerate(captures)
            if c.pass_name == pass_name and c.tables.spans is not None
        ]
        mine = [captures[i] for i in places]
        if mine and all(c.file_name in clocks for c in mine):
            for place, capture in zip(places, mine, strict=True):
                change = clocks[capture.file_name].aligned
                moved[place] = replace(capture, tables=_changed(capture.tables, change))
            continue
        if not are_aligned(mine):
            continue
        starts = session_starts(mine) or []
        for place, capture, start_ns in zip(places, mine, starts, strict=True):
            tables = _moved(capture.tables, start_ns - min(starts))
            moved[place] = replace(capture, tables=tables)
    return moved


def _extent(tables: CaptureTables) -> tuple[int, int] | None:
    """Return the first start and the last end of the operations."""
    spans = tables.spans
    if spans is None or not len(spans):
        return None
    if isinstance(spans, SpanFile):
        return spans.least("start_ns"), spans.greatest("end_ns")
    return int(pc.min(spans["start_ns"]).as_py()), int(pc.max(spans["end_ns"]).as_py())


def _moved(tables: CaptureTables, by_ns: int) -> CaptureTables:
    return _changed(tables, lambda times_ns: times_ns + by_ns) if by_ns else tables


def _changed(tables: CaptureTables, change: Change) -> CaptureTables:
    """Return the tables with every moment changed."""
    changes: dict[str, Any] = {}
    for name, columns in _COLUMNS.items():
        records = getattr(tables, name)
        if records is None or not len(records):
            continue
        if isinstance(records, SpanFile):
            changes[name] = records.changed(partial(_shifted, columns=columns, change=change))
        elif isinstance(records, pa.Table):
            changes[name] = _shifted(records, columns, change)
        else:
            values: Mapping[str, Any] = {c: change(records[c].to_numpy()) for c in columns}
            changes[name] = records.assign(**values)
    return replace(tables, **changes)


def _shifted(table: pa.Table, columns: Sequence[str], change: Change) -> pa.Table:
    for name in columns:
        at = table.schema.get_field_index(name)
        values = table[name]
        is_known = pc.is_valid(values)
        moved = change(pc.fill_null(values, 0).to_numpy())
        new = pc.if_else(is_known, pa.array(moved, pa.int64()), pa.scalar(None, pa.int64()))
        table = table.set_column(at, name, new)
    return table
