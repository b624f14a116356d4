"""The per-operation records for the timeline and for kernel matching, as Arrow tables."""

from collections.abc import Mapping, Sequence

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
from analysis.tables import RANGE_COLUMNS, SPAN_COLUMNS


def spans_table(
    work: GpuWork,
    launch_start_ns: Ints,
    deepest: Codes,
    tree: RangeTree,
    names: Mapping[int, str],
) -> pa.Table:
    """Return one row an operation (SPAN_COLUMNS), ordered by start.

    `launch_start_ns` and `deepest` (range, or MISSING) are by operation.
    """
    order = np.argsort(work.start_ns, kind="stable")
    name_codes, texts = _names(work, names)
    grid_codes, grids = _launch_dimensions(work, 0)
    block_codes, blocks = _launch_dimensions(work, 1)
    path = np.append(tree.path, np.int32(-1))[deepest[order]]
    is_unknown = work.launch[order] < 0
    sizes = _bytes(work)[order]
    columns = {
        "start_ns": pa.array(work.start_ns[order]),
        "end_ns": pa.array(work.end_ns[order]),
        "device": pa.array(work.device[order]),
        "stream": pa.array(np.concatenate([ops.stream for ops in work.ops])[order]),
        "process": pa.array(work.process[order]),
        "kind": _coded(work.kind[order].astype(np.int32), KIND_NAMES),
        "name": _coded(name_codes[order], texts),
        "grid": _coded(grid_codes[order], grids),
        "block": _coded(block_codes[order], blocks),
        "path": _coded(path, tree.paths),
        "launch_start_ns": pa.array(launch_start_ns[order], mask=is_unknown),
        "bytes": pa.array(sizes, mask=sizes < 0),
    }
    return pa.table({name: columns[name] for name in SPAN_COLUMNS})


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


def _names(work: GpuWork, names: Mapping[int, str]) -> tuple[NDArray[np.int32], list[str]]:
    texts: dict[str, int] = {}
    parts = []
    for ops in work.ops:
        if ops.kind == KERNEL:
            own = kernel_names(ops, names)[0]
        else:
            own = [_copy_name(ops, label[0]) for label in transfer_labels(ops)] or [GRAPH_NAME]
        codes = np.array([texts.setdefault(t, len(texts)) for t in own] or [0], np.int32)
        parts.append(codes[ops.detail])
    return np.concatenate(parts), list(texts)


def _copy_name(ops: GpuOps, kind: str) -> str:
    return f"memcpy {kind}" if ops.kind == MEMCPY else "memset"


def _launch_dimensions(work: GpuWork, which: int) -> tuple[NDArray[np.int32], list[str]]:
    texts: dict[str, int] = {}
    parts = []
    for ops in work.ops:
        if ops.kind == KERNEL and len(ops):
            own = dimensions(ops)[which]
            codes = [-1 if t is None else texts.setdefault(t, len(texts)) for t in own]
            parts.append(np.array(codes, np.int32)[ops.detail])
        else:
            parts.append(np.full(len(ops), -1, np.int32))
    return np.concatenate(parts), list(texts)


def _bytes(work: GpuWork) -> Ints:
    return np.concatenate(
        [np.full(len(ops), -1) if ops.num_bytes is None else ops.num_bytes for ops in work.ops]
    )
