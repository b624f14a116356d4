"""Load GPU operations and host API calls of an nsys export as plain arrays.

Names stay ids, launch shapes become codes: 1.6 million kernels take 60 MB here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_arrays import GrowingArrays
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
    absent: dict[str, list[str]] = field(default_factory=dict)
    "table with rows -> columns that every known export has and this one lacks"

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
    correlation: NDArray[np.uint32]
    "0 where there is none."
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
    correlation: NDArray[np.uint32]
    "0 where there is none; empty once the calls are joined."
    kind: Codes
    "Index into the rows of `kinds`."
    kinds: Ints
    "Distinct (name's id in StringIds, result, globalTid); a result is OK, MISSING or an error."

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def thread_of_kind(self) -> Ints:
        """Return the globalTid of each kind."""
        return self.kinds[:, 2]

    def threads_of(self, calls: NDArray[np.integer]) -> Ints:
        """Return the globalTid of the chosen calls."""
        return self.thread_of_kind[self.kind[calls]]


def narrow(values: Ints) -> Codes:
    """Return int32; what does not fit, or is below MISSING, becomes MISSING."""
    fits = (values >= MISSING) & (values <= np.iinfo(np.int32).max)
    return np.where(fits, values, MISSING).astype(np.int32)


def sound_times(start_ns: Ints, end_ns: Ints) -> NDArray[np.bool_]:
    """Say which events can be: end not before start, both within 36 years of the origin."""
    bound = MAX_TIME_NS
    return (start_ns <= end_ns) & (start_ns > -bound) & (end_ns < bound)


_OP_TYPES = {
    "start": np.int64,
    "end": np.int64,
    "device": np.int32,
    "stream": np.int32,
    "process": np.int64,
    "correlation": np.uint32,
    "detail": np.int32,
}
_CALL_TYPES = {
    "start": np.int64,
    "end": np.int64,
    "correlation": np.uint32,
    "kind": np.int32,
}
OK, NOT_READY, OLD_NOT_READY, OTHER_ERROR = 0, 600, 34, 1
"""Results told apart: cudaErrorNotReady is a query's answer, whatever else is not 0 an error."""


def load_gpu_ops(database: NsysDatabase, kind: int, quarantine: Quarantine) -> GpuOps:
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
    has_bytes = "bytes" in columns
    types = _OP_TYPES | ({"bytes": np.int64} if has_bytes else {})
    found = GrowingArrays(types, expected=database.expected_rows(table))
    for batch in _sound_batches(batches):
        num_rows = len(batch["start"])
        found.append(
            {
                "start": batch["start"],
                "end": batch["end"],
                "device": narrow(batch["deviceId"]),
                "stream": narrow(batch["streamId"]),
                "process": _process_of(batch["globalPid"]),
                "correlation": _correlation(batch["correlationId"]),
                "detail": codes.encode([batch[c] for c in details], num_rows),
                "bytes": batch.get("bytes", batch["start"]),
            }
        )
    _note(quarantine, database, batches, len(found))
    return GpuOps(
        kind=kind,
        start_ns=found["start"],
        end_ns=found["end"],
        device=found["device"],
        stream=found["stream"],
        process=found["process"],
        correlation=found["correlation"],
        detail=found["detail"],
        shapes=codes.rows(),
        num_bytes=found["bytes"] if has_bytes else None,
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
    codes = ShapeCodes(num_fields=3)
    found = GrowingArrays(_CALL_TYPES, expected=database.expected_rows(API_TABLE))
    for batch in _sound_batches(batches):
        found.append(
            {
                "start": batch["start"],
                "end": batch["end"],
                "correlation": _correlation(batch["correlationId"]),
                "kind": codes.encode(
                    [batch["nameId"], _result(batch["returnValue"]), batch["globalTid"]],
                    len(batch["start"]),
                ),
            }
        )
    _note(quarantine, database, batches, len(found))
    return ApiCalls(
        start_ns=found["start"],
        end_ns=found["end"],
        correlation=found["correlation"],
        kind=found["kind"],
        kinds=codes.rows(),
    )


def _result(values: Ints) -> Ints:
    """Return the values with every error but "not ready" as OTHER_ERROR."""
    if not values.any():
        return values
    is_plain = np.isin(values, (OK, MISSING, NOT_READY, OLD_NOT_READY))
    return np.where(is_plain, values, OTHER_ERROR)


def _sound_batches(batches: ColumnBatches) -> Iterator[Mapping[str, Ints]]:
    """Give the batches without rows whose times cannot be, which are counted as dropped."""
    for batch in batches:
        sound = sound_times(batch["start"], batch["end"])
        if not sound.all():
            batches.num_dropped += int((~sound).sum())
            batch = {name: values[sound] for name, values in batch.items()}
        yield batch


def _correlation(values: Ints) -> Ints:
    """Return ids that fit CUPTI's 32 bits; 0, which is never given out, for others."""
    return np.where((values > 0) & (values < 1 << 32), values, 0)


def _process_of(global_pid: Ints) -> Ints:
    return np.where(global_pid == MISSING, MISSING, global_pid >> TID_BITS)


def _note(
    quarantine: Quarantine, database: NsysDatabase, batches: ColumnBatches, num_kept: int
) -> None:
    quarantine.note(batches.table, batches.num_dropped, num_kept + batches.num_dropped)
    lacking = missing_columns(database, batches.table, batches.required)
    if lacking:
        quarantine.unreadable[batches.table] = lacking
    absent = missing_columns(database, batches.table, batches.optional)
    if absent and num_kept:
        quarantine.absent[batches.table] = absent
