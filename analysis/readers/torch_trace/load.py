"""Turn a PyTorch profiler trace (Kineto's Chrome JSON, plain or gzip) into the event tables."""

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.readers.torch_trace.columns import (
    ANNOTATION,
    FUNCTION,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATOR,
    Column,
    EventColumns,
)
from analysis.readers.torch_trace.header import base_ns, gpu_facts, rank_of, world_size_of
from analysis.readers.torch_trace.quarantine import ROUNDING_NS, impossible
from analysis.readers.torch_trace.ranks import Places, places_of
from analysis.readers.torch_trace.rocprof import from_rocprof
from analysis.readers.torch_trace.stream import TraceStream
from analysis.trace.model import (
    MISSING,
    Allocations,
    Bools,
    Collectives,
    GpuOps,
    HostCalls,
    HostRanges,
    Int64s,
    OpKind,
    OpLabel,
    RangeKind,
    Sources,
    Thread,
    Trace,
    empty_columns,
    make_columns,
)
from analysis.trace.nesting import depths, nesting_order, parents
from captures.opening import clean_text, open_capture, reading
from core.errors import CaptureError
from core.trace_rules import api_name

_GPU = ("start", "dur", "name", "correlation", "stream", "num_bytes", "shape", "graph_node")
_CALL = ("start", "dur", "thread", "name", "correlation")
_RANGE = ("start", "dur", "thread", "name", "kind", "sequence", "detail")
_MEMORY = (
    *("start", "num_bytes", "address", "device", "device_type", "thread"),
    *("allocated_bytes", "reserved_bytes"),
)
_OP_KINDS = {KERNEL: OpKind.KERNEL, MEMCPY: OpKind.MEMCPY, MEMSET: OpKind.MEMSET}
_RANGE_KINDS = {
    OPERATOR: RangeKind.OPERATOR,
    ANNOTATION: RangeKind.ANNOTATION,
    FUNCTION: RangeKind.PYTHON,
}
_STEP = "ProfilerStep#"
"""Steps were operators until 2021; they are ranges."""
_LIBRARY = re.compile(r"(?:nccl|rccl|xccl|ucc|gloo|mpi):")
"""What torch.distributed opens around a collective."""
_ENGINE = "autograd::engine"
_COPY = re.compile(r"(HtoD|DtoH|DtoD|PtoP|HtoH)(?: \((\w+) -> (\w+)\))?")
_OTHER_COPY = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)|\b([HMD])2([HMD])\b")
"""AMD's and Intel's names; Intel calls the host's memory M."""
_SIDES = {"Host": "H", "Device": "D", "Peer": "P", "M": "H"}
_EPOCH_NS = range(1_400_000_000 * 10**9, 4_000_000_000 * 10**9)
_CPU, _DEVICE_MEMORY, _HOST_MEMORY = 0, 0, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTrace:
    """The event tables of a file, and what was left out of them."""

    trace: Trace
    header: Mapping[str, Any]
    num_repaired: int
    num_zero_bytes: int
    num_bad_host: int
    num_impossible: int
    "GPU operations whose times cannot be."
    num_colliding: int
    num_not_events: int
    odd_kinds: Mapping[str, int]


def load_trace(path: Path) -> LoadedTrace:
    """Return the event tables; CaptureError with the byte where the JSON is cut off or damaged."""
    events = EventColumns()
    with reading(path), open_capture(path) as raw, _without_collector():
        stream = TraceStream(raw, path, on_slide=events.release)
        events.add_all(from_rocprof(stream.events()))
    if "traceEvents" not in stream.header and not events.num_events:
        raise CaptureError(path, "the JSON has no `traceEvents`", "Import a PyTorch trace")
    trace, num_impossible, num_colliding = _Assembly(events, stream.header).trace()
    _check_is_pytorch(events, trace, path)
    return LoadedTrace(
        trace=trace,
        header=stream.header,
        num_repaired=stream.num_repaired,
        num_zero_bytes=stream.num_zero_bytes,
        num_bad_host=events.num_bad_host,
        num_impossible=num_impossible,
        num_colliding=num_colliding,
        num_not_events=events.num_not_events,
        odd_kinds=events.odd_kinds,
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the search for cycles: parsed JSON has none, and it took a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check_is_pytorch(events: EventColumns, trace: Trace, path: Path) -> None:
    """JAX, Chrome and perf write the same JSON: their spans have no category that we know."""
    num_spans = len(trace.gpu_ops) + len(trace.host_calls) + len(trace.host_ranges)
    nameless = events.odd_kinds.get("category None", 0)
    if nameless and nameless == sum(events.odd_kinds.values()) and not num_spans:
        text = f"none of its {nameless} events has a category: not a trace of PyTorch's profiler"
        raise CaptureError(path, text, "Import a trace that torch.profiler exported")


class _Assembly:
    """Joins, checks and orders the columns of one trace."""

    def __init__(self, events: EventColumns, header: Mapping[str, Any]) -> None:
        self._events = events
        self._header = header
        self._gpu = events.table("gpu", _GPU)
        self._calls = events.table("call", _CALL)
        self._ranges = events.table("range", _RANGE)
        self._window = _window(events.table("window", ("start", "dur")))
        self._names = [_text(name) for name in events.names.values]
        has_detail = self._ranges["detail"] >= 0
        self._ranges["detail"] = self._ranges["detail"] + len(self._names) * has_detail
        self._names += events.input_shapes()

    def trace(self) -> tuple[Trace, int, int]:
        """Return the tables, and how many operations were impossible and how many ids collide."""
        places = places_of(
            self._events, self._gpu, self._calls, self._ranges, rank_of(self._header)
        )
        is_bad = self._impossible(places)
        calls, call_rows = self._host_calls(places)
        gpu_ops, gpu_rows = self._gpu_ops(places, ~is_bad, call_rows)
        ranges, range_rows = self._host_ranges(places)
        trace = Trace(
            gpu_ops=gpu_ops,
            host_calls=calls,
            host_ranges=ranges,
            allocations=self._allocations(places),
            labels=self._labels(),
            names=tuple(self._names),
            sources=self._sources(places),
            collectives=self._collectives(gpu_rows, range_rows),
        )
        num_bad = int(is_bad.sum()) + self._events.num_bad_gpu
        return trace, num_bad, places.num_colliding

    def _impossible(self, places: Places) -> Bools:
        queue = places.device.astype(np.int64) << 32 | places.stream
        is_operator = self._ranges["kind"] == OPERATOR
        host_starts = (self._calls["start"], self._ranges["start"][is_operator])
        return impossible(self._gpu, queue, self._window, host_starts)

    def _gpu_ops(self, places: Places, keep: Bools, call_rows: Int64s) -> tuple[GpuOps, Int64s]:
        """Return the table and where each row of the columns went."""
        start = self._gpu["start"]
        shapes = self._events.shapes.values
        kind = np.array([_OP_KINDS[shape[0]] for shape in shapes], np.int8)[self._gpu["shape"]]
        kept = np.flatnonzero(keep)
        order = kept[np.lexsort((kind[kept], start[kept]))]
        table = make_columns(
            GpuOps,
            len(order),
            start_ns=start[order],
            end_ns=(start + np.where(keep, self._gpu["dur"], 0))[order],
            kind=kind[order],
            label=self._gpu["shape"][order],
            device=places.device[order],
            stream=places.stream[order],
            process=places.process[order],
            launch=np.append(call_rows, MISSING)[places.launch[order]],
            num_bytes=self._gpu["num_bytes"][order],
            graph_node=self._gpu["graph_node"][order],
        )
        return table, _places_in(order, len(start))

    def _labels(self) -> tuple[OpLabel, ...]:
        return tuple(_label(self._names[name], kind, rest) for kind, name, *rest in
                     self._events.shapes.values)  # fmt: skip

    def _host_calls(self, places: Places) -> tuple[HostCalls, Int64s]:
        calls = self._calls
        code = {name: i for i, name in reversed(list(enumerate(self._names)))}
        plain = np.arange(len(self._names), dtype=np.int32)
        for used in np.unique(calls["name"]).tolist():
            name = api_name(self._names[used])
            if name not in code:
                code[name] = len(self._names)
                self._names.append(name)
            plain[used] = code[name]
        order = np.argsort(calls["start"], kind="stable")
        table = make_columns(
            HostCalls,
            len(order),
            start_ns=calls["start"][order],
            end_ns=(calls["start"] + calls["dur"])[order],
            name=plain[calls["name"]][order],
            thread=places.thread[calls["thread"]][order],
            correlation=np.where(calls["correlation"] > 0, calls["correlation"], MISSING)[order],
        )
        return table, _places_in(order, len(order))

    def _host_ranges(self, places: Places) -> tuple[HostRanges, Int64s]:
        ranges = self._ranges
        start, end = ranges["start"], ranges["start"] + ranges["dur"]
        thread = places.thread[ranges["thread"]]
        order = nesting_order(start, end, thread)
        start, end, thread = start[order], end[order], thread[order]
        is_rounded = len(order) and not (start % 1000).any() and not (end % 1000).any()
        parent = parents(end, thread, start_ns=start, rounding_ns=ROUNDING_NS if is_rounded else 0)
        table = make_columns(
            HostRanges,
            len(order),
            start_ns=start,
            end_ns=end,
            thread=thread,
            name=ranges["name"][order],
            kind=self._range_kinds()[order],
            parent=parent,
            depth=depths(parent),
            sequence=ranges["sequence"][order],
            detail=ranges["detail"][order],
        )
        return table, _places_in(order, len(order))

    def _range_kinds(self) -> Column:
        """Return the kind of each range; profiler steps and collectives are recognised by name."""
        kinds = np.array([_RANGE_KINDS.get(k, MISSING) for k in range(FUNCTION + 1)], np.int8)
        kind = kinds[self._ranges["kind"].astype(np.int64)]
        steps = [i for i, name in enumerate(self._names) if name.startswith(_STEP)]
        kind[np.isin(self._ranges["name"], steps)] = RangeKind.ANNOTATION
        libraries = [i for i, name in enumerate(self._names) if _LIBRARY.match(name)]
        is_library = np.isin(self._ranges["name"], libraries) & (kind == RangeKind.ANNOTATION)
        kind[is_library] = RangeKind.LIBRARY
        return kind

    def _allocations(self, places: Places) -> Allocations:
        events = self._events.table("memory", _MEMORY)
        if not len(events["start"]):
            return empty_columns(Allocations)
        order = np.argsort(events["start"], kind="stable")
        is_host = events["device_type"] == _CPU
        owner = np.array([t.process for t in places.threads], np.int32)
        process = owner[places.thread[events["thread"]]]
        pairs = zip(process.tolist(), events["device"].tolist(), strict=True)
        device = np.array([places.device_of.get(pair, pair[1]) for pair in pairs], np.int32)
        return make_columns(
            Allocations,
            len(order),
            time_ns=events["start"][order],
            num_bytes=events["num_bytes"][order],
            address=events["address"].astype(np.uint64)[order],
            device=np.where(is_host, MISSING, device)[order],
            process=process[order],
            memory=np.where(is_host, _HOST_MEMORY, _DEVICE_MEMORY)[order],
            allocated_bytes=events["allocated_bytes"][order],
            reserved_bytes=events["reserved_bytes"][order],
        )

    def _sources(self, places: Places) -> Sources:
        devices = {
            device: gpu_facts(self._header, recorded)
            for device, recorded in sorted(places.recorded_devices.items())
        }
        starts = [t["start"] for t in (self._gpu, self._calls, self._ranges) if len(t["start"])]
        first = min((int(s.min()) for s in starts), default=0)
        return Sources(
            processes=places.processes,
            threads=self._mark_autograd(places),
            devices=devices,
            world_size=world_size_of(self._header),
            utc_origin_ns=base_ns(self._header) or (0 if first in _EPOCH_NS else None),
            session_start_ns=self._window[0] if self._window else 0,
            session_end_ns=self._window[1] if self._window else None,
        )

    def _mark_autograd(self, places: Places) -> tuple[Thread, ...]:
        engine = [i for i, name in enumerate(self._names) if name.startswith(_ENGINE)]
        has_engine = np.isin(self._ranges["name"], engine)
        engines = set(places.thread[self._ranges["thread"][has_engine]].tolist())
        return tuple(
            Thread(process=t.process, tid=t.tid, name=t.name, is_autograd=row in engines)
            for row, t in enumerate(places.threads)
        )

    def _collectives(self, gpu_rows: Int64s, range_rows: Int64s) -> Collectives:
        names = [n for n in Collectives.__dataclass_fields__ if n not in ("op", "host_range")]
        tables = [
            self._events.table(name, ("row", *names))
            for name in ("gpu_collectives", "range_collectives")
        ]
        of_gpu, of_host = len(tables[0]["row"]), len(tables[1]["row"])
        op = np.append(gpu_rows[tables[0]["row"]], np.full(of_host, MISSING))
        host_range = np.append(np.full(of_gpu, MISSING), range_rows[tables[1]["row"]])
        table = make_columns(
            Collectives,
            of_gpu + of_host,
            op=op,
            host_range=host_range,
            **{n: np.concatenate([t[n] for t in tables]) for n in names},
        )
        return table.take((op >= 0) | (host_range >= 0))


def _text(name: Any) -> str:
    """Return a name as text; "?" where an event has none."""
    return "?" if name is None else clean_text(str(name))


def _places_in(order: Column, num_rows: int) -> Int64s:
    """Return where each row went; MISSING for those left out."""
    place = np.full(num_rows, MISSING, np.int64)
    place[order] = np.arange(len(order))
    return place


def _window(spans: dict[str, Column]) -> tuple[int, int] | None:
    """Return the time from the first to the last recorded one."""
    if not len(spans["start"]):
        return None
    return int(spans["start"].min()), int((spans["start"] + spans["dur"]).max())


def _label(name: str, kind: int, rest: list[Any]) -> OpLabel:
    if kind == KERNEL:
        grid, block, registers, shared = rest
        return OpLabel(
            name=name,
            grid=grid,
            block=block,
            registers=registers if registers >= 0 else None,
            shared_bytes=shared if shared >= 0 else None,
        )
    if kind == MEMSET:
        return OpLabel(name="memset")
    copy = _COPY.search(name)
    if copy:
        src, dst = ((side or "").lower() or None for side in copy.groups()[1:])
        return OpLabel(name=copy[1], src=src, dst=dst)
    other = _OTHER_COPY.search(name)
    ends = [_SIDES.get(end, end) for end in other.groups() if end] if other else []
    return OpLabel(name="to".join(ends) or "unknown")
