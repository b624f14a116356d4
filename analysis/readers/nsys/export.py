"""Read an Nsight Systems SQLite export into the event model, and from there into tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.readers.nsys.assemble import ExportTables, assemble
from analysis.readers.nsys.tables import read_export
from analysis.readers.nsys.warnings import (
    file_warnings,
    name_warnings,
    range_warnings,
    window_warning,
)
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from analysis.trace.coverage import duplicate_id_warning
from analysis.trace.model import Trace
from analysis.trace.summary import tables_of
from captures.nsys_database import open_nsys


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
        tables = read_export(database)
    return _capture(path, tables)


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
