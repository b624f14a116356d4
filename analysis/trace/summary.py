"""From the event tables of a timeline to everything that is shown of it, for every format.

With it the curve of memory in use of each device. Events of the driver are a caching allocator's
segments: its reserved memory, not what tensors use.
"""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.memory_curve import STORED_POINTS, rows_to_keep
from analysis.tables import MEMORY_POINT_COLUMNS, CaptureKind, CaptureTables, CaptureWarning, empty
from analysis.trace import coverage
from analysis.trace.aggregates import call_table, kernel_table, transfer_table
from analysis.trace.attribution import Attribution, attribute
from analysis.trace.calls import Launches, launches_of
from analysis.trace.flame import flame_table
from analysis.trace.gaps import DeviceUse, device_use, gap_table
from analysis.trace.host_time import HostTime, host_time
from analysis.trace.idle_host import idle_host
from analysis.trace.model import Allocations, Int64s, OpKind, Trace
from analysis.trace.operators import operator_table
from analysis.trace.phases import phase_table
from analysis.trace.ranges import PhaseRanges, phase_ranges
from analysis.trace.ranks import rank_tables
from analysis.trace.records import records
from analysis.trace.step_figures import step_kernels, step_parts
from analysis.trace.steps import Steps, find_steps, steps_document

DEVICE = 0
OTHER_MEMORY = {1: "pinned", 3: "managed", 4: "device_static"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The curve (MEMORY_POINT_COLUMNS) and its figures; empty without events."""

    points: pd.DataFrame
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curve:
    """The level of one pool after each event, what was live before the recording included."""

    time_ns: Int64s
    level_bytes: Int64s
    reserved_bytes: Int64s
    "MISSING where not recorded."
    baseline_bytes: int
    "Live before the recording."
    is_counted: bool
    "The allocator's own figures; else the baseline is only what releases show."

    @property
    def peak_bytes(self) -> int:
        return max(int(self.level_bytes.max()), self.baseline_bytes)


def memory_use(events: Allocations, source: str) -> MemoryUse:
    """Return the memory in use over time; `source` names who recorded the events."""
    if not len(events):
        return MemoryUse(points=empty(MEMORY_POINT_COLUMNS))
    figures: dict[str, Any] = {"num_events": len(events), "source": source}
    for memory, name in OTHER_MEMORY.items():
        chosen = np.flatnonzero(events.memory == memory)
        if len(chosen):
            figures[f"{name}_peak_bytes"] = _curve(events.take(chosen)).peak_bytes
    on_device = np.flatnonzero(events.memory == DEVICE)
    curves = {
        device: _curve(events.take(on_device[events.device[on_device] == device]))
        for device in np.unique(events.device[on_device]).tolist()
    }
    if not curves:
        return MemoryUse(points=empty(MEMORY_POINT_COLUMNS), figures=figures)
    figures |= {
        "peak_bytes": max(curve.peak_bytes for curve in curves.values()),
        "baseline_bytes": sum(curve.baseline_bytes for curve in curves.values()),
        "final_bytes": sum(int(curve.level_bytes[-1]) for curve in curves.values()),
        "is_partial": any(c.baseline_bytes and not c.is_counted for c in curves.values()),
    }
    frames = [_points(curve, device) for device, curve in curves.items()]
    return MemoryUse(points=pd.concat(frames, ignore_index=True), figures=figures)


def _curve(events: Allocations) -> _Curve:
    level, baseline = events.allocated_bytes, 0
    is_counted = bool((level >= 0).all() and level.any())
    if is_counted:
        baseline = max(int(level[0] - events.num_bytes[0]), 0)
    else:
        # A file may state any size: their sum shall stay a number of 64 bits.
        most = 2**61 // len(events)
        num_bytes = np.clip(events.num_bytes, -most, most)
        is_release = num_bytes < 0
        known = np.unique(events.address[~is_release])
        is_foreign = is_release & ~np.isin(events.address, known)
        level = np.cumsum(num_bytes)
        baseline = max(int(-num_bytes[is_foreign].sum()), -int(level.min()), 0)
        level = level + baseline
    return _Curve(
        time_ns=events.time_ns,
        level_bytes=level,
        reserved_bytes=events.reserved_bytes,
        baseline_bytes=baseline,
        is_counted=is_counted,
    )


def _points(curve: _Curve, device: int) -> pd.DataFrame:
    kept = rows_to_keep([curve.level_bytes, curve.reserved_bytes], STORED_POINTS)
    reserved = curve.reserved_bytes[kept]
    return pd.DataFrame(
        {
            "time_ns": curve.time_ns[kept],
            "device": device,
            "allocated_bytes": curve.level_bytes[kept],
            "reserved_bytes": pd.arrays.IntegerArray(np.maximum(reserved, 0), reserved < 0),
            "phase": None,
            "requested_bytes": pd.array([pd.NA] * len(kept), dtype="Int64"),
        },
        columns=list(MEMORY_POINT_COLUMNS),
    )


def tables_of(
    trace: Trace,
    *,
    kind: CaptureKind,
    path: Path,
    tool: str,
    tool_version: str | None = None,
    environment: Mapping[str, Any] | None = None,
    warnings: Iterable[CaptureWarning] = (),
    memory_source: str = "cuda_allocations",
    scratch: Path | None = None,
) -> CaptureTables:
    """Return the tables of a capture. What was not recorded is absent, with a warning.

    `warnings`: what the loader has to say about the file. `memory_source`: who recorded the
    allocations. `scratch`: folder for the spans of large captures.
    """
    ranges = phase_ranges(trace)
    given = attribute(trace, ranges)
    phases = phase_table(trace, ranges, given)
    with ThreadPoolExecutor(max_workers=1) as beside:
        writing = beside.submit(records, trace, ranges, given, scratch)
        launches = launches_of(trace)
        host = host_time(trace)
        devices = device_use(trace, host)
        api_calls = call_table(trace)
        memory = memory_use(trace.allocations, memory_source)
        of_operations = writing.result()
    main = max(devices, key=lambda use: use.num_ops).device if devices else 0
    steps = find_steps(trace)
    ranks = rank_tables(trace, steps.op_step)
    return CaptureTables(
        kind=kind,
        path=path,
        tool=tool,
        tool_version=tool_version,
        gpu=trace.sources.devices.get(main, {}),
        environment={**(environment or {}), **_several_devices(trace, devices)},
        summary=_summary(trace, launches, devices) | _peak(memory.figures) | _windows(trace),
        kernels=kernel_table(trace) if devices else None,
        phases=phases.frame,
        api_calls=api_calls,
        transfers=transfer_table(trace),
        gaps=gap_table(devices),
        memory_points=memory.points,
        memory=memory.figures,
        **of_operations,
        ranks=ranks.ranks if devices else None,
        collectives=ranks.collectives if devices else None,
        **_by_step(trace, steps, ranges, given, host),
        warnings=(
            *warnings,
            *coverage.coverage_warnings(trace, launches, devices),
            *coverage.lost_events_warnings(trace, steps.frame),
            *coverage.phase_warnings(trace, ranges, given, phases),
            *coverage.failed_call_warnings(api_calls),
            *coverage.memory_warnings(dict(memory.figures)),
        ),
    )


def _by_step(
    trace: Trace, steps: Steps, ranges: PhaseRanges, given: Attribution, host: HostTime | None
) -> dict[str, Any]:
    """Return the tables that are about steps: steps, operators, the host's part, stacks."""
    if not len(trace.gpu_ops):
        return {"step_facts": steps_document(steps)}
    operators = operator_table(trace, given, steps)
    idle = idle_host(trace, steps)
    flame = flame_table(trace, given, steps, idle)
    return {
        "steps": steps.frame if len(steps.frame) else None,
        "step_facts": steps_document(steps) | step_parts(trace, steps, ranges, given, host),
        "step_kernels": step_kernels(trace, steps),
        "operators": None if operators is None else operators.frame,
        "operator_kernels": None if operators is None else operators.kernels,
        "idle_host": None if idle is None else idle.frame,
        "flame": flame,
    }


def _summary(
    trace: Trace, launches: Launches, devices: tuple[DeviceUse, ...]
) -> dict[str, int | float]:
    """Return the headline numbers; what is unknown has no key.

    kernel_time_ns is the sum of kernel durations; busy_ns the union of kernel (and opaque graph)
    intervals of each device, summed over devices; span_ns first start to last end of each device,
    summed likewise, so that idle_frac = 1 - busy / span holds for several devices too.
    """
    ops, num_calls = trace.gpu_ops, len(trace.host_calls)
    summary: dict[str, int | float] = {"num_api_calls": num_calls} if num_calls else {}
    if not devices:
        return summary
    num_kernels = sum(use.num_kernels for use in devices)
    if num_kernels:
        summary["num_kernels"] = num_kernels
        summary["kernel_time_ns"] = sum(use.kernel_time_ns for use in devices)
    summary["busy_ns"] = sum(use.busy_ns for use in devices)
    summary["span_ns"] = sum(use.span_ns for use in devices)
    if summary["span_ns"]:
        summary["idle_frac"] = 1 - summary["busy_ns"] / summary["span_ns"]
    is_graph = ops.kind == OpKind.GRAPH
    if not launches.num_lost_graphs:
        summary["opaque_graph_ns"] = int((ops.end_ns - ops.start_ns)[is_graph].sum())
    num_graphs = int(is_graph.sum())
    if num_graphs or num_calls:
        summary["num_graph_launches"] = num_graphs or int(launches.is_graph.sum())
    if num_calls:
        is_alone = (ops.kind == OpKind.KERNEL) & (ops.launch < 0)
        summary["num_kernels_without_launch"] = int(is_alone.sum())
        summary["num_launches_without_kernel"] = launches.num_unanswered
    return summary


def _peak(figures: Mapping[str, Any]) -> dict[str, int]:
    peak = figures.get("peak_bytes")
    return {} if peak is None else {"peak_memory_bytes": peak}


def _windows(trace: Trace) -> dict[str, int]:
    """Return how long was recorded, and from the first to the last event of any kind."""
    tables = [t for t in (trace.gpu_ops, trace.host_calls, trace.host_ranges) if len(t)]
    if not tables:
        return {}
    first = min(int(t.start_ns.min()) for t in tables)
    windows = {"event_window_ns": max(int(t.end_ns.max()) for t in tables) - first}
    sources = trace.sources
    if sources.session_end_ns:
        windows["capture_window_ns"] = sources.session_end_ns - sources.session_start_ns
    return windows


def _several_devices(trace: Trace, devices: tuple[DeviceUse, ...]) -> dict[str, str]:
    if len(devices) < 2:
        return {}
    rows = [
        {
            "name": trace.sources.devices.get(use.device, {}).get("name"),
            "device": use.device,
            "num_kernels": use.num_kernels,
            "kernel_time_ns": use.kernel_time_ns,
            "busy_ns": use.busy_ns,
            "span_ns": use.span_ns,
        }
        for use in devices
    ]
    return {"devices": json.dumps(rows)}
