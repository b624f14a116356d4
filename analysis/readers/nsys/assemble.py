"""Put the tables of an export together as one trace: processes, threads, launches, order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys.backtraces import FoundBacktraces, frame_name
from analysis.readers.nsys.columns import MISSING, Codes, DroppedRows, Ints
from analysis.readers.nsys.facts import Facts
from analysis.readers.nsys.nccl import NcclCall, nccl_collectives
from analysis.readers.nsys.operations import (
    TID_BITS,
    UNKNOWN_CALL,
    Calls,
    Operations,
    labels_of,
    physical_device,
)
from analysis.readers.nsys.ranges import NvtxRanges
from analysis.trace.calls import join_launches
from analysis.trace.model import (
    Allocations,
    Backtraces,
    GpuOps,
    HostCalls,
    HostRanges,
    OpKind,
    Process,
    Sources,
    Thread,
    Trace,
    make_columns,
)
from analysis.trace.ranges import nested
from captures.nsys_structure import DAMAGED
from core.errors import CaptureError
from core.trace_rules import api_name

MAX_SUM_NS = float(1 << 62)
PID_MASK = (1 << TID_BITS) - 1


@dataclass(slots=True, kw_only=True)
class ExportTables:
    """Everything read from the file, as it is there."""

    facts: Facts
    notes: DroppedRows
    operations: tuple[Operations, ...]
    calls: Calls
    ranges: NvtxRanges
    allocations: Allocations
    backtraces: FoundBacktraces
    nccl_calls: tuple[NcclCall, ...]
    names: dict[int, str]


def assemble(path: Path, tables: ExportTables) -> tuple[Trace, int]:
    """Return the trace, and how many calls repeat a correlation id of their process."""
    names: dict[str, int] = {}
    owners = _Owners(tables)
    calls, stack_ids = _host_calls(tables, names, owners)
    ops, num_repeats = _gpu_ops(tables, owners, calls)
    if float(np.sum(ops.end_ns - ops.start_ns, dtype=np.float64)) > MAX_SUM_NS:
        where = "durations of GPU operations add up to over 146 years"
        raise CaptureError(path, where, DAMAGED)
    ranges = _host_ranges(tables.ranges, names, owners)
    backtraces = _backtraces(tables, names, owners, stack_ids)
    thread_row = {thread: row for row, thread in enumerate(owners.threads.tolist())}
    collectives = nccl_collectives(tables.nccl_calls, ranges, thread_row, names)
    trace = Trace(
        gpu_ops=ops,
        host_calls=calls,
        host_ranges=ranges,
        allocations=tables.allocations,
        labels=tuple(x for part in tables.operations for x in labels_of(part, tables.names)),
        names=tuple(names),
        sources=_sources(tables, owners),
        backtraces=backtraces,
        collectives=collectives,
    )
    return trace, num_repeats


class _Owners:
    """The processes and threads of an export, in ascending order."""

    def __init__(self, tables: ExportTables) -> None:
        self.threads = np.unique(np.concatenate([tables.calls.kinds[:, 2], tables.ranges.thread]))
        owners = [self.threads >> TID_BITS, *(part.processes for part in tables.operations)]
        processes = np.unique(np.concatenate(owners))
        self.processes: Ints = processes[processes != MISSING]
        self.process_of_thread = self.process_rows(self.threads >> TID_BITS)

    def thread_rows(self, global_tid: Ints) -> Codes:
        """Return the row of each thread."""
        return np.searchsorted(self.threads, global_tid).astype(np.int32)

    def process_rows(self, process: Ints) -> Codes:
        """Return the row of each process (globalPid >> 24), MISSING where it is unknown."""
        rows = np.searchsorted(self.processes, process).astype(np.int32)
        return np.where(process == MISSING, np.int32(MISSING), rows)


def _sources(tables: ExportTables, owners: _Owners) -> Sources:
    ranges = tables.ranges
    engine = np.array([n.name.startswith("autograd::engine::") for n in ranges.names], bool)
    in_engine = set(ranges.thread[engine[ranges.name]].tolist()) if engine.any() else set()
    threads = zip(owners.process_of_thread.tolist(), owners.threads.tolist(), strict=True)
    return Sources(
        processes=tuple(Process(pid=p & PID_MASK) for p in owners.processes.tolist()),
        threads=tuple(
            Thread(process=row, tid=tid & PID_MASK, is_autograd=tid in in_engine)
            for row, tid in threads
        ),
        devices=tables.facts.devices,
        utc_origin_ns=tables.facts.environment.get("session_start_utc_ns"),
        session_end_ns=tables.facts.session_end_ns,
    )


def _host_calls(
    tables: ExportTables, names: dict[str, int], owners: _Owners
) -> tuple[HostCalls, Ints | None]:
    """Return the calls, and the id of each one's stack where stacks were recorded."""
    calls = tables.calls
    known = (tables.names.get(i, UNKNOWN_CALL.format(i)) for i in calls.kinds[:, 0].tolist())
    name_of = np.array([names.setdefault(api_name(n), len(names)) for n in known], np.int32)
    thread_of = owners.thread_rows(calls.kinds[:, 2])
    is_failed = calls.are_failed(tables.names)
    start_ns = calls.columns.take("start")
    order = _order(start_ns)
    kind = calls.columns.take("kind")[order]
    stack_ids = calls.columns.take("stack")[order] if calls.columns.has("stack") else None
    columns = HostCalls(
        start_ns=start_ns[order],
        end_ns=calls.columns.take("end")[order],
        name=name_of[kind],
        thread=thread_of[kind],
        correlation=_ids(calls.columns.take("correlation")[order]),
        is_failed=is_failed[kind],
    )
    return columns, stack_ids


def _backtraces(
    tables: ExportTables, names: dict[str, int], owners: _Owners, stack_ids: Ints | None
) -> Backtraces | None:
    samples = tables.backtraces
    if not len(samples.symbol):
        return None
    texts = [frame_name(symbol, tables.names) for symbol in samples.symbol.tolist()]
    of_call = np.full(tables.calls.columns.num_rows + 1, MISSING, np.int64)
    if stack_ids is not None and len(samples.chain_ids):
        place = np.minimum(
            np.searchsorted(samples.chain_ids, stack_ids), len(samples.chain_ids) - 1
        )
        known = samples.chain_ids[place] == stack_ids
        of_call[:-1] = np.where(known, samples.chain_frames[place], MISSING)
    is_ours = np.isin(samples.sample_thread, owners.threads)
    return Backtraces(
        parent=samples.parent,
        name=np.array([names.setdefault(t, len(names)) for t in texts], np.int64),
        of_call=of_call,
        sample_ns=samples.sample_ns[is_ours],
        sample_thread=owners.thread_rows(samples.sample_thread[is_ours]),
        sample_frame=samples.sample_frame[is_ours],
    )


def _ids(correlation: NDArray[Any]) -> Ints:
    """Return correlation ids as the model has them: MISSING where there is none."""
    ids = correlation.astype(np.int64)
    ids[ids == 0] = MISSING
    return ids


def _order(start_ns: NDArray[Any]) -> NDArray[np.intp] | slice:
    """Return the order of start, which most tables are in already."""
    if (start_ns[1:] < start_ns[:-1]).any():
        return np.argsort(start_ns, kind="stable")
    return slice(None)


def _gpu_ops(tables: ExportTables, owners: _Owners, calls: HostCalls) -> tuple[GpuOps, int]:
    """Return the operations of all kinds with their launches; a graph counts once."""
    parts = tables.operations
    owner_codes = [part.columns.take("process") for part in parts]
    start_ns = np.concatenate([part.columns.take("start") for part in parts])
    order = _order(start_ns)

    def column(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(values)[order]

    def taken(name: str) -> NDArray[Any]:
        return column([part.columns.take(name) for part in parts])

    process = column(
        [_process(p, codes, owners) for p, codes in zip(parts, owner_codes, strict=True)]
    )
    correlation = _ids(taken("correlation"))
    call_process = np.append(owners.process_of_thread, np.int32(MISSING))[calls.thread]
    launch, num_repeats = join_launches(process, correlation, start_ns[order], call_process, calls)
    ops = GpuOps(
        start_ns=start_ns[order],
        end_ns=taken("end"),
        kind=column([np.full(p.columns.num_rows, p.kind, np.int8) for p in parts]),
        label=column(_labels(parts)),
        device=column(
            [_device(tables, p, codes) for p, codes in zip(parts, owner_codes, strict=True)]
        ),
        stream=taken("stream"),
        process=process,
        launch=launch,
        num_bytes=column([_optional(p, "bytes") for p in parts]),
        graph_node=column([_optional(p, "node") for p in parts]),
    )
    is_twice = _is_recorded_by_node(ops, correlation)
    return (ops.take(~is_twice) if is_twice.any() else ops), num_repeats


def _optional(part: Operations, name: str) -> Ints:
    if part.columns.has(name):
        return part.columns.take(name)
    return np.broadcast_to(np.int64(MISSING), part.columns.num_rows)


def _process(part: Operations, codes: Codes, owners: _Owners) -> Codes:
    if not part.has_process:
        # Exports without the column hold one process at a time; with several it is unknown.
        only = 0 if len(owners.processes) == 1 else MISSING
        return np.full(len(codes), only, np.int32)
    return owners.process_rows(part.processes)[codes]


def _device(tables: ExportTables, part: Operations, codes: Codes) -> Codes:
    device = part.columns.take("device")
    if not tables.facts.device_of:
        return device
    return physical_device(device, part.processes[codes], tables.facts.device_of)


def _labels(parts: Sequence[Operations]) -> list[Codes]:
    """Return the rows of `Trace.labels`, in which the kinds follow one another."""
    firsts = np.cumsum([0, *(len(part.details) for part in parts)])
    return [
        part.columns.take("label") + np.int32(first)
        for part, first in zip(parts, firsts[:-1], strict=True)
    ]


def _is_recorded_by_node(ops: GpuOps, correlation: Ints) -> NDArray[np.bool_]:
    """Say which graph launches have their kernels recorded one by one: their time counts once."""
    is_graph = ops.kind == OpKind.GRAPH
    if not is_graph.any():
        return np.asarray(is_graph)
    # globalPid >> 24 and ids of 32 bits fit together.
    keys = (ops.process.astype(np.int64) << 32) | correlation
    launched = keys[(ops.kind == OpKind.KERNEL) & (correlation > 0)]
    return np.asarray(is_graph & (correlation > 0) & np.isin(keys, launched))


def _host_ranges(ranges: NvtxRanges, names: dict[str, int], owners: _Owners) -> HostRanges:
    def code(text: str | None) -> int:
        return MISSING if text is None else names.setdefault(text, len(names))

    distinct = ranges.names
    columns: dict[str, NDArray[Any]] = {
        "name": np.array([code(n.name) for n in distinct], np.int32),
        "detail": np.array([code(n.detail) for n in distinct], np.int32),
        "kind": np.array([n.kind for n in distinct], np.int8),
        "sequence": np.array([n.sequence for n in distinct], np.int64),
    }
    return nested(
        make_columns(
            HostRanges,
            len(ranges.start_ns),
            start_ns=ranges.start_ns,
            end_ns=ranges.end_ns,
            thread=owners.thread_rows(ranges.thread),
            **{name: values[ranges.name] for name, values in columns.items()},
        )
    )
