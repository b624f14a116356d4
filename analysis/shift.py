"""Move a capture's process numbers and moments, so that it stands beside others of its pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from analysis.rundata import Shift
from analysis.span_file import SpanFile
from analysis.tables import RECORDS, CaptureTables
from analysis.trace.model import Int64s
from analysis.trace.rank_clocks import Clock, ClockSource

if TYPE_CHECKING:
    import pandas as pd

Records: TypeAlias = "pd.DataFrame | pa.Table | SpanFile"
Change = Callable[[Int64s], Int64s]

_MOMENTS = {
    "spans": ("start_ns", "end_ns", "launch_start_ns"),
    "ranges": ("start_ns", "end_ns"),
    "host": ("start_ns", "end_ns"),
    "steps": ("start_ns", "end_ns"),
    "phases": ("first_start_ns",),
    "memory_points": ("time_ns",),
}
"""Where a capture holds moments, by table."""


def shifted(tables: CaptureTables, shift: Shift) -> CaptureTables:
    """Return tables with nothing but records as the capture's run has them."""
    if shift.first_process:
        records = {name: getattr(tables, name) for name in RECORDS}
        changes: dict[str, Any] = {
            name: raised(table, "process", shift.first_process)
            for name, table in records.items()
            if table is not None
        }
        tables = replace(tables, **changes)
    if replace(shift, first_process=0) == Shift():
        return tables
    clock = Clock(
        source=ClockSource.STATED,
        offset_ns=shift.offset_ns,
        drift=shift.drift,
        origin_ns=shift.origin_ns,
    )
    return moved(tables, clock.aligned)


def moved(tables: CaptureTables, change: Change) -> CaptureTables:
    """Return the tables with every moment changed."""
    changes: dict[str, Any] = {}
    for name, columns in _MOMENTS.items():
        records = getattr(tables, name)
        if records is None or not len(records):
            continue
        if isinstance(records, SpanFile):
            changes[name] = records.changed(partial(_moved, columns=columns, change=change))
        elif isinstance(records, pa.Table):
            changes[name] = _moved(records, columns, change)
        else:
            values: Mapping[str, Any] = {c: change(records[c].to_numpy()) for c in columns}
            changes[name] = records.assign(**values)
    return replace(tables, **changes)


def _moved(table: pa.Table, columns: Sequence[str], change: Change) -> pa.Table:
    for name in (n for n in columns if n in table.column_names):
        at = table.schema.get_field_index(name)
        values = table[name]
        is_known = pc.is_valid(values)
        later = change(pc.fill_null(values, 0).to_numpy())
        new = pc.if_else(is_known, pa.array(later, pa.int64()), pa.scalar(None, pa.int64()))
        table = table.set_column(at, name, new)
    return table


def raised(records: Records, column: str, offset: int) -> Records:
    """Return the records with their numbers raised; -1 (unknown process) stays."""
    if isinstance(records, SpanFile):
        return records.changed(partial(_raised, column=column, offset=offset))
    if isinstance(records, pa.Table):
        return _raised(records, column, offset)
    return records.assign(**{column: records[column] + offset})


def _raised(table: pa.Table, column: str, offset: int) -> pa.Table:
    if column not in table.column_names:
        return table
    old = table[column]
    new = pc.if_else(pc.less(old, 0), old, pc.add(old, pa.scalar(offset, old.type)))
    return table.set_column(table.schema.get_field_index(column), column, new)
