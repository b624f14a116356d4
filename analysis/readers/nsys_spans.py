"""The per-operation records for the timeline and for kernel matching, as Arrow tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_events import KERNEL, KIND_NAMES, MEMCPY, Codes, GpuOps
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_nesting import RangeTree
from analysis.readers.nsys_tables import (
    GRAPH_NAME,
    dimensions,
    kernel_names,
    transfer_labels,
)
from analysis.readers.nsys_windows import Window
from analysis.span_file import SpanFile, SpanWriter
from analysis.tables import RANGE_COLUMNS, SPAN_COLUMNS

MAX_ROWS_IN_MEMORY = 1 << 20


class Spans:
    """Makes SPAN_COLUMNS rows, one an operation, window after window; a context manager."""

    def __init__(
        self, work: GpuWork, tree: RangeTree, names: Mapping[int, str], scratch: Path | None
    ) -> None:
        self._name_codes, self._names = _names(work.ops, names)
        self._grid_codes, self._grids = _launch_dimensions(work.ops, 0)
        self._block_codes, self._blocks = _launch_dimensions(work.ops, 1)
        self._path = np.append(tree.path, np.int32(-1))
        self._paths = tree.paths
        self._in_memory: list[pa.Table] = []
        self._writer = SpanWriter(scratch) if len(work) > MAX_ROWS_IN_MEMORY else None

    def __enter__(self) -> "Spans":
        return self

    def __exit__(self, *failed: object) -> None:
        if self._writer is not None:
            self._writer.__exit__(*failed)

    def add(self, window: Window, deepest: Codes) -> None:
        """Add a window's operations; `deepest` is the range of each, or MISSING."""
        table = self._table(window, deepest)
        if self._writer is None:
            self._in_memory.append(table)
        else:
            self._writer.write(table)

    def _table(self, window: Window, deepest: Codes) -> pa.Table:
        sizes = window.num_bytes
        columns = {
            "start_ns": pa.array(window.start_ns),
            "end_ns": pa.array(window.end_ns),
            "device": pa.array(window.device),
            "stream": pa.array(window.stream),
            "process": pa.array(window.process),
            "kind": _coded(window.kind.astype(np.int32), KIND_NAMES),
            "name": _coded(_chosen(self._name_codes, window), self._names),
            "grid": _coded(_chosen(self._grid_codes, window), self._grids),
            "block": _coded(_chosen(self._block_codes, window), self._blocks),
            "path": _coded(self._path[deepest], self._paths),
            "launch_start_ns": pa.array(window.first_ns, mask=window.call < 0),
            "bytes": pa.array(sizes, mask=sizes < 0),
        }
        return pa.table({name: columns[name] for name in SPAN_COLUMNS})

    def result(self) -> pa.Table | SpanFile | None:
        """Return the records, after the `with` block; None without operations."""
        if self._writer is not None:
            return self._writer.finished()
        return pa.concat_tables(self._in_memory).combine_chunks() if self._in_memory else None


def ranges_table(tree: RangeTree, processes: Ints) -> pa.Table:
    """Return one row a closed range (RANGE_COLUMNS), ordered by start."""
    ranges = tree.ranges
    order = np.argsort(ranges.start_ns, kind="stable")
    columns = {
        "start_ns": pa.array(ranges.start_ns[order]),
        "end_ns": pa.array(ranges.end_ns[order]),
        "process": pa.array(np.searchsorted(processes, tree.process[order]).astype(np.int32)),
        "thread": pa.array(ranges.thread[order] & 0xFFFFFF),
        "depth": pa.array(tree.depth[order]),
        "name": _coded(ranges.name[order], ranges.names),
        "path": _coded(tree.path[order], tree.paths),
    }
    return pa.table({name: columns[name] for name in RANGE_COLUMNS})


def _coded(codes: NDArray[np.int32], texts: Sequence[str]) -> pa.DictionaryArray:
    """Return a dictionary column; negative codes are null."""
    indices = pa.array(codes.astype(np.int32, copy=False), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _chosen(codes_of_kind: Sequence[NDArray[np.int32]], window: Window) -> NDArray[np.int32]:
    """Return the code of each operation: those of its kind, by its detail."""
    firsts = np.cumsum([0, *map(len, codes_of_kind)])
    return np.concatenate(codes_of_kind)[firsts[window.kind] + window.detail]


def _names(
    ops: Sequence[GpuOps], names: Mapping[int, str]
) -> tuple[list[NDArray[np.int32]], list[str]]:
    texts: dict[str, int] = {}
    parts = []
    for part in ops:
        if part.kind == KERNEL:
            own = kernel_names(part, names)[0]
        else:
            own = [_copy_name(part, label[0]) for label in transfer_labels(part)] or [GRAPH_NAME]
        parts.append(np.array([texts.setdefault(t, len(texts)) for t in own] or [0], np.int32))
    return parts, list(texts)


def _copy_name(ops: GpuOps, kind: str) -> str:
    return f"memcpy {kind}" if ops.kind == MEMCPY else "memset"


def _launch_dimensions(
    ops: Sequence[GpuOps], which: int
) -> tuple[list[NDArray[np.int32]], list[str]]:
    texts: dict[str, int] = {}
    parts = []
    for part in ops:
        codes = [-1] * max(len(part.shapes), 1)
        if part.kind == KERNEL and len(part):
            own = dimensions(part)[which]
            codes = [-1 if t is None else texts.setdefault(t, len(texts)) for t in own]
        parts.append(np.array(codes, np.int32))
    return parts, list(texts)
