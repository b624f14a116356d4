"""Warnings about an export file: schema, dropped rows, ranges, names."""

from collections.abc import Iterator

import numpy as np

from analysis.readers.nsys.columns import DroppedRows
from analysis.readers.nsys.facts import Facts
from analysis.readers.nsys.operations import UNKNOWN_CALL, UNKNOWN_KERNEL
from analysis.readers.nsys.ranges import NvtxRanges
from analysis.tables import CaptureWarning
from analysis.trace.coverage import share, warn
from analysis.trace.model import RangeKind, Trace

WINDOW_SLACK_NS = 1_000_000


def file_warnings(
    facts: Facts, notes: DroppedRows, *, has_events: bool
) -> Iterator[CaptureWarning]:
    """Give what concerns the file as such: schema, left-out rows, the tool's own diagnostics."""
    if facts.is_new_schema:
        version = facts.environment.get("nsys_schema_version")
        yield warn(
            "unknown_schema", f"the export schema {version} is none of those known (up to 3.x)"
        )
    if facts.is_session_lost and has_events:
        yield warn(
            "session_unknown",
            "ANALYSIS_DETAILS has no valid duration: the end of the recording "
            "is unknown, and ranges still open then count as closed. The file "
            "may be damaged",
        )
    for table, columns in notes.unreadable.items():
        yield warn("missing_columns", f"{table} has no column {', '.join(columns)}: it is not used")
    for table, columns in notes.absent.items():
        lacking = ", ".join(columns)
        yield warn("absent_columns", f"{table} has no column {lacking}: its values are unknown")
    for table, (dropped, total) in notes.dropped.items():
        yield warn(
            "quarantined_rows",
            f"{table}: {dropped} of {total} rows ({share(dropped, total)}) are "
            "left out: a value is missing or impossible (not an integer, no "
            "time recorded, end before start, absurd time or size)",
        )
    for table, count in notes.odd.items():
        yield warn(
            "odd_values",
            f"{table}: {count} cells are empty or of another type than the rest "
            "of the column: their values are unknown. The file may be damaged",
        )
    for severity, text, count in facts.diagnostics:
        times = f" ({count} times)" if count > 1 else ""
        level = "error" if severity == 3 else "warning"
        yield warn("nsys_diagnostic", f"Nsight Systems {level}: {text}{times}")


def range_warnings(ranges: NvtxRanges) -> Iterator[CaptureWarning]:
    """Give the ranges that are not counted."""
    if ranges.num_unclosed:
        cut = ranges.num_closed_by_session_end
        by_tool = f" ({cut} closed by the tool at the session's end)" if cut else ""
        yield warn(
            "unclosed_ranges",
            f"{ranges.num_unclosed} ranges were never closed by the "
            f"program{by_tool}: no total includes them",
        )
    if ranges.num_cross_thread:
        yield warn(
            "cross_thread_ranges",
            f"{ranges.num_cross_thread} start/end ranges end on another thread "
            "than they began: they get no launches, and no total includes them",
        )


def window_warning(trace: Trace, cut_names: tuple[str, ...]) -> Iterator[CaptureWarning]:
    """Say which of the program's ranges reach beyond what was recorded.

    The recording is from 0 to the session's end on the clock of the events.
    """
    ranges, end_ns = trace.host_ranges, trace.sources.session_end_ns
    is_outside = (ranges.start_ns < 0) & (ranges.end_ns > 0)
    if end_ns is not None:
        is_outside |= (ranges.start_ns < end_ns) & (ranges.end_ns > end_ns + WINDOW_SLACK_NS)
    chosen = ranges.name[is_outside & (ranges.kind == RangeKind.ANNOTATION)]
    names = dict.fromkeys([*(trace.names[i] for i in chosen.tolist()), *cut_names])
    if not names:
        return
    shown = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
    window = "" if end_ns is None else f" (0 to {end_ns / 1e6:.3f} ms)"
    yield warn(
        "capture_window_short",
        f"the recording{window} covers only part of these ranges: {shown}. Work "
        "outside of it is in no total: choose a capture range or duration that "
        "includes them",
    )


def name_warnings(trace: Trace) -> Iterator[CaptureWarning]:
    """Say how many kernels and calls have a name that the file does not hold."""
    labels = [i for i, label in enumerate(trace.labels) if _is_unknown(label.name, UNKNOWN_KERNEL)]
    calls = [i for i, name in enumerate(trace.names) if _is_unknown(name, UNKNOWN_CALL)]
    num_kernels = int(np.bincount(trace.gpu_ops.label, minlength=len(trace.labels))[labels].sum())
    num_calls = int(np.bincount(trace.host_calls.name, minlength=len(trace.names))[calls].sum())
    if num_kernels or num_calls:
        yield warn(
            "unknown_names",
            f"the names of {num_kernels} kernels and {num_calls} CUDA calls are "
            "not in the file: they are listed by number and not classified. "
            "Export the report again",
        )


def _is_unknown(name: str, template: str) -> bool:
    return name.startswith(template.split("{")[0])
