"""Read a PyTorch profiler trace (Kineto's Chrome JSON, plain or gzip) of any size and year."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.readers.torch_trace_cpu import Operators, operators
from analysis.readers.torch_trace_events import KERNEL, TraceEvents
from analysis.readers.torch_trace_gaps import gap_table
from analysis.readers.torch_trace_gpu import (
    GpuOps,
    first_step_end,
    gpu_ops,
    host_calls,
    mark_first_step,
)
from analysis.readers.torch_trace_header import environment_of, gpu_facts
from analysis.readers.torch_trace_phases import (
    DEVICE_TIME,
    LAUNCH_THREAD,
    RangeTree,
    Work,
    attribute,
    autograd_threads,
    gpu_work,
    phase_table,
    process_of_threads,
    range_table,
    range_tree,
)
from analysis.readers.torch_trace_stream import TraceStream
from analysis.readers.torch_trace_tables import (
    call_table,
    device_of,
    gpu_summary,
    kernel_table,
    operator_table,
    span_table,
    transfer_table,
)
from analysis.tables import CPU_OPERATORS, CaptureKind, CaptureTables, CaptureWarning
from captures.opening import clean_text, open_capture, reading
from core.errors import CaptureError


def read_torch_trace(path: Path) -> CaptureTables:
    """Return kernels, phases, calls, transfers and spans; a CPU trace gives its operators instead.

    Raises CaptureError with the byte offset where the JSON is cut off or damaged.
    """
    events = TraceEvents()
    with reading(path), open_capture(path) as raw:
        stream = TraceStream(raw, path)
        events.add_all(stream.events())
    if "traceEvents" not in stream.header and not events.num_events:
        raise CaptureError(path, "the JSON holds no `traceEvents`", "Import a PyTorch trace")
    common = {
        "kind": CaptureKind.TORCH_TRACE,
        "path": path,
        "tool": "torch",
        "tool_version": _version(stream.header),
        "environment": environment_of(stream.header),
    }
    _check_is_pytorch(events, path)
    notes = _stream_notes(events, stream)
    tree = range_tree(events)
    if events.gpu_start:
        return _gpu_tables(events, stream.header, tree, common, notes)
    return _cpu_tables(events, tree, common, notes)


def _check_is_pytorch(events: TraceEvents, path: Path) -> None:
    """JAX, Chrome and perf write the same JSON: their spans have no category that we know."""
    num_spans = len(events.gpu_start) + len(events.run_start) + len(events.op_start)
    nameless = events.odd_kinds.get("category None", 0)
    if nameless and nameless == sum(events.odd_kinds.values()) and not num_spans:
        text = f"none of its {nameless} events has a category: no trace of PyTorch's profiler"
        raise CaptureError(path, text, "Import a trace that torch.profiler exported")


def _version(header: dict[str, Any]) -> str | None:
    version = header.get("pytorch_version")
    return clean_text(version) if isinstance(version, str) else None


def _stream_notes(events: TraceEvents, stream: TraceStream) -> list[CaptureWarning]:
    notes = []
    if stream.num_repaired:
        text = f"{stream.num_repaired} single backslashes were no JSON and were taken as they are."
        notes.append(CaptureWarning(code="repaired_json", message=text))
    if stream.num_zero_bytes:
        text = (
            f"{stream.num_zero_bytes} zero bytes are in the file: a part of it may be lost. "
            "Copy or export it again."
        )
        notes.append(CaptureWarning(code="zero_bytes", message=text))
    if events.num_bad_host:
        text = (
            f"{events.num_bad_host} host events with an impossible time or duration were left out."
        )
        notes.append(CaptureWarning(code="quarantined_host_events", message=text))
    if events.odd_kinds:
        shown = ", ".join(f"{n} of {k}" for k, n in list(events.odd_kinds.items())[:5])
        text = f"Events of kinds that this version does not know were left out: {shown}."
        notes.append(CaptureWarning(code="unknown_events", message=text))
    num_kernels = sum(1 for kind in events.gpu_kind if kind == KERNEL)
    if 0 < events.num_shapeless < num_kernels:
        text = f"{events.num_shapeless} of {num_kernels} kernels have no launch shape."
        notes.append(CaptureWarning(code="kernels_without_shape", message=text))
    if events.num_not_events:
        text = f"{events.num_not_events} entries of traceEvents are no events and were left out."
        notes.append(CaptureWarning(code="not_events", message=text))
    return notes


def _gpu_tables(
    events: TraceEvents,
    header: dict[str, Any],
    tree: RangeTree,
    common: dict[str, Any],
    notes: list[CaptureWarning],
) -> CaptureTables:
    calls = host_calls(events)
    ops = gpu_ops(events, calls)
    since_ns = first_step_end(events)
    mark_first_step(ops, calls, since_ns)
    if ops.is_first_step.all() and len(ops.start):
        ops.is_first_step[:] = False
        since_ns = None
    work = gpu_work(tree, events, ops, calls)
    attribution = LAUNCH_THREAD if (ops.launch >= 0).any() else DEVICE_TIME
    devices = device_of(events)[ops.stream]
    numbers, counts = np.unique(devices, return_counts=True)
    main_device = int(numbers[counts.argmax()]) if len(numbers) else -1
    summary = gpu_summary(events, ops, calls, since_ns)
    return CaptureTables(
        **common,
        gpu=gpu_facts(header, main_device),
        summary=summary,
        kernels=kernel_table(events, ops),
        phases=phase_table(tree, work, attribution, is_gpu=True),
        api_calls=call_table(events, calls, since_ns),
        transfers=transfer_table(events, ops),
        gaps=gap_table(events, ops, calls),
        spans=span_table(events, ops, calls, tree, work.range_row.tolist()),
        ranges=range_table(tree),
        warnings=(*notes, *_gpu_notes(ops, summary, calls, tree, work)),
    )


def _gpu_notes(
    ops: GpuOps, summary: dict[str, Any], calls: pd.DataFrame, tree: RangeTree, work: Work
) -> list[CaptureWarning]:
    num_first = int(ops.is_first_step.sum())
    found = {
        "quarantined_events": (
            ops.num_impossible,
            "GPU operations with durations that cannot be (negative, beyond the recording, or "
            "outlasting later operations of their stream) were left out of every number",
        ),
        "first_step_excluded": (
            num_first,
            "GPU operations of the first profiler step were left out of the kernel numbers: "
            "warm-up of the profiler itself. The phases still show that step on its own",
        ),
        "kernels_before_launch": (
            ops.num_before_launch,
            "GPU operations start before their launch: the clocks of host and GPU differ there",
        ),
        "launches_without_kernel": (
            summary["num_launches_without_kernel"],
            "launches have no kernel in the trace: work at the start or end was not recorded",
        ),
        "kernels_without_launch": (
            summary["num_kernels_without_launch"] if len(calls) else 0,
            "kernels have no launch in the trace: they belong to no phase",
        ),
        "colliding_correlation_ids": (
            ops.num_colliding,
            "host calls share a correlation id with another: the trace holds several processes. "
            "Operations with an id of two of them are given to no launch",
        ),
        "process_time_attribution": (
            int(work.by_time.sum()),
            "GPU operations launched by autograd's own thread were given to the `backward` range "
            "that encloses their launch in time",
        ),
    }
    notes = [
        CaptureWarning(code=code, message=f"{count} {text}.")
        for code, (count, text) in found.items()
        if count
    ]
    if len(ops.kind) and not (ops.kind == KERNEL).any():
        text = f"No kernel was recorded; copies and memory sets: {len(ops.kind)}."
        notes.append(CaptureWarning(code="no_kernels", message=text))
    if not len(tree.start):
        text = "No annotated ranges were recorded: wrap phases in torch.profiler.record_function()."
        notes.append(CaptureWarning(code="no_ranges", message=text))
    return notes


def _cpu_tables(
    events: TraceEvents, tree: RangeTree, common: dict[str, Any], notes: list[CaptureWarning]
) -> CaptureTables:
    if events.num_bad_gpu:
        text = f"{events.num_bad_gpu} GPU operations with an impossible time were left out."
        notes.append(CaptureWarning(code="quarantined_events", message=text))
    if not events.op_start:
        code, text = "no_gpu_activity", "No GPU activity and no operators can be read from it."
        return CaptureTables(**common, warnings=(*notes, CaptureWarning(code=code, message=text)))
    ops = operators(events)
    since_ns = first_step_end(events)
    shown = _after(ops, since_ns)
    summary = {
        "num_kernels": len(shown.start),
        "kernel_time_ns": int(shown.self_ns.sum()),
    }
    calls = host_calls(events)
    text = "No GPU work was recorded: the numbers are those of CPU operators, each its own time."
    if len(calls):
        text += (
            f" {len(calls)} CUDA calls are there: another profiler may have held CUPTI, or the GPU "
            "activity was not enabled."
        )
    notes.append(CaptureWarning(code=CPU_OPERATORS, message=text))
    if len(shown.start) < len(ops.start):
        num_left = len(ops.start) - len(shown.start)
        text = f"{num_left} operators of the first profiler step were left out."
        notes.append(CaptureWarning(code="first_step_excluded", message=text))
    return CaptureTables(
        **common,
        summary=summary,
        kernels=operator_table(events, shown),
        phases=phase_table(tree, _cpu_work(tree, events, ops), LAUNCH_THREAD, is_gpu=False),
        api_calls=call_table(events, calls, since_ns),
        ranges=range_table(tree),
        warnings=tuple(notes),
    )


def _after(ops: Operators, since_ns: int | None) -> Operators:
    keep = ops.start >= since_ns if since_ns is not None else np.ones(len(ops.start), bool)
    if not keep.any():
        return ops
    return Operators(**{name: getattr(ops, name)[keep] for name in Operators.__slots__})


def _cpu_work(tree: RangeTree, events: TraceEvents, ops: Operators) -> Work:
    rows, by_time = np.full(len(ops.start), -1, np.int64), np.zeros(len(ops.start), bool)
    if len(tree.start):
        process = process_of_threads(events)[ops.thread]
        rows, by_time = attribute(
            tree, ops.thread, process, ops.start, ops.start, autograd_threads(events)
        )
    return Work(
        start=ops.start,
        end=ops.end,
        kernel_ns=ops.self_ns,
        is_kernel=np.ones(len(ops.start), bool),
        range_row=rows,
        by_time=by_time,
    )
