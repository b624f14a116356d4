"""Load GPU operations and host API calls of an nsys export: sums at once, rows into chunks.

Names stay ids, launch shapes become codes. What is summed over whole tables is summed while they
are read; the rows lie in `Chunks`, for everything that needs them in order of time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_chunks import Chunks
from analysis.readers.nsys_columns import (
    MAX_TIME_NS,
    MISSING,
    ColumnBatches,
    Ints,
    missing_columns,
)
from analysis.readers.nsys_groups import Groups
from analysis.readers.nsys_shapes import SHAPE_FIELDS, ShapeCodes
from captures.nsys_database import NsysDatabase

Codes = NDArray[np.int32]
KERNEL, MEMCPY, MEMSET, GRAPH = range(4)
KIND_NAMES = ("kernel", "memcpy", "memset", "graph")
TABLES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
COPY_FIELDS = ("copyKind", "srcKind", "dstKind")
SYNC_FIELDS = ("memKind",)
TID_BITS = 24
_WHERE_FIELDS = ("deviceId", "streamId", "correlationId", "globalPid")
_DETAIL_FIELDS = {
    KERNEL: SHAPE_FIELDS,
    MEMCPY: (*COPY_FIELDS, "bytes"),
    MEMSET: (*SYNC_FIELDS, "bytes"),
    GRAPH: (),
}


@dataclass(slots=True, kw_only=True)
class Quarantine:
    """Rows that were left out, by table, and tables whose columns do not suffice."""

    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    "table -> (left out, all)"
    unreadable: dict[str, list[str]] = field(default_factory=dict)
    "table -> required columns that it lacks"
    absent: dict[str, list[str]] = field(default_factory=dict)
    "table with rows -> columns that every known export has and this one lacks"
    odd: dict[str, int] = field(default_factory=dict)
    "table -> cells that hold something else than their column should"

    def note(self, table: str, num_dropped: int, num_all: int) -> None:
        if num_dropped:
            self.dropped[table] = (num_dropped, num_all)

    def note_odd(self, table: str, num_odd: int) -> None:
        if num_odd:
            self.odd[table] = self.odd.get(table, 0) + num_odd


@dataclass(slots=True, kw_only=True)
class GpuOps:
    """Operations of one kind on the GPU.

    Columns of `rows`: start, end [ns], device and stream (int32), process (globalPid without the
    thread bits, MISSING where there is none), correlation (uint32, 0 for none), detail (index into
    `shapes`; 0 for graphs) and, for copies and sets, bytes.
    """

    kind: int
    rows: Chunks
    shapes: Ints
    "Distinct rows of the kind's detail fields."
    sums: Groups
    "Durations by detail."
    sizes: Groups
    "Bytes by detail; an unknown size counts as 0."
    is_size_unknown: NDArray[np.bool_]
    "By detail: whether any of its sizes is unknown."
    last_end_ns: int
    total_ns: float
    has_process: bool

    def __len__(self) -> int:
        return len(self.rows)


def narrow(values: Ints) -> Codes:
    """Return int32; what does not fit, or is below MISSING, becomes MISSING."""
    fits = (values >= MISSING) & (values <= np.iinfo(np.int32).max)
    return np.where(fits, values, MISSING).astype(np.int32)


def sound_times(start_ns: Ints, end_ns: Ints) -> NDArray[np.bool_]:
    """Say which events can be: end not before start, both within 36 years of the origin."""
    bound = MAX_TIME_NS
    return (start_ns <= end_ns) & (start_ns > -bound) & (end_ns < bound)


def load_gpu_ops(
    database: NsysDatabase, kind: int, quarantine: Quarantine, scratch: Path | None
) -> GpuOps:
    """Read all operations of a kind; an absent table gives none."""
    table, columns = TABLES[kind], _DETAIL_FIELDS[kind]
    details = tuple(c for c in columns if c != "bytes")
    batches = ColumnBatches(
        database=database,
        table=table,
        required=("start", "end"),
        optional=(*_WHERE_FIELDS, *columns),
    )
    codes = ShapeCodes(num_fields=len(details))
    found = GpuOps(
        kind=kind,
        rows=Chunks(scratch),
        shapes=codes.rows(),
        sums=Groups(),
        sizes=Groups(),
        is_size_unknown=np.zeros(0, bool),
        last_end_ns=-MAX_TIME_NS,
        total_ns=0.0,
        has_process=database.has(table, "globalPid"),
    )
    for batch in sound_batches(batches):
        detail = codes.encode([batch[c] for c in details], len(batch["start"]))
        rows: dict[str, NDArray[Any]] = {
            "start": batch["start"],
            "end": batch["end"],
            "device": narrow(batch["deviceId"]),
            "stream": narrow(batch["streamId"]),
            "process": _process_of(batch["globalPid"]),
            "correlation": correlation_ids(batch["correlationId"]),
            "detail": detail,
        }
        _add_sums(found, batch, detail)
        found.rows.append(rows | ({"bytes": batch["bytes"]} if "bytes" in columns else {}))
    found.shapes = codes.rows()
    note_reading(quarantine, database, batches, len(found))
    return found


def _add_sums(ops: GpuOps, batch: Mapping[str, Ints], detail: Codes) -> None:
    if not len(detail):
        return
    duration = batch["end"] - batch["start"]
    ops.sums.add(detail, duration)
    ops.total_ns += float(np.sum(duration, dtype=np.float64))
    ops.last_end_ns = max(ops.last_end_ns, int(batch["end"].max()))
    if "bytes" not in batch:
        return
    sizes = batch["bytes"]
    ops.sizes.add(detail, np.maximum(sizes, 0))
    unknown = np.bincount(detail, weights=sizes < 0, minlength=len(ops.sums.count)) > 0
    unknown[: len(ops.is_size_unknown)] |= ops.is_size_unknown
    ops.is_size_unknown = unknown


def without_recorded_graphs(ops: tuple[GpuOps, ...], scratch: Path | None) -> tuple[GpuOps, ...]:
    """Leave out graph launches whose kernels were recorded one by one: their time counts once."""
    kernels, graphs = ops[KERNEL], ops[GRAPH]
    if not len(graphs) or not len(kernels):
        return ops
    columns = ("process", "correlation")
    keys = np.concatenate(
        [_launch_key(graphs.rows.read(i, columns)) for i in range(graphs.rows.num_chunks)]
    )
    order = np.argsort(keys, kind="stable")
    is_recorded = np.zeros(len(keys), bool)
    for index in range(kernels.rows.num_chunks):
        launched = np.unique(_launch_key(kernels.rows.read(index, columns)))
        low = np.searchsorted(keys, launched, side="left", sorter=order)
        high = np.searchsorted(keys, launched, side="right", sorter=order)
        for first, last in zip(low[low < high].tolist(), high[low < high].tolist(), strict=True):
            is_recorded[order[first:last]] = True
    return (*ops[:GRAPH], _left_over(graphs, is_recorded, scratch)) if is_recorded.any() else ops


def _left_over(graphs: GpuOps, is_recorded: NDArray[np.bool_], scratch: Path | None) -> GpuOps:
    names = ("start", "end", "device", "stream", "process", "correlation", "detail")
    left = GpuOps(
        kind=GRAPH,
        rows=Chunks(scratch),
        shapes=graphs.shapes,
        sums=Groups(),
        sizes=Groups(),
        is_size_unknown=graphs.is_size_unknown,
        last_end_ns=-MAX_TIME_NS,
        total_ns=0.0,
        has_process=graphs.has_process,
    )
    for index in range(graphs.rows.num_chunks):
        rows = graphs.rows.read(index, names)
        first = graphs.rows.first_row(index)
        no_launch = rows["correlation"] == 0
        keep = ~is_recorded[first : first + len(no_launch)] | no_launch
        kept = {name: values[keep] for name, values in rows.items()}
        _add_sums(left, kept, kept["detail"])
        left.rows.append(kept)
    return left


def _launch_key(rows: Mapping[str, NDArray[Any]]) -> Ints:
    # globalPid >> 24 needs more than 32 bits in theory: the multiplication may wrap, alike for all.
    return rows["process"].astype(np.int64) * np.int64(1 << 32) + rows["correlation"]


def sound_batches(batches: ColumnBatches) -> Iterator[Mapping[str, Ints]]:
    """Give the batches without rows whose times cannot be, which are counted as dropped."""
    for batch in batches:
        sound = sound_times(batch["start"], batch["end"])
        if not sound.all():
            batches.num_dropped += int((~sound).sum())
            batch = {name: values[sound] for name, values in batch.items()}
        yield batch


def correlation_ids(values: Ints) -> NDArray[np.uint32]:
    """Return ids that fit CUPTI's 32 bits; 0, which is never given out, for others."""
    return np.where((values > 0) & (values < 1 << 32), values, 0).astype(np.uint32)


def _process_of(global_pid: Ints) -> Ints:
    return np.where(global_pid == MISSING, MISSING, global_pid >> TID_BITS)


def note_reading(
    quarantine: Quarantine, database: NsysDatabase, batches: ColumnBatches, num_kept: int
) -> None:
    quarantine.note(batches.table, batches.num_dropped, num_kept + batches.num_dropped)
    quarantine.note_odd(batches.table, batches.num_odd)
    lacking = missing_columns(database, batches.table, batches.required)
    if lacking:
        quarantine.unreadable[batches.table] = lacking
    absent = missing_columns(database, batches.table, batches.optional)
    if absent and num_kept:
        quarantine.absent[batches.table] = absent
