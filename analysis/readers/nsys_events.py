"""Load GPU operations and host API calls of an nsys export as plain arrays.

Names stay ids, launch shapes become codes: 1.6 million kernels take 60 MB here.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import (
    MAX_TIME_NS,
    MISSING,
    ColumnBatches,
    Ints,
    missing_columns,
)
from analysis.readers.nsys_database import NsysDatabase
from analysis.readers.nsys_shapes import SHAPE_FIELDS, ShapeCodes

Codes = NDArray[np.int32]
KERNEL, MEMCPY, MEMSET, GRAPH = range(4)
KIND_NAMES = ("kernel", "memcpy", "memset", "graph")
TABLES = {
    KERNEL: "CUPTI_ACTIVITY_KIND_KERNEL",
    MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
API_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
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

    def note(self, table: str, num_dropped: int, num_all: int) -> None:
        if num_dropped:
            self.dropped[table] = (num_dropped, num_all)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOps:
    """Operations of one kind on the GPU, one array element each, in the table's order."""

    kind: int
    start_ns: Ints
    end_ns: Ints
    device: Codes
    stream: Codes
    process: Ints
    "globalPid without the thread bits; MISSING where the export has none."
    correlation: Ints
    detail: Codes
    "KERNEL: index into `shapes`; MEMCPY, MEMSET: index into `shapes` too; GRAPH: 0."
    shapes: Ints
    "Distinct rows of the kind's detail fields."
    num_bytes: Ints | None
    has_process: bool

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> Ints:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCalls:
    """CUDA calls of the host, in the table's order."""

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    "globalTid"
    correlation: Ints
    name_id: Codes
    result: Codes
    "Return code, MISSING if not recorded."

    def __len__(self) -> int:
        return len(self.start_ns)


def narrow(values: Ints) -> Codes:
    """Return int32; what does not fit, or is below MISSING, becomes MISSING."""
    fits = (values >= MISSING) & (values <= np.iinfo(np.int32).max)
    return np.where(fits, values, MISSING).astype(np.int32)


def sound_times(start_ns: Ints, end_ns: Ints) -> NDArray[np.bool_]:
    """Say which events can be: end not before start, both within 36 years of the origin."""
    bound = MAX_TIME_NS
    return (start_ns <= end_ns) & (start_ns > -bound) & (end_ns < bound)


def load_gpu_ops(database: NsysDatabase, kind: int, quarantine: Quarantine) -> GpuOps:
    """Read all operations of a kind; an absent table gives none."""
    table = TABLES[kind]
    columns = _DETAIL_FIELDS[kind]
    details = tuple(c for c in columns if c != "bytes")
    batches = ColumnBatches(
        database=database,
        table=table,
        required=("start", "end"),
        optional=(*_WHERE_FIELDS, *columns),
    )
    codes = ShapeCodes(num_fields=len(details))
    parts: list[tuple[NDArray[np.generic], ...]] = []
    num_all = 0
    for batch in batches:
        sound = sound_times(batch["start"], batch["end"])
        if not sound.all():
            batches.num_dropped += int((~sound).sum())
            batch = {name: values[sound] for name, values in batch.items()}
        num_all += len(batch["start"])
        parts.append(
            (
                batch["start"],
                batch["end"],
                narrow(batch["deviceId"]),
                narrow(batch["streamId"]),
                _process_of(batch["globalPid"]),
                batch["correlationId"],
                codes.encode([batch[c] for c in details], len(batch["start"])),
                batch["bytes"] if "bytes" in columns else batch["start"][:0],
            )
        )
    _note(quarantine, database, table, batches, num_all)
    start, end, device, stream, process, correlation, detail, num_bytes = _join(parts, 8)
    return GpuOps(
        kind=kind,
        start_ns=start,
        end_ns=end,
        device=device,
        stream=stream,
        process=process,
        correlation=correlation,
        detail=detail,
        shapes=codes.rows(),
        num_bytes=num_bytes if "bytes" in columns else None,
        has_process=database.has(table, "globalPid"),
    )


def load_api_calls(database: NsysDatabase, quarantine: Quarantine) -> ApiCalls:
    """Read the CUDA runtime and driver calls; an absent table gives none."""
    batches = ColumnBatches(
        database=database,
        table=API_TABLE,
        required=("start", "end", "globalTid"),
        optional=("correlationId", "nameId", "returnValue"),
    )
    parts: list[tuple[NDArray[np.generic], ...]] = []
    num_all = 0
    for batch in batches:
        sound = sound_times(batch["start"], batch["end"])
        if not sound.all():
            batches.num_dropped += int((~sound).sum())
            batch = {name: values[sound] for name, values in batch.items()}
        num_all += len(batch["start"])
        ids = (narrow(batch["nameId"]), narrow(batch["returnValue"]))
        parts.append(
            (batch["start"], batch["end"], batch["globalTid"], batch["correlationId"], *ids)
        )
    _note(quarantine, database, API_TABLE, batches, num_all)
    start, end, thread, correlation, name_id, result = _join(parts, 6)
    return ApiCalls(
        start_ns=start,
        end_ns=end,
        thread=thread,
        correlation=correlation,
        name_id=name_id,
        result=result,
    )


def _process_of(global_pid: Ints) -> Ints:
    return np.where(global_pid == MISSING, MISSING, global_pid >> TID_BITS)


def _note(
    quarantine: Quarantine, database: NsysDatabase, table: str, batches: ColumnBatches, kept: int
) -> None:
    quarantine.note(table, batches.num_dropped, kept + batches.num_dropped)
    lacking = missing_columns(database, table, batches.required)
    if lacking:
        quarantine.unreadable[table] = lacking


def _join(parts: list[tuple[NDArray[np.generic], ...]], num_columns: int) -> list[NDArray]:
    """Concatenate column by column, freeing each column's pieces as it goes."""
    if not parts:
        return [np.empty(0, np.int64) for _ in range(num_columns)]
    columns = [list(pieces) for pieces in zip(*parts, strict=True)]
    parts.clear()
    joined = []
    for pieces in columns:
        joined.append(np.concatenate(pieces))
        pieces.clear()
    return joined
