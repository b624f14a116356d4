"""What a reader returns: one contract for every capture format.

Each `*_COLUMNS` tuple is the single list of a frame's columns, in order, with the unit in the name.
A reader leaves out (empty frame, absent summary key, None) what the capture does not hold; it never
writes 0 for "unknown". Times are integer ns on the capture's own clock and may be negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captures.kinds import CaptureKind as CaptureKind

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from analysis.span_file import SpanFile

KERNEL_COLUMNS = (
    "name",  # str, full demangled name
    "short_name",  # str, without template arguments and parameters
    "grid",  # str "x,y,z" or None
    "block",  # str "x,y,z" or None
    "registers",  # Int64, a thread
    "shared_bytes",  # Int64, static + dynamic, a block
    "count",  # int64
    "total_ns",  # int64
    "min_ns",  # int64
    "max_ns",  # int64
    "is_opaque",  # bool: a whole CUDA graph launch whose kernels were not recorded
)
"""One row for each (name, grid, block). Opaque graph launches are rows too (`is_opaque`).

On a CPU capture the rows are the operators' self time (`aten::mm`, ...).
"""

PHASE_COLUMNS = (
    "path",  # str, range names from the outermost, joined with "/" (a slash of a name is U+2215)
    "process",  # int64, ordinal of the process in the capture, from 0
    "num_ranges",  # int64
    "host_ns",  # Int64, sum of the ranges' own duration
    "projected_ns",  # Int64, sum over ranges of (last GPU end - first GPU start)
    "kernel_ns",  # Int64, sum of kernel durations
    "num_kernels",  # int64
    "attribution",  # str: launch_thread | process_time | device_time
    "first_start_ns",  # int64, start of the first range, for ordering
)

API_CALL_COLUMNS = ("name", "count", "total_ns", "min_ns", "max_ns", "num_failed", "is_sync")
"""Host calls by name, version suffix (`_v7000`) removed; `is_sync` marks those that wait."""

TRANSFER_COLUMNS = ("kind", "src", "dst", "count", "bytes", "total_ns")
"""kind: HtoD DtoH DtoD PtoP HtoH memset, and `unified HtoD`, ... for migrations of managed memory;
src, dst: pageable pinned device managed, None. A report of sizes alone has no total_ns."""

GAP_COLUMNS = ("cause", "count", "total_ns", "evidence")
"""Idle time between the first and last kernel of a device, by cause.

cause: launch (the next kernel's launch was issued in or after the gap), synchronisation (the host
sat in a waiting call), transfer (a copy ran), host (no CUDA call in the gap), unknown (no API
table).
"""

MEMORY_POINT_COLUMNS = (
    "time_ns",
    "device",
    "allocated_bytes",  # as the allocator rounds blocks; of a driver's events, what it gave
    "reserved_bytes",  # Int64
    "phase",  # str or None
    "requested_bytes",  # Int64: as asked for; only a snapshot knows
)
"""The curve after each change."""

MEMORY_AT_PEAK_COLUMNS = ("device", "site", "phase", "role", "bytes", "count")
"""Live allocations at the peak, by site ("file:line function", innermost user frame)."""

COUNTER_COLUMNS = (
    "launch",  # int64, order in the report from 0
    "name",
    "short_name",
    "grid",
    "block",
    "registers",  # Int64
    "duration_ns",  # float64 from here on; NaN is "not collected"
    "sm_pct",
    "memory_pct",
    "dram_pct",
    "l2_pct",
    "occupancy_pct",
    "theoretical_occupancy_pct",
    "waves_per_sm",
    "dram_bytes",
    "flops",
    "peak_flops_per_s",
    "elapsed_cycles",
    "l2_bytes",  # through the tags of the L2 cache
    "peak_l2_bytes_per_s",
    "path",  # str or None: NVTX path if the report holds it
)

RULE_COLUMNS = ("launch", "kernel", "rule", "kind", "message", "estimated_speedup_pct")

COUNTER_DETAIL_COLUMNS = ("launch", "group", "name", "value", "unit")
"""Why warps waited, hit rates, memory traffic: what of them was collected, one row a figure."""

COUNTER_SOURCE_COLUMNS = (
    "launch",  # int64, order on ncu's source page from 0
    "kernel",
    "line",  # int64, number of the instruction in the kernel
    "instruction",
    "samples",  # float64, of warps that stood there
    "share_frac",  # of the launch's samples
    "executed",  # float64, NaN is "not collected"
    "stall",  # the reason that most samples give, or None
)

SAMPLE_COLUMNS = ("process", "iteration", "latency_ns")

SPAN_COLUMNS = (
    "start_ns",  # int64
    "end_ns",  # int64
    "device",  # int32
    "stream",  # int32
    "process",  # int32, ordinal
    "kind",  # dictionary<str>: kernel memcpy memset graph
    "name",  # dictionary<str>
    "grid",  # dictionary<str> or null
    "block",  # dictionary<str> or null
    "path",  # dictionary<str> or null: deepest enclosing range path
    "launch_start_ns",  # int64 or null
    "bytes",  # int64 or null
)
"""One row per GPU operation, ordered by start_ns; written to Parquet. Too many for memory come as a
`SpanFile`, which is that file already."""

RANGE_COLUMNS = ("start_ns", "end_ns", "process", "thread", "depth", "name", "path")
"""One row a closed host range, for the timeline; kept beside the spans."""


STEP_COLUMNS = (
    "process",  # int64, row of `Sources.processes`
    "step",  # int64, from 0 within its process
    "kind",  # int64: 0 is the usual kind of step, 1 and on are others that recur
    "start_ns",  # int64, on the host
    "end_ns",  # int64
    "gpu_start_ns",  # Int64, of its first operation on the stream with most of them
    "gpu_end_ns",  # Int64
    "num_kernels",  # int64, kernels recorded one by one
    "num_launches",  # int64, launch calls of kernels and graphs
    "num_graph_launches",  # int64, replays that were recorded whole
    "kernel_ns",  # int64, sum of kernel durations
    "graph_ns",  # int64, of graphs recorded whole
    "busy_ns",  # int64, union of all kernels and graphs on the GPU with the most work
    "period_ns",  # Int64, from its start on the GPU to the next step's
    "num_transfers",  # int64, copies and memory sets
    "transfer_bytes",  # int64
    "transfer_ns",  # int64
    "num_allocations",  # Int64; absent where none were recorded
    "allocated_bytes",  # Int64
    "num_api_calls",  # Int64
    "api_ns",  # Int64
    "is_regular",  # bool: counts in the medians
    "reason",  # str or None: why it does not
)
"""One row per step."""

STEP_KERNEL_COLUMNS = (
    "name",  # str
    "grid",  # str "x,y,z" or None
    "block",  # str "x,y,z" or None
    "is_opaque",  # bool: whole CUDA graph launches
    "count",  # float64, per regular step
    "total_ns",  # float64, per regular step
)
"""The kernels of a regular step by (name, grid, block), longest first."""

OPERATOR_COLUMNS = (
    "name",  # str, without attributes
    "pass",  # str: forward | backward | optimizer | other
    "count",  # int64, calls
    "num_kernels",  # int64, kernels (and graphs) launched by it or what it calls
    "self_num_kernels",  # int64, launched by itself
    "self_kernel_ns",  # int64
    "total_kernel_ns",  # int64
    "host_ns",  # int64, its own range on the host; nested calls of the same operator count once
    "step_count",  # Float64, per regular step; absent without steps
    "step_num_kernels",  # Float64
    "step_self_kernel_ns",  # Float64
    "step_total_kernel_ns",  # Float64
    "step_host_ns",  # Float64
    "flops",  # Float64, of all calls, from their shapes; absent where not known
    "elements",  # Float64, that all calls must read and write, from their shapes; absent likewise
    "shapes",  # str or None: JSON list of the shapes with most kernel time
    "forward_name",  # str or None: of a backward operator, the forward one by sequence number
    "module",  # str or None: the module or Python function above it with most kernel time
)
"""One row per operator and pass, most own kernel time first."""

OPERATOR_KERNEL_COLUMNS = ("name", "pass", "kernel", "count", "total_ns")
"""The kernels that each operator itself launched."""

IDLE_COLUMNS = (
    "group",  # str: GROUPS
    "activity",  # str: innermost operator, range or Python function; the call where none is known
    "call",  # str or None: API call that the thread was in
    "idle_ns",  # int64, over the regular steps (without steps: the whole capture)
    "step_idle_ns",  # float64, per step
    "idle_frac",  # float64, of the steps' time; all rows sum to the idle fraction
)
"""One row per host activity while the GPU waited, longest first."""

FLAME_COLUMNS = (
    "metric",  # str: gpu | idle
    "node",  # int64, from 0 within its metric; a parent's number is less than its children's
    "parent",  # Int64; absent at the top
    "name",  # str
    "kind",  # str: range | operator | python | library | kernel | call | other
    "self_ns",  # float64, of the node without its children, per regular step
)
"""One row per node. Times are of the whole capture where it has no steps."""

HOST_COLUMNS = ("start_ns", "end_ns", "process", "thread", "row", "kind", "name")
"""One row an API call (row 0), operator or function of a host thread (row 1 and on, by depth), for
the timeline; kept beside the spans."""

CPU_OPERATORS = "cpu_operators"
"""Code of the warning that a capture's kernels are CPU operators: no GPU work was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureWarning:
    """Something the user must know about a capture; `code` is stable, snake_case."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTables:
    """Everything read from one capture."""

    kind: CaptureKind
    path: Path
    tool: str
    "`nsys`, `ncu`, `torch`, `csv`."
    tool_version: str | None = None
    gpu: Mapping[str, Any] = field(default_factory=dict)
    "name, compute_capability, num_sms, memory_bytes, ... as far as the capture says; {} if not."
    environment: Mapping[str, Any] = field(default_factory=dict)
    "Versions and settings that are not private: driver, cuda, torch, nsys options."
    summary: Mapping[str, int | float] = field(default_factory=dict)
    """num_kernels, kernel_time_ns, busy_ns, span_ns, idle_frac, opaque_graph_ns,
    num_graph_launches, peak_memory_bytes, num_launches_without_kernel,
    num_kernels_without_launch, ... Absent if unknown."""
    kernels: pd.DataFrame | None = None
    phases: pd.DataFrame | None = None
    api_calls: pd.DataFrame | None = None
    transfers: pd.DataFrame | None = None
    gaps: pd.DataFrame | None = None
    memory_points: pd.DataFrame | None = None
    memory_at_peak: pd.DataFrame | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    "peak_bytes, baseline_bytes, final_bytes, is_partial, oom{requested_bytes, phase, ...}."
    counters: pd.DataFrame | None = None
    rules: pd.DataFrame | None = None
    counter_details: pd.DataFrame | None = None
    counter_sources: pd.DataFrame | None = None
    samples: pd.DataFrame | None = None
    spans: pa.Table | SpanFile | None = None
    ranges: pa.Table | None = None
    host: pa.Table | None = None
    "HOST_COLUMNS."
    ranks: pd.DataFrame | None = None
    "RANK_COLUMNS of `trace.ranks`: a row per process and GPU."
    collectives: pd.DataFrame | None = None
    "COLLECTIVE_COLUMNS of `trace.collectives`: a row a communication kernel."
    steps: pd.DataFrame | None = None
    "STEP_COLUMNS."
    step_facts: Mapping[str, Any] = field(default_factory=dict)
    """How the steps were found, the medians of the regular ones and what those are made of
    (`trace.steps`, `trace.step_figures`); only `reason` where there are none, {} without a
    timeline."""
    step_kernels: pd.DataFrame | None = None
    "STEP_KERNEL_COLUMNS."
    operators: pd.DataFrame | None = None
    "OPERATOR_COLUMNS."
    operator_kernels: pd.DataFrame | None = None
    "OPERATOR_KERNEL_COLUMNS."
    idle_host: pd.DataFrame | None = None
    "IDLE_COLUMNS."
    flame: pd.DataFrame | None = None
    "FLAME_COLUMNS."
    warnings: tuple[CaptureWarning, ...] = ()


RECORDS = ("spans", "ranges", "host")
"""The tables of `CaptureTables` that are kept as files: one row a single operation."""

STEP_TABLES: Mapping[str, tuple[str, ...]] = {
    "steps": STEP_COLUMNS,
    "step_kernels": STEP_KERNEL_COLUMNS,
    "operators": OPERATOR_COLUMNS,
    "operator_kernels": OPERATOR_KERNEL_COLUMNS,
    "idle_host": IDLE_COLUMNS,
    "flame": FLAME_COLUMNS,
}
"""Frames of a capture's steps, operators, idle time and stacks."""

FRAMES: Mapping[str, tuple[str, ...]] = {
    "kernels": KERNEL_COLUMNS,
    "phases": PHASE_COLUMNS,
    "api_calls": API_CALL_COLUMNS,
    "transfers": TRANSFER_COLUMNS,
    "gaps": GAP_COLUMNS,
    "memory_points": MEMORY_POINT_COLUMNS,
    "memory_at_peak": MEMORY_AT_PEAK_COLUMNS,
    "counters": COUNTER_COLUMNS,
    "rules": RULE_COLUMNS,
    "counter_details": COUNTER_DETAIL_COLUMNS,
    "counter_sources": COUNTER_SOURCE_COLUMNS,
    "samples": SAMPLE_COLUMNS,
    **STEP_TABLES,
}
"""The tables of `CaptureTables` that are frames, with their columns; those of ranks, which a run
joins, are not here."""


def empty(columns: tuple[str, ...]) -> pd.DataFrame:
    """Return a frame with these columns and no rows."""
    import pandas as pd

    return pd.DataFrame({c: [] for c in columns})
