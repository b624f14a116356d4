"""The records of single operations and ranges, for the timeline and for kernel matching."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from analysis.span_file import SpanFile, SpanWriter
from analysis.tables import RANGE_COLUMNS, SPAN_COLUMNS
from analysis.trace.attribution import Attribution
from analysis.trace.calls import of_launch
from analysis.trace.labels import dims_text, transfer_name
from analysis.trace.model import Int32s, OpKind, Trace
from analysis.trace.ranges import PhaseRanges

KIND_NAMES = {
    OpKind.KERNEL: "kernel",
    OpKind.MEMCPY: "memcpy",
    OpKind.MEMSET: "memset",
    OpKind.GRAPH: "graph",
}
MAX_ROWS_IN_MEMORY = 1 << 20
BATCH_ROWS = 1 << 18


def span_table(
    trace: Trace, ranges: PhaseRanges, given: Attribution, scratch: Path | None
) -> pa.Table | SpanFile | None:
    """Return SPAN_COLUMNS, one row an operation in order of start; None without operations."""
    if not len(trace.gpu_ops):
        return None
    batches = _batches(trace, ranges, given)
    if len(trace.gpu_ops) <= MAX_ROWS_IN_MEMORY:
        return pa.concat_tables(batches).combine_chunks()
    with SpanWriter(scratch) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.finished()


def _batches(trace: Trace, ranges: PhaseRanges, given: Attribution) -> Iterator[pa.Table]:
    names, grids, blocks = _texts(trace)
    phase = given.phase
    for first in range(0, len(trace.gpu_ops), BATCH_ROWS):
        part = slice(first, first + BATCH_ROWS)
        ops = trace.gpu_ops.take(part)
        columns = {
            "start_ns": pa.array(ops.start_ns),
            "end_ns": pa.array(ops.end_ns),
            "device": pa.array(ops.device),
            "stream": pa.array(ops.stream),
            "process": pa.array(ops.process),
            "kind": coded(ops.kind.astype(np.int32), list(KIND_NAMES.values())),
            "name": coded(names[0][ops.label], names[1]),
            "grid": coded(grids[0][ops.label], grids[1]),
            "block": coded(blocks[0][ops.label], blocks[1]),
            "path": coded(ranges.path[phase[part]], ranges.paths),
            "launch_start_ns": pa.array(
                of_launch(trace.host_calls.start_ns, ops.launch, 0), mask=ops.launch < 0
            ),
            "bytes": pa.array(ops.num_bytes, mask=ops.num_bytes < 0),
        }
        yield pa.table({name: columns[name] for name in SPAN_COLUMNS})


def range_table(trace: Trace, ranges: PhaseRanges) -> pa.Table | None:
    """Return one row per phase (RANGE_COLUMNS), ordered by start; None without any."""
    rows = ranges.rows
    if not len(rows):
        return None
    table = trace.host_ranges
    rows = rows[np.argsort(table.start_ns[rows], kind="stable")]
    depth = np.zeros(len(table) + 1, np.int32)
    for row in ranges.rows.tolist():
        above = ranges.parent[row]
        depth[row] = depth[above] + 1 if above >= 0 else 0
    columns = {
        "start_ns": pa.array(table.start_ns[rows]),
        "end_ns": pa.array(table.end_ns[rows]),
        "process": pa.array(trace.thread_process()[table.thread[rows]]),
        "thread": pa.array(trace.sources.thread_ids()[table.thread[rows]]),
        "depth": pa.array(depth[rows]),
        "name": coded(table.name[rows], trace.names),
        "path": coded(ranges.path[rows], ranges.paths),
    }
    return pa.table({name: columns[name] for name in RANGE_COLUMNS})


def coded(codes: Int32s, texts: Sequence[str | None]) -> pa.DictionaryArray:
    """Return a dictionary column of the texts in use, each once; negative codes are null."""
    used = np.flatnonzero(np.bincount(codes[codes >= 0], minlength=1)).tolist() if texts else []
    place = {text: i for i, text in enumerate(dict.fromkeys(texts[code] for code in used))}
    index = np.full(len(texts) + 1, -1, np.int32)
    index[used] = [place[texts[code]] for code in used]
    chosen = index[codes]
    indices = pa.array(chosen, mask=chosen < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(place, pa.string()))


def _texts(trace: Trace) -> list[tuple[Int32s, list[str]]]:
    """Return codes by label and the texts of names, grids and blocks."""
    kinds = _kind_of_label(trace)
    names = [
        transfer_name(label, kind) if kind in (OpKind.MEMCPY, OpKind.MEMSET) else label.name
        for label, kind in zip(trace.labels, kinds, strict=True)
    ]
    grids = [dims_text(label.grid) for label in trace.labels]
    blocks = [dims_text(label.block) for label in trace.labels]
    columns = []
    for texts in (names, grids, blocks):
        codes: dict[str, int] = {}
        rows = [-1 if t is None else codes.setdefault(t, len(codes)) for t in texts]
        columns.append((np.array(rows, np.int32), list(codes)))
    return columns


def _kind_of_label(trace: Trace) -> list[OpKind]:
    """Return the kind of the operations of each label; a label is never shared by two kinds."""
    kind = np.zeros(len(trace.labels), np.int8)
    kind[trace.gpu_ops.label] = trace.gpu_ops.kind
    return [OpKind(k) for k in kind.tolist()]
