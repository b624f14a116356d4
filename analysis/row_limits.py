"""What one run may add to the database: its rows and names stay there for good.

Real captures stay far below: a training step has some hundred kernels, an autotuner's log a few
thousand. A file made to fill the disk has millions of names, each another.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from analysis.rundata import RunCapture, RunData
from core.errors import CaptureError

MAX_ROWS = 500_000
"""Of one table of a capture."""
MAX_SAMPLES = 2_000_000
"""Of a run; a manifest of the largest size holds half as many."""
MAX_NAMES = 50_000
"""Different kernels, ranges, calls or metrics of one capture."""
MAX_TEXT_BYTES = 128 << 20
"""All texts of one capture's tables."""
MAX_FACTS = 2_000
"""Entries of what a run says of its surroundings, GPU or passes, and its own metrics."""
_IN_FILES = frozenset({"spans", "ranges", "host"})
"""Tables that are kept as Parquet files."""
_NAMES = ("name", "path", "metric", "kernel", "message")
_REMEDY = "Record a shorter capture, or fewer steps"


def check_rows(run: RunData) -> None:
    """Raise CaptureError for a run that would fill the database."""
    for capture in run.captures:
        _check_capture(capture)
    whole = run.captures[0].file_name if run.captures else "manifest.json"
    _at_most(whole, len(run.samples), MAX_SAMPLES, "samples")
    facts: tuple[tuple[str, Mapping[str, Any] | Sequence[Any]], ...] = (
        ("facts of its surroundings", run.environment),
        ("facts of its GPU", run.gpu),
        ("metrics", run.metrics),
        ("passes", run.passes),
        ("warnings", run.warnings),
        ("captures", run.captures),
    )
    for what, entries in facts:
        _at_most(whole, len(entries), MAX_FACTS, what)


def _check_capture(capture: RunCapture) -> None:
    num_bytes = 0
    for table, frame in _stored(capture):
        _at_most(capture.file_name, len(frame), MAX_ROWS, f"rows of {table}")
        for column in (c for c in frame.columns if _holds_texts(frame[c])):
            lengths = frame[column].map(len, na_action="ignore")
            num_bytes += int(pd.to_numeric(lengths, errors="coerce").sum())
            if column in _NAMES:
                num_names = frame[column].nunique()
                what = f"different names in {table}, column {column}"
                _at_most(capture.file_name, num_names, MAX_NAMES, what)
    _at_most(capture.file_name, num_bytes, MAX_TEXT_BYTES, "bytes of names and texts")
    for what in ("summary", "memory", "environment", "gpu", "step_facts"):
        entries = getattr(capture.tables, what)
        _at_most(capture.file_name, len(entries), MAX_FACTS, f"entries of {what}")
        num_bytes = len(json.dumps(dict(entries), default=str))
        _at_most(capture.file_name, num_bytes, MAX_TEXT_BYTES, f"bytes of {what}")


def _stored(capture: RunCapture) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in (f.name for f in fields(capture.tables)):
        table = getattr(capture.tables, name)
        if name not in _IN_FILES and isinstance(table, pd.DataFrame):
            yield name, table


def _holds_texts(column: "pd.Series[Any]") -> bool:
    return column.dtype == object or isinstance(column.dtype, pd.StringDtype | pd.CategoricalDtype)


def _at_most(file_name: str, count: int, limit: int, what: str) -> None:
    if count > limit:
        where = f"it gives {count} {what}, more than the {limit} kept of one"
        raise CaptureError(file_name, where, _REMEDY)
