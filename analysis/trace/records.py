"""The records of single operations of a timeline: a capture's `spans`, `ranges` and `host`."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from analysis.tables import HOST_COLUMNS
from analysis.trace.attribution import Attribution, attribute, launching_thread
from analysis.trace.model import MISSING, Int64s, RangeKind, Trace
from analysis.trace.ranges import PhaseRanges, levels, phase_ranges
from analysis.trace.spans import coded, range_table, span_table

MAX_DEPTH = 8
MAX_ROWS = 1_500_000
MAX_THREADS = 12
KINDS = ("API call", "operator", "Python", "library")
_KIND_OF_RANGE = {RangeKind.OPERATOR: 1, RangeKind.PYTHON: 2, RangeKind.LIBRARY: 3}


def host_table(trace: Trace) -> pa.Table | None:
    """Return HOST_COLUMNS of the threads that launch or run operators; None without any.

    What is annotated has rows of its own (`trace.spans.range_table`). Of more than MAX_ROWS the
    shortest are left out.
    """
    calls, ranges = trace.host_calls, trace.host_ranges
    level = _levels(trace)
    shown = np.flatnonzero((level >= 0) & (level < MAX_DEPTH))
    threads = _threads(trace)
    shown = shown[np.isin(ranges.thread[shown], threads)]
    called = np.flatnonzero(np.isin(calls.thread, threads))
    if not len(shown) + len(called):
        return None
    called, shown = _longest(trace, called, shown)
    kind = np.array([_KIND_OF_RANGE.get(RangeKind(k), 0) for k in range(len(RangeKind))], np.int32)
    columns = {
        "start_ns": np.concatenate([calls.start_ns[called], ranges.start_ns[shown]]),
        "end_ns": np.concatenate([calls.end_ns[called], ranges.end_ns[shown]]),
        "thread": np.concatenate([calls.thread[called], ranges.thread[shown]]),
        "row": np.concatenate([np.zeros(len(called), np.int64), level[shown] + 1]),
        "kind": np.concatenate([np.zeros(len(called), np.int32), kind[ranges.kind[shown]]]),
        "name": np.concatenate([calls.name[called], ranges.name[shown]]),
    }
    order = np.argsort(columns["start_ns"], kind="stable")[:MAX_ROWS]
    columns = {name: values[order] for name, values in columns.items()}
    return _table(trace, columns)


def _longest(trace: Trace, called: Int64s, shown: Int64s) -> tuple[Int64s, Int64s]:
    """Return the calls and ranges that are among the MAX_ROWS longest, or as long as the last."""
    if len(called) + len(shown) <= MAX_ROWS:
        return called, shown
    tables = ((trace.host_calls, called), (trace.host_ranges, shown))
    of_calls, of_ranges = (table.end_ns[rows] - table.start_ns[rows] for table, rows in tables)
    least = np.partition(np.concatenate([of_calls, of_ranges]), -MAX_ROWS)[-MAX_ROWS]
    return called[of_calls >= least], shown[of_ranges >= least]


def _threads(trace: Trace) -> Int64s:
    """Return the threads that launch, and those with operators, busiest first."""
    launching = launching_thread(trace)
    num = len(trace.sources.threads)
    count = np.bincount(launching[launching >= 0], minlength=num)
    is_operator = trace.host_ranges.kind == RangeKind.OPERATOR
    count = count + np.bincount(trace.host_ranges.thread[is_operator], minlength=num)
    busiest = np.argsort(-count, kind="stable")[:MAX_THREADS]
    return np.sort(busiest[count[busiest] > 0])


def _levels(trace: Trace) -> Int64s:
    """Return the depth of each range among those that are not annotations; MISSING for these."""
    ranges = trace.host_ranges
    is_shown = ranges.kind != RangeKind.ANNOTATION
    around = is_shown.astype(np.int64)
    for members in levels(ranges):
        around[members] += around[ranges.parent[members]]
    return np.where(is_shown, around - 1, MISSING)


def _table(trace: Trace, columns: dict[str, np.ndarray]) -> pa.Table:
    arrays = {
        "start_ns": pa.array(columns["start_ns"]),
        "end_ns": pa.array(columns["end_ns"]),
        "process": pa.array(trace.thread_process()[columns["thread"]]),
        "thread": pa.array(trace.sources.thread_ids()[columns["thread"]]),
        "row": pa.array(columns["row"].astype(np.int32)),
        "kind": pa.DictionaryArray.from_arrays(
            pa.array(columns["kind"].astype(np.int32)), pa.array(KINDS)
        ),
        "name": coded(columns["name"], trace.names),
    }
    return pa.table({column: arrays[column] for column in HOST_COLUMNS})


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
