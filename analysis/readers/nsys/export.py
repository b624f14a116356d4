"""Read an Nsight Systems SQLite export into the event model, and from there into tables."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.readers.nsys.assemble import ExportTables, assemble
from analysis.readers.nsys.backtraces import OF_CALLS, load_backtraces
from analysis.readers.nsys.columns import DroppedRows, num_of_other_types
from analysis.readers.nsys.facts import load_facts
from analysis.readers.nsys.names import load_names
from analysis.readers.nsys.nccl import load_nccl_calls
from analysis.readers.nsys.operations import load_allocations, load_calls, load_operations
from analysis.readers.nsys.ranges import load_ranges
from analysis.readers.nsys.warnings import (
    file_warnings,
    name_warnings,
    range_warnings,
    window_warning,
)
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from analysis.trace.coverage import duplicate_id_warning
from analysis.trace.model import OpKind, Trace
from analysis.trace.summary import tables_of
from captures.nsys_database import NsysDatabase, open_nsys


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysCapture:
    """An export in the event model, with what it says about itself."""

    trace: Trace
    tool_version: str | None
    environment: Mapping[str, Any]
    warnings: tuple[CaptureWarning, ...]


def read_nsys_sqlite(
    path: Path, *, is_sound: bool = False, scratch: Path | None = None
) -> CaptureTables:
    """Return everything the export holds. CaptureError for a file that is not a sound export.

    `is_sound`: SQLite has just rewritten the file, so its structure needs no check. `scratch`:
    folder for the spans of large captures; the system's own if None.

    Read-only; nothing is written beside the file. What was not recorded is absent, with a warning
    that says so; `no_gpu_activity` is a state, not an error.
    """
    capture = load_nsys(path, is_sound=is_sound)
    return tables_of(
        capture.trace,
        kind=CaptureKind.NSYS_SQLITE,
        path=path,
        tool="nsys",
        tool_version=capture.tool_version,
        environment=capture.environment,
        warnings=capture.warnings,
        scratch=scratch,
    )


def load_nsys(path: Path, *, is_sound: bool = False) -> NsysCapture:
    """Return the export in the event model; see `read_nsys_sqlite`."""
    with open_nsys(path, is_sound=is_sound) as database:
        tables = _read(database)
    return _capture(path, tables)


def _read(database: NsysDatabase) -> ExportTables:
    notes = DroppedRows()
    facts = load_facts(database)
    with_nodes = _launches_graphs(database)
    with ThreadPoolExecutor(max_workers=1) as beside:
        # The large tables are read two at a time; both readings release the GIL.
        with_stacks = database.num_rows(OF_CALLS) > 0
        reading_calls = beside.submit(load_calls, database, notes, with_stacks=with_stacks)
        reading_memory = beside.submit(load_allocations, database, facts.device_of, notes)
        operations = tuple(
            load_operations(database, kind, notes, with_nodes=with_nodes) for kind in OpKind
        )
        ranges = load_ranges(database, notes)
        nccl_calls = load_nccl_calls(database)
        backtraces = load_backtraces(database, notes)
        calls, allocations = reading_calls.result(), reading_memory.result()
    notes.note_odd("StringIds", num_of_other_types(database, "StringIds", ["value"], "text"))
    notes.note_odd(
        "ANALYSIS_DETAILS", num_of_other_types(database, "ANALYSIS_DETAILS", ["duration"])
    )
    wanted = {*calls.kinds[:, 0].tolist(), *backtraces.symbol.tolist()}
    for row in operations[OpKind.KERNEL].details:
        wanted.update(row[:2])
    return ExportTables(
        facts=facts,
        notes=notes,
        operations=operations,
        calls=calls,
        ranges=ranges,
        allocations=allocations,
        backtraces=backtraces,
        nccl_calls=nccl_calls,
        names=load_names(database, wanted),
    )


def _launches_graphs(database: NsysDatabase) -> bool:
    """Say whether any call launches a CUDA graph: only then kernels can be nodes of one."""
    if not database.has("StringIds", "value"):
        return False
    sql = "SELECT 1 FROM StringIds WHERE value LIKE '%GraphLaunch%' LIMIT 1"
    return database.conn.execute(sql).fetchone() is not None


def _capture(path: Path, tables: ExportTables) -> NsysCapture:
    facts = tables.facts
    trace, num_repeats = assemble(path, tables)
    has_events = len(trace.gpu_ops) + len(trace.host_calls) + len(trace.host_ranges) > 0
    return NsysCapture(
        trace=trace,
        tool_version=facts.tool_version,
        environment=facts.environment,
        warnings=(
            *file_warnings(facts, tables.notes, has_events=has_events),
            *duplicate_id_warning(num_repeats),
            *range_warnings(tables.ranges),
            *window_warning(trace, tables.ranges.cut_names),
            *name_warnings(trace),
        ),
    )
