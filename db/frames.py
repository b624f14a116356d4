"""Turn rows into frames whose dtypes follow the column contract, exactly.

`pandas.read_sql` turns an INTEGER column with one NULL into floats (and loses nanoseconds) and
gives an empty result no dtypes at all; here each column is built from Python values.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sqlite_utils import Database

from analysis import tables
from db.connection import take_numbers

take_numbers()  # what comes out of a frame goes into queries

NULLABLE_INT = frozenset(
    {
        "registers",
        "shared_bytes",
        "host_ns",
        "projected_ns",
        "kernel_ns",
        "reserved_bytes",
        "requested_bytes",
        "num_samples",
        "kernel_time_ns",
        "peak_memory_bytes",
        "num_spans",
    }
)
INT = frozenset(
    {
        "count",
        "total_ns",
        "min_ns",
        "max_ns",
        "process",
        "num_ranges",
        "num_kernels",
        "first_start_ns",
        "num_failed",
        "time_ns",
        "device",
        "allocated_bytes",
        "bytes",
        "launch",
        "iteration",
        "latency_ns",
        "attempt",
        "repeats",
    }
)
FLOAT = frozenset(
    {
        *tables.COUNTER_COLUMNS[6:-1],
        "estimated_speedup_pct",
        "confidence",
        "value",
        "latency_ms",
        "latency_lo_ms",
        "latency_hi_ms",
        "step_kernel_ns",
        "idle_frac",
        "gemm_frac",
        "noise_floor_frac",
    }
)
BOOL = frozenset({"is_opaque", "is_sync", "is_baseline", "cancel_requested"})


def build(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame: Int64 where NULL is possible, int64, float64, bool, else object with None."""
    if not rows:
        return _empty(tuple(columns)).copy(deep=False)  # a write to it makes it one of its own
    values = zip(*rows, strict=True)
    # With one index given pandas need not find what is common to all columns, which takes longer.
    index = pd.RangeIndex(len(rows))
    arrays = {n: _array(n, column, index) for n, column in zip(columns, values, strict=True)}
    return pd.DataFrame(arrays, index=index, copy=False)


@cache
def _empty(columns: tuple[str, ...]) -> pd.DataFrame:
    """Return a frame without rows: making one costs milliseconds, and most runs need several."""
    index = pd.RangeIndex(0)
    return pd.DataFrame({name: _array(name, (), index) for name in columns}, index=index)


def select(
    db: Database,
    sql: str,
    params: Sequence[Any] | Mapping[str, Any] = (),
    columns: Sequence[str] = (),
) -> pd.DataFrame:
    """Run a SELECT whose columns are `columns` (its own names when empty). Read-only."""
    cursor = db.conn.execute(sql, params if isinstance(params, Mapping) else tuple(params))
    names = list(columns) or [d[0] for d in cursor.description]
    return build(cursor.fetchall(), names)


def select_parts(
    db: Database,
    sql: str,
    params: Mapping[str, Any],
    columns: Sequence[str],
    num_parts: int,
    *,
    read: Mapping[str, Callable[[Any], Any]] | None = None,
) -> list[pd.DataFrame]:
    """Run one SELECT for several runs; return a frame of `columns` for each of `num_parts`.

    Its first column is the part's number, from 0, and orders the rows. Making one large frame and
    cutting it costs a tenth of making a frame for every run. `read`: what a column's stored texts
    are.
    """
    rows = db.conn.execute(sql, params).fetchall()
    whole = build([row[1:] for row in rows], columns)
    for name, of in (read or {}).items():
        whole[name] = whole[name].map(of)
    if num_parts == 1:
        return [whole]
    counts = np.bincount([row[0] for row in rows], minlength=num_parts)
    parts, start = [], 0
    for end in np.cumsum(counts).tolist():
        part = whole.iloc[start:end]
        part.index = pd.RangeIndex(end - start)
        parts.append(part)
        start = end
    return parts


def _array(name: str, values: Sequence[Any], index: pd.RangeIndex) -> Any:
    if name in BOOL:
        return np.array([bool(v) for v in values], dtype=np.bool_)
    if name in FLOAT:
        return np.array(values, dtype=np.float64)
    if name in NULLABLE_INT or (name in INT and any(v is None for v in values)):
        return pd.array(list(values), dtype="Int64")
    if name in INT:
        return np.array(values, dtype=np.int64)
    return pd.Series(values, index=index, dtype="object")  # as an array it would become `str`
