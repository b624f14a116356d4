"""Put captures that were recorded at the same time on one clock.

Ranks of one run each count time from the start of their own session. Where all of them say when
that was by UTC (nsys: utcEpochNs, PyTorch: baseTimeNanoseconds) and they overlap, their times are
moved to the clock of the earliest. Captures made one after the other keep their own axis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.rundata import RunCapture
from analysis.span_file import SpanFile
from analysis.tables import CaptureTables
from core.states import Pass

SESSION_START = "session_start_utc_ns"
_COLUMNS = {
    "spans": ("start_ns", "end_ns", "launch_start_ns"),
    "ranges": ("start_ns", "end_ns"),
    "phases": ("first_start_ns",),
    "memory_points": ("time_ns",),
}
"""Where a capture holds moments, by table."""


def session_starts(captures: Sequence[RunCapture]) -> list[int] | None:
    """Return when each session began [ns, UTC]; None unless all captures say it."""
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


def on_one_clock(captures: Sequence[RunCapture]) -> list[RunCapture]:
    """Return the captures, those of each pass moved to the clock of the earliest where possible."""
    moved = list(captures)
    for pass_name in (str(Pass.NSYS), str(Pass.TRACE)):
        places = [
            i
            for i, c in enumerate(captures)
            if c.pass_name == pass_name and c.tables.spans is not None
        ]
        mine = [captures[i] for i in places]
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
    if not by_ns:
        return tables
    changes: dict[str, Any] = {}
    for name, columns in _COLUMNS.items():
        records = getattr(tables, name)
        if records is None or not len(records):
            continue
        if isinstance(records, SpanFile):
            changes[name] = records.changed(partial(_shifted, columns=columns, by_ns=by_ns))
        elif isinstance(records, pa.Table):
            changes[name] = _shifted(records, columns, by_ns)
        else:
            changes[name] = _shifted_frame(records, columns, by_ns)
    return replace(tables, **changes)


def _shifted(table: pa.Table, columns: Sequence[str], by_ns: int) -> pa.Table:
    for name in columns:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pc.add(table[name], pa.scalar(by_ns, pa.int64())))
    return table


def _shifted_frame(frame: pd.DataFrame, columns: Sequence[str], by_ns: int) -> pd.DataFrame:
    changed: Mapping[str, Any] = {name: frame[name] + by_ns for name in columns}
    return frame.assign(**changed)
