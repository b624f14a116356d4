"""The records of single operations of a timeline: a capture's `spans`, `ranges` and `host`."""

from pathlib import Path
from typing import Any

from analysis.trace.attribution import Attribution, attribute
from analysis.trace.host_rows import host_table
from analysis.trace.model import Trace
from analysis.trace.ranges import PhaseRanges, phase_ranges
from analysis.trace.spans import range_table, span_table


def records_of(trace: Trace, scratch: Path | None = None) -> dict[str, Any]:
    """Return the tables RECORDS of a trace alone."""
    ranges = phase_ranges(trace)
    return records(trace, ranges, attribute(trace, ranges), scratch)


def records(
    trace: Trace, ranges: PhaseRanges, given: Attribution, scratch: Path | None
) -> dict[str, Any]:
    """Return the tables RECORDS; `scratch`: folder for the spans of large captures."""
    return {
        "spans": span_table(trace, ranges, given, scratch),
        "ranges": range_table(trace, ranges),
        "host": host_table(trace),
    }
