"""Kernels, copies and host calls summed by what they are: the tables of a run's page."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.tables import API_CALL_COLUMNS, KERNEL_COLUMNS, TRANSFER_COLUMNS, empty
from analysis.trace.labels import dims_text
from analysis.trace.model import MISSING, Int64s, OpKind, Trace
from core.trace_rules import is_wait


class _Groups:
    """Count, sum, least and greatest of the values of each group."""

    def __init__(self, group: NDArray[np.integer[Any]], values: Int64s, num_groups: int) -> None:
        self.count = np.bincount(group, minlength=num_groups)
        self.total = np.zeros(num_groups, np.int64)
        np.add.at(self.total, group, values)
        self.least = np.full(num_groups, np.iinfo(np.int64).max)
        np.minimum.at(self.least, group, values)
        self.most = np.full(num_groups, np.iinfo(np.int64).min)
        np.maximum.at(self.most, group, values)


def kernel_table(trace: Trace) -> pd.DataFrame:
    """Return one row for each (name, grid, block), and one for all opaque graph launches."""
    ops = trace.gpu_ops
    runs = np.flatnonzero(ops.runs_kernels)
    duration = ops.end_ns[runs] - ops.start_ns[runs]
    used = np.flatnonzero(np.bincount(ops.label[runs], minlength=len(trace.labels)))
    graphs = set(np.unique(ops.label[runs[ops.kind[runs] == OpKind.GRAPH]]).tolist())
    group_of: dict[tuple[str, str | None, str | None, bool], int] = {}
    group = np.zeros(len(trace.labels), np.int64)
    for row in used.tolist():
        label = trace.labels[row]
        key = (label.name, dims_text(label.grid), dims_text(label.block), row in graphs)
        group[row] = group_of.setdefault(key, len(group_of))
    sums = _Groups(group[ops.label[runs]], duration, len(group_of))
    labels = [trace.labels[i] for i in used.tolist()]
    first = np.unique(group[used], return_index=True)[1].tolist()
    frame = pd.DataFrame(
        {
            "name": [key[0] for key in group_of],
            "short_name": [labels[i].short_name or _short_name(labels[i].name) for i in first],
            "grid": pd.Series([key[1] for key in group_of], dtype=object),
            "block": pd.Series([key[2] for key in group_of], dtype=object),
            "registers": _shared_value([x.registers for x in labels], group[used], len(group_of)),
            "shared_bytes": _shared_value(
                [x.shared_bytes for x in labels], group[used], len(group_of)
            ),
            "count": sums.count,
            "total_ns": sums.total,
            "min_ns": sums.least,
            "max_ns": sums.most,
            "is_opaque": [key[3] for key in group_of],
        },
        columns=list(KERNEL_COLUMNS),
    )
    return _longest_first(frame)


def _short_name(name: str) -> str:
    from analysis.classify.names import short_name

    return short_name(name)


def _shared_value(
    values: Sequence[int | None], group: Int64s, num_groups: int
) -> pd.arrays.IntegerArray:
    """Return each group's value; missing where its members differ or lack it."""
    known = np.array([MISSING if v is None else v for v in values], np.int64)
    least = np.full(num_groups, np.iinfo(np.int64).max)
    np.minimum.at(least, group, known)
    most = np.full(num_groups, MISSING, np.int64)
    np.maximum.at(most, group, known)
    return pd.arrays.IntegerArray(np.maximum(most, 0), (least != most) | (most < 0))


def transfer_table(trace: Trace) -> pd.DataFrame:
    """Return copies and memory sets by kind, source and destination memory."""
    ops = trace.gpu_ops
    copies = ops.take(np.flatnonzero((ops.kind == OpKind.MEMCPY) | (ops.kind == OpKind.MEMSET)))
    if not len(copies):
        return empty(TRANSFER_COLUMNS).astype({"bytes": "Int64"})
    keys: dict[tuple[str, str | None, str | None], int] = {}
    group = np.zeros(len(trace.labels), np.int64)
    for row in np.unique(copies.label).tolist():
        label = trace.labels[row]
        group[row] = keys.setdefault((label.name, label.src, label.dst), len(keys))
    of_copy = group[copies.label]
    sums = _Groups(of_copy, copies.end_ns - copies.start_ns, len(keys))
    sizes = _Groups(of_copy, np.maximum(copies.num_bytes, 0), len(keys)).total
    is_unknown = np.bincount(of_copy, weights=copies.num_bytes < 0, minlength=len(keys)) > 0
    columns: list[Any] = list(zip(*keys, strict=True))
    frame = pd.DataFrame(
        {
            "kind": columns[0],
            "src": pd.Series(columns[1], dtype=object),
            "dst": pd.Series(columns[2], dtype=object),
            "count": sums.count,
            "bytes": pd.arrays.IntegerArray(sizes, is_unknown),
            "total_ns": sums.total,
        },
        columns=list(TRANSFER_COLUMNS),
    )
    return _longest_first(frame)


def call_table(trace: Trace) -> pd.DataFrame:
    """Return the host calls by name, longest total first."""
    calls = trace.host_calls
    name = calls.name
    if not len(name):
        return empty(API_CALL_COLUMNS)
    sums = _Groups(name, calls.end_ns - calls.start_ns, len(trace.names))
    rows = np.flatnonzero(sums.count)
    names = [trace.names[i] for i in rows.tolist()]
    frame = pd.DataFrame(
        {
            "name": names,
            "count": sums.count[rows],
            "total_ns": sums.total[rows],
            "min_ns": sums.least[rows],
            "max_ns": sums.most[rows],
            "num_failed": np.bincount(name, weights=calls.is_failed, minlength=len(trace.names))[
                rows
            ].astype(np.int64),
            "is_sync": [is_wait(n) for n in names],
        },
        columns=list(API_CALL_COLUMNS),
    )
    return _longest_first(frame)


def _longest_first(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
