"""From the events of a PyTorch profiler trace to the tables of a capture.

Of a trace without GPU work each operator counts as an operation of a device. It lasts as long as it
ran itself, its callees left out: so the rules for kernels and phases hold for operators too.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.readers.torch_trace.header import environment_of
from analysis.readers.torch_trace.load import LoadedTrace, load_trace
from analysis.readers.torch_trace.quarantine import ROUNDING_NS
from analysis.tables import CPU_OPERATORS, CaptureKind, CaptureTables, CaptureWarning
from analysis.trace.aggregates import call_table, kernel_table
from analysis.trace.attribution import Attribution, attribute
from analysis.trace.coverage import warn
from analysis.trace.model import (
    GpuOps,
    HostCalls,
    Int32s,
    Int64s,
    OpKind,
    OpLabel,
    RangeKind,
    Trace,
    make_columns,
)
from analysis.trace.nesting import parents
from analysis.trace.phases import phase_table
from analysis.trace.ranges import PhaseRanges, phase_ranges
from analysis.trace.spans import range_table
from analysis.trace.step_figures import step_kernels, step_parts
from analysis.trace.steps import find_steps, steps_document
from analysis.trace.summary import tables_of
from captures.opening import clean_text


def operators_as_work(trace: Trace) -> Trace:
    """Return the trace with its operators in place of GPU operations and of their launches."""
    ranges = trace.host_ranges.take(trace.host_ranges.kind == RangeKind.OPERATOR)
    own_ns = _own_time(ranges.start_ns, ranges.end_ns, parents(
        ranges.end_ns, ranges.thread, start_ns=ranges.start_ns, rounding_ns=ROUNDING_NS
    ))  # fmt: skip
    order = np.argsort(ranges.start_ns, kind="stable")
    names, label = np.unique(ranges.name[order], return_inverse=True)
    start = ranges.start_ns[order]
    return replace(
        trace,
        gpu_ops=make_columns(
            GpuOps,
            len(order),
            start_ns=start,
            end_ns=start + own_ns[order],
            label=label,
            device=np.zeros(len(order)),
            stream=np.zeros(len(order)),
            process=trace.thread_process()[ranges.thread[order]],
            launch=np.arange(len(order)),
        ),
        host_calls=make_columns(
            HostCalls,
            len(order),
            start_ns=start,
            end_ns=start,
            name=ranges.name[order],
            thread=ranges.thread[order],
        ),
        labels=tuple(
            OpLabel(name=trace.names[n], short_name=trace.names[n]) for n in names.tolist()
        ),
    )


def cpu_steps(work: Trace, ranges: PhaseRanges, given: Attribution) -> dict[str, Any]:
    """Return the tables that are about steps, by `CaptureTables`' names, without a GPU's figures.

    A step's kernels are its operators, each its own time; nothing is idle, launched or copied.
    """
    steps = find_steps(work)
    facts = {k: v for k, v in steps_document(steps).items() if k not in _OF_A_GPU}
    if not len(steps.frame):
        return {"step_facts": facts}
    phases = step_parts(work, steps, ranges, given, None).get("phases", [])
    host_phases = [{k: v for k, v in row.items() if k != "projected_ns"} for row in phases]
    unknown = pd.array([pd.NA] * len(steps.frame), "Int64")
    return {
        "steps": steps.frame.assign(num_api_calls=unknown, api_ns=unknown),
        "step_facts": facts | ({"phases": host_phases} if host_phases else {}),
        "step_kernels": step_kernels(work, steps),
    }


_OF_A_GPU = frozenset(
    {"num_launches", "num_graph_launches", "graph_ns", "busy_ns", "idle_frac", "num_transfers"}
    | {"transfer_bytes", "transfer_ns", "num_api_calls", "api_ns", "kinds"}
)


def _own_time(start_ns: Int64s, end_ns: Int64s, parent: Int32s) -> Int64s:
    """Return the self time of each operator: its duration without direct callees."""
    own = end_ns - start_ns
    has = parent >= 0
    inside = np.minimum(end_ns[has], end_ns[parent[has]]) - start_ns[has]
    np.subtract.at(own, parent[has], inside)
    return np.maximum(own, 0)


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
