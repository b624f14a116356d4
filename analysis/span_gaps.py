"""Idle time between the operations of a device, from the records of single operations."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.span_file import SpanFile

_COLUMNS = ["start_ns", "end_ns", "device"]
_BATCH_ROWS = 2**16
"""In blocks: memory that is touched for the first time costs more than the arithmetic."""


def median_gap_ns(spans: Sequence[pa.Table | SpanFile | Path]) -> float | None:
    """Return the median idle time between a device's successive GPU operations, in ns.

    A gap is start - the latest end before it, where positive. Takes each capture's spans, in order
    of start; None without any (a missing file is skipped) or without a gap.
    """
    gaps: list[np.ndarray] = []
    for capture in spans:
        ends: dict[int, int] = {}
        for batch in _batches(capture):
            start, end, device = (batch[name].to_numpy(False) for name in _COLUMNS)
            if len(start):
                gaps += _idle_ns(start, end, device, ends)
    merged = np.concatenate(gaps) if gaps else np.array([])
    return float(np.median(merged, overwrite_input=True)) if len(merged) else None


def _batches(spans: pa.Table | SpanFile | Path) -> Iterator[pa.RecordBatch]:
    if isinstance(spans, pa.Table):
        yield from spans.select(_COLUMNS).to_batches(_BATCH_ROWS)
        return
    path = spans.path if isinstance(spans, SpanFile) else spans
    if path.exists():
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(_BATCH_ROWS, columns=_COLUMNS)


def _idle_ns(
    start_ns: np.ndarray, end_ns: np.ndarray, device: np.ndarray, ends: dict[int, int]
) -> Iterator[np.ndarray]:
    """Give each device's idle times before operations in order of start; keeps `ends` for more."""
    devices = [device[0]] if device.min() == device.max() else np.unique(device)
    for key in map(int, devices):
        mine = slice(None) if len(devices) == 1 else device == key
        start, end = start_ns[mine], np.maximum.accumulate(end_ns[mine])
        before = np.append(ends.get(key, start[0]), end[:-1])
        idle = start - np.maximum(before, ends.get(key, before[0]))
        ends[key] = max(ends.get(key, 0), int(end[-1]))
        yield idle[idle > 0]
