"""From the events of a PyTorch profiler trace to the tables of a capture."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.readers.torch_trace.cpu import cpu_steps, operators_as_work
from analysis.readers.torch_trace.header import environment_of
from analysis.readers.torch_trace.load import LoadedTrace, load_trace
from analysis.tables import CPU_OPERATORS, CaptureKind, CaptureTables, CaptureWarning
from analysis.trace.aggregates import call_table, kernel_table
from analysis.trace.attribution import attribute
from analysis.trace.coverage import warn
from analysis.trace.model import OpKind, RangeKind, Trace
from analysis.trace.phases import phase_table
from analysis.trace.ranges import phase_ranges
from analysis.trace.spans import range_table
from analysis.trace.summary import tables_of
from captures.opening import clean_text

MEMORY_SOURCE = "PyTorch's allocator (profile_memory)"


def read_torch_trace(path: Path, scratch: Path | None = None) -> CaptureTables:
    """Return kernels, phases, calls, transfers and spans; a CPU trace gives its operators instead.

    Raises CaptureError with the byte offset where the JSON is cut off or damaged.
    """
    loaded = load_trace(path)
    trace = loaded.trace
    notes = tuple(_notes(loaded))
    common: dict[str, Any] = {
        "kind": CaptureKind.TORCH_TRACE,
        "path": path,
        "tool": "torch",
        "tool_version": _version(loaded.header.get("pytorch_version")),
        "environment": environment_of(loaded.header),
    }
    if not len(trace.gpu_ops) and (trace.host_ranges.kind == RangeKind.OPERATOR).any():
        return _cpu_tables(trace, common, notes)
    tables = tables_of(
        trace, **common, warnings=notes, memory_source=MEMORY_SOURCE, scratch=scratch
    )
    if not len(trace.gpu_ops):
        return tables
    return _with_counts(tables, loaded)


def _version(stated: Any) -> str | None:
    return clean_text(stated) if isinstance(stated, str) else None


def _with_counts(tables: CaptureTables, loaded: LoadedTrace) -> CaptureTables:
    """Add what only this format counts."""
    ops, calls = loaded.trace.gpu_ops, loaded.trace.host_calls
    has = ops.launch >= 0
    is_early = ops.start_ns[has] < calls.start_ns[ops.launch[has]]
    counts = {
        "num_kernels_before_launch": int(is_early.sum()),
        "num_quarantined": loaded.num_impossible,
    }
    return replace(tables, summary={**tables.summary, **counts})


def _cpu_tables(
    trace: Trace, common: dict[str, Any], notes: tuple[CaptureWarning, ...]
) -> CaptureTables:
    """Return operators with their self time as kernels, and no GPU figures."""
    work = operators_as_work(trace)
    ranges = phase_ranges(work)
    given = attribute(work, ranges)
    phases = phase_table(work, ranges, given).frame
    phases["projected_ns"] = pd.array([pd.NA] * len(phases), dtype="Int64")
    text = "No GPU work was recorded: the numbers are the self times of CPU operators."
    if len(trace.host_calls):
        text += (
            f" {len(trace.host_calls)} CUDA calls were recorded: another "
            "profiler may have used CUPTI, or GPU activity was not enabled."
        )
    durations = work.gpu_ops.end_ns - work.gpu_ops.start_ns
    return CaptureTables(
        **common,
        summary={"num_kernels": len(durations), "kernel_time_ns": int(durations.sum())},
        kernels=kernel_table(work),
        phases=phases,
        api_calls=call_table(trace),
        ranges=range_table(trace, ranges),
        **cpu_steps(work, ranges, given),
        warnings=(*notes, warn(CPU_OPERATORS, text)),
    )


def _notes(loaded: LoadedTrace) -> Iterator[CaptureWarning]:
    """Warn about events that were dropped or are doubtful."""
    counts = {
        "repaired_json": (
            loaded.num_repaired,
            "single backslashes are invalid JSON and were kept as they are",
        ),
        "zero_bytes": (
            loaded.num_zero_bytes,
            "zero bytes are in the file: part of it may be lost. Copy or export it again",
        ),
        "quarantined_host_events": (
            loaded.num_bad_host,
            "host events with an impossible time or duration were left out",
        ),
        "not_events": (
            loaded.num_not_events,
            "entries of traceEvents are not events and were left out",
        ),
        "quarantined_events": (
            loaded.num_impossible,
            "GPU operations with impossible durations (negative, beyond the "
            "recording, or outlasting later operations of their stream) were "
            "left out of every number",
        ),
        "colliding_correlation_ids": (
            loaded.num_colliding,
            "host calls share a correlation id with another call: the trace "
            "contains several processes. Operations whose id occurs twice are "
            "not matched to a launch",
        ),
    }
    for code, (count, text) in counts.items():
        if count:
            yield warn(code, f"{count} {text}.")
    if loaded.odd_kinds:
        shown = ", ".join(f"{n} of {k}" for k, n in list(loaded.odd_kinds.items())[:5])
        text = f"Events of unknown kinds were left out: {shown}."
        yield warn("unknown_events", text)
    yield from _gpu_notes(loaded.trace)


def _gpu_notes(trace: Trace) -> Iterator[CaptureWarning]:
    labels = trace.gpu_ops.label[trace.gpu_ops.kind == OpKind.KERNEL].tolist()
    num_shapeless = sum(1 for label in labels if trace.labels[label].grid is None)
    if 0 < num_shapeless < len(labels):
        yield warn(
            "kernels_without_shape",
            f"{num_shapeless} of {len(labels)} kernels have no launch shape.",
        )
    if len(trace.gpu_ops) and not (trace.host_ranges.kind == RangeKind.ANNOTATION).any():
        yield warn(
            "no_ranges",
            "No annotated ranges were recorded: wrap phases in torch.profiler.record_function().",
        )
