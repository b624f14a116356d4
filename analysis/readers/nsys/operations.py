"""GPU operations, host calls and allocations of an export, as columns of the event model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys.columns import (
    MAX_TIME_NS,
    MISSING,
    Accumulated,
    ColumnBatches,
    DroppedRows,
    Ints,
    LaunchConfigEncoder,
    correlation_ids,
    to_int32,
)
from analysis.trace.labels import GRAPH_NAME
from analysis.trace.model import Allocations, OpKind, OpLabel, make_columns
from captures.nsys_database import NsysDatabase

TID_BITS = 24
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
TABLES = {
    OpKind.KERNEL: KERNELS,
    OpKind.MEMCPY: "CUPTI_ACTIVITY_KIND_MEMCPY",
    OpKind.MEMSET: "CUPTI_ACTIVITY_KIND_MEMSET",
    OpKind.GRAPH: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
BACKTRACE_EVENT = 67
"""Class of a `CUDA backtrace` event (`ENUM_NSYS_EVENT_CLASS`)."""
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid")
_DETAILS = {
    OpKind.KERNEL: (
        "demangledName",
        "shortName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
    ),
    OpKind.MEMCPY: ("copyKind", "srcKind", "dstKind"),
    OpKind.MEMSET: ("memKind",),
    OpKind.GRAPH: (),
}
"""What tells operations of one kind apart."""
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
    7: "DtoD",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "unified HtoD",
    12: "unified DtoH",
    13: "unified DtoD",
}
"""CUPTI's copyKind; arrays (3 to 7) live on the device."""
MEMORY_KINDS = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "device",
    4: "managed",
    5: "device",
    6: "managed",
}
OK, NOT_READY, OLD_NOT_READY, OTHER_ERROR = 0, 600, 34, 1
"""Results told apart: cudaErrorNotReady is a query's answer, whatever else is not 0 an error."""
UNKNOWN_KERNEL = "unknown kernel (name id {})"
UNKNOWN_CALL = "unknown call (name id {})"
"""Placeholder for a name that the file does not contain."""
ALLOCATION, RELEASE = 0, 1
MODEL_MEMORY = {2: 0, 1: 1, 0: 2, 4: 3, 5: 4}
"""nsys' memKind -> the model's kind of memory."""
MAX_BYTES = 1 << 50


@dataclass(slots=True, kw_only=True)
class Operations:
    """Operations of one kind in the order of the file."""

    kind: OpKind
    columns: Accumulated
    "start, end, device, stream, process (row of `processes`), correlation, label, bytes, node."
    details: list[tuple[int, ...]]
    "Distinct rows of the kind's detail fields; `label` numbers them."
    processes: Ints
    "Distinct globalPid >> 24; MISSING for a row without."
    has_process: bool


def load_operations(
    database: NsysDatabase, kind: OpKind, notes: DroppedRows, *, with_nodes: bool
) -> Operations:
    """Read all operations of a kind; an absent table gives none."""
    details = _DETAILS[kind]
    sizes = ("bytes",) if kind in (OpKind.MEMCPY, OpKind.MEMSET) else ()
    nodes = ("graphNodeId",) if kind is OpKind.KERNEL and with_nodes else ()
    rest = {**dict.fromkeys(sizes, "bytes"), **dict.fromkeys(nodes, "node")}
    batches = ColumnBatches(
        database=database,
        table=TABLES[kind],
        required=("start", "end"),
        optional=(*_PLACE, *details, *sizes),
        extra=nodes,
    )
    columns = Accumulated(
        batches.num_expected(),
        start=np.int64,
        end=np.int64,
        device=np.int32,
        stream=np.int32,
        process=np.int32,
        correlation=np.uint32,
        label=np.int32,
        **dict.fromkeys(rest.values(), np.int64),
    )
    encoder, processes = LaunchConfigEncoder(), LaunchConfigEncoder()
    for batch in batches.sound():
        num_rows = len(batch["start"])
        label = encoder.encode([batch[c] for c in details]) if details else np.zeros(num_rows)
        columns.append(
            start=batch["start"],
            end=batch["end"],
            device=to_int32(batch["deviceId"]),
            stream=to_int32(batch["streamId"]),
            process=processes.encode([_process_of(batch["globalPid"])]),
            correlation=correlation_ids(batch["correlationId"]),
            label=label,
            **{ours: batch[theirs] for theirs, ours in rest.items()},
        )
    batches.note_in(notes)
    return Operations(
        kind=kind,
        columns=columns,
        details=list(encoder.codes) if details else [()],
        processes=np.array([p for (p,) in processes.codes], np.int64),
        has_process=database.has(batches.table, "globalPid"),
    )


def _process_of(global_pid: Ints) -> Ints:
    return np.where(global_pid == MISSING, MISSING, global_pid >> TID_BITS)


def labels_of(ops: Operations, names: Mapping[int, str]) -> list[OpLabel]:
    """Return the label of each distinct row of details."""
    if ops.kind is OpKind.KERNEL:
        return [_kernel_label(row, names) for row in ops.details]
    if ops.kind is OpKind.GRAPH:
        return [OpLabel(name=GRAPH_NAME, short_name=GRAPH_NAME)]
    if ops.kind is OpKind.MEMSET:
        return [OpLabel(name="memset", dst=MEMORY_KINDS.get(dst)) for (dst,) in ops.details]
    return [
        OpLabel(
            name=COPY_KINDS.get(kind, "unknown"),
            src=MEMORY_KINDS.get(src),
            dst=MEMORY_KINDS.get(dst),
        )
        for kind, src, dst in ops.details
    ]


def _kernel_label(row: tuple[int, ...], names: Mapping[int, str]) -> OpLabel:
    name_id, short_id, *shape = row
    unknown = UNKNOWN_KERNEL.format(max(name_id, short_id))
    name = names.get(name_id) or names.get(short_id) or unknown
    registers, static, dynamic = shape[6:]
    return OpLabel(
        name=name,
        short_name=names.get(short_id) or name,
        grid=_dims(shape[:3]),
        block=_dims(shape[3:6]),
        registers=registers if registers >= 0 else None,
        shared_bytes=static + dynamic if min(static, dynamic) >= 0 else None,
    )


def _dims(values: Sequence[int]) -> tuple[int, int, int] | None:
    x, y, z = values
    return None if min(values) < 0 else (x, y, z)


@dataclass(slots=True, kw_only=True)
class Calls:
    """CUDA calls of the host in the order of the file."""

    columns: Accumulated
    "start, end, correlation, kind (row of `kinds`), stack (an id) where stacks were recorded."
    kinds: Ints
    "Distinct (name's id in StringIds, result, globalTid); a result is OK, MISSING or an error."

    def are_failed(self, names: Mapping[int, str]) -> NDArray[np.bool_]:
        """Say by kind which calls returned an error; "not ready" from a query is an answer."""
        name_id, result = self.kinds[:, 0], self.kinds[:, 1]
        is_query = np.array(["Query" in names.get(i, "") for i in name_id.tolist()], bool)
        is_answer = is_query & np.isin(result, (NOT_READY, OLD_NOT_READY))
        return np.asarray((result != OK) & (result != MISSING) & ~is_answer)


def load_calls(database: NsysDatabase, notes: DroppedRows, *, with_stacks: bool) -> Calls:
    """Read the CUDA runtime and driver calls; an absent table gives none."""
    batches = ColumnBatches(
        database=database,
        table=CALLS,
        required=("start", "end", "globalTid"),
        optional=("correlationId", "nameId", "returnValue"),
        extra=("callchainId", "eventClass") if with_stacks else (),
    )
    stacks = {"stack": np.int64, "event_class": np.int64} if with_stacks else {}
    columns = Accumulated(
        batches.num_expected(),
        start=np.int64,
        end=np.int64,
        correlation=np.uint32,
        kind=np.int32,
        **stacks,
    )
    encoder = LaunchConfigEncoder()
    for batch in batches.sound():
        kind = encoder.encode([batch["nameId"], _result(batch["returnValue"]), batch["globalTid"]])
        ids = correlation_ids(batch["correlationId"])
        stack = {}
        if with_stacks:
            stack = {"stack": batch["callchainId"], "event_class": batch["eventClass"]}
        columns.append(start=batch["start"], end=batch["end"], correlation=ids, kind=kind, **stack)
    batches.note_in(notes)
    kinds = np.array(list(encoder.codes), np.int64).reshape(-1, 3)
    if with_stacks:
        _join_backtraces(columns, kinds[:, 2])
    return Calls(columns=columns, kinds=kinds)


def _join_backtraces(calls: Accumulated, thread_of_kind: Ints) -> None:
    """Give the stack of each `CUDA backtrace` event to the call that it repeats, and drop it.

    nsys 2025 writes a call whose stack it took twice: as every call, and as an event of that class,
    with the stack, around it. An event without its call stays and stands for it.
    """
    is_event = calls.take("event_class") == BACKTRACE_EVENT
    events, others = np.flatnonzero(is_event), np.flatnonzero(~is_event)
    if not len(events) or not len(others):
        return
    _, threads = np.unique(thread_of_kind, return_inverse=True)
    key = threads[calls.view("kind")].astype(np.int64) << 32 | calls.view("correlation")
    others = others[np.argsort(key[others], kind="stable")]
    place = np.minimum(np.searchsorted(key[others], key[events]), len(others) - 1)
    call = others[place]
    is_repeated = (key[call] == key[events]) & (calls.view("correlation")[events] != 0)
    stack = calls.view("stack")
    stack[call[is_repeated]] = stack[events[is_repeated]]
    keep = np.ones(len(key), bool)
    keep[events[is_repeated]] = False
    calls.keep(keep)


def _result(values: Ints) -> Ints:
    """Return the values with every error but "not ready" as OTHER_ERROR."""
    if not values.any():
        return values
    is_plain = np.isin(values, (OK, MISSING, NOT_READY, OLD_NOT_READY))
    return np.where(is_plain, values, OTHER_ERROR)


def load_allocations(
    database: NsysDatabase, device_of: Mapping[tuple[int, int], int], notes: DroppedRows
) -> Allocations:
    """Read the driver's allocations and releases (`--cuda-memory-usage`), in order of time."""
    batches = ColumnBatches(
        database=database,
        table=MEMORY,
        required=("start", "deviceId", "bytes", "memKind", "memoryOperationType"),
        optional=("globalPid", "address"),
    )
    columns = Accumulated(
        batches.num_expected(),
        time=np.int64,
        size=np.int64,
        address=np.uint64,
        device=np.int32,
        memory=np.int8,
    )
    for batch in batches:
        size, operation = batch["bytes"], batch["memoryOperationType"]
        is_sound = (size >= 0) & (size < MAX_BYTES) & (np.abs(batch["start"]) < MAX_TIME_NS)
        is_sound &= (operation == ALLOCATION) | (operation == RELEASE)
        if not is_sound.all():
            batch = batches.without(batch, ~is_sound)
        owner = _process_of(batch["globalPid"])
        is_release = batch["memoryOperationType"] == RELEASE
        columns.append(
            time=batch["start"],
            size=np.where(is_release, -batch["bytes"], batch["bytes"]),
            address=batch["address"].view(np.uint64),
            device=physical_device(to_int32(batch["deviceId"]), owner, device_of),
            memory=_model_memory(batch["memKind"]),
        )
    batches.note_in(notes)
    return _in_order(columns)


def _model_memory(kind: Ints) -> NDArray[np.int8]:
    table = np.full(max(MODEL_MEMORY) + 2, MISSING, np.int8)
    table[list(MODEL_MEMORY)] = list(MODEL_MEMORY.values())
    return table[np.where((kind >= 0) & (kind <= max(MODEL_MEMORY)), kind, -1)]


def _in_order(columns: Accumulated) -> Allocations:
    time = columns.take("time")
    order: Any = slice(None)
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
    return make_columns(
        Allocations,
        len(time),
        time_ns=time[order],
        num_bytes=columns.take("size")[order],
        address=columns.take("address")[order],
        device=columns.take("device")[order],
        memory=columns.take("memory")[order],
    )


def physical_device(
    device: NDArray[np.int32], owner: Ints, device_of: Mapping[tuple[int, int], int]
) -> NDArray[np.int32]:
    """Return the GPU where processes number their devices apart; `owner` is globalPid >> 24."""
    if not device_of:
        return device
    pid = owner & ((1 << TID_BITS) - 1)
    physical = device.copy()
    for (process, ordinal), gpu in device_of.items():
        physical[(pid == process) & (device == ordinal)] = gpu
    return physical
