"""The registry of metrics: every number that the product shows, defined once.

Label, unit, meaning, formula and origin; of a run's summary also the name by which runs are
compared, and the column of the list of runs. Summaries, comparison, lists, tooltips and the docs
are made from it; no page words a number on its own. Keys are those of `show --json`: a summary key,
else `TABLE.COLUMN`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.definitions_tables import TABLE_ROWS

_PASS = "nsys capture, else PyTorch trace"
_JOINED = "captures of several ranks on one time axis"
_SIZED = "PyTorch trace, or nsys with NCCL's payloads (--keep-private)"

RANK_ROWS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("num_ranks", "Ranks", "", "Processes of the job, each with a GPU, that captures hold.",
     "count(process, GPU)", _PASS),
    ("communication_frac", "Communication", "fraction",
     "Time in communication kernels, of a rank's span; mean over ranks.",
     "mean(communication_ns / span_ns)", _PASS),
    ("exposed_communication_frac", "Exposed communication", "fraction",
     "Communication that no compute kernel of the same GPU covers, of a rank's span; mean.",
     "mean(exposed_ns / span_ns)", _PASS),
    ("overlap_frac", "Overlap", "fraction",
     "Communication that compute kernels of the same GPU cover, of all communication.",
     "1 - sum(exposed_ns) / sum(communication_ns)", _PASS),
    ("step_skew_ns", "Skew of a step", "ns", "How far apart ranks are; median over steps.",
     "median(rank_steps.skew_ns)", _JOINED),
    ("ranks.compute_ns", "Compute", "ns", "Time in which a kernel that does not communicate ran.",
     "length of the union of those kernels", _PASS),
    ("ranks.communication_ns", "Communication", "ns", "Time in which a communication kernel ran.",
     "length of the union of those kernels", _PASS),
    ("ranks.exposed_ns", "Exposed communication", "ns",
     "Communication that no compute kernel of the same GPU covers.",
     "communication_ns - overlap of the two unions", _PASS),
    ("ranks.bubble_ns", "Pipeline bubble", "ns",
     "Of a stage: its GPU was idle, or in a send or receive that no compute kernel covered.",
     "idle_ns + exposed time of sends and receives", "PyTorch trace"),
    ("ranks.stage", "Pipeline stage", "",
     "Place of a rank in the chain of those that send to and receive from each other.",
     "steps from the chain's end with the lowest rank", "PyTorch trace"),
    ("scaling.efficiency", "Scaling efficiency", "fraction",
     "Throughput (tokens a second) of side B over that of side A, for each GPU; 1 is ideal.",
     "throughput_ratio x ranks_a / ranks_b", "comparison of different numbers of ranks"),
    ("ranks.wait_ns", "Waiting", "ns",
     "Time in collectives before the last rank had started the same one.",
     "length of the union over collectives of own start to last start, at most to the own end",
     _JOINED),
    ("ranks.late_ns", "Late", "ns", "Time that all other ranks waited for this rank alone.",
     "length of the union of last but one start to own start over collectives that it begins last",
     _JOINED),
    ("ranks.offset_ns", "Clock offset", "ns", "What puts a file's clock on the first one's.",
     "median difference of shared collectives' ends, else of the stated UTC times", _JOINED),
    ("ranks.residual_ns", "Clock residual", "ns",
     "How far the ends of shared collectives lie apart after the fit.",
     "median(|end - end on the first clock|)", _JOINED),
    ("collectives.num_bytes", "Size", "B", "The larger of a rank's input and output.",
     "max(elements in, elements out) x bytes of an element", _SIZED),
    ("collectives.algorithm_gbps", "Algorithm bandwidth", "GB/s",
     "Size over the median duration of the kernel, waiting included.",
     "num_bytes / median_ns", _SIZED),
    ("collectives.bus_gbps", "Bus bandwidth", "GB/s",
     "What a link carries, whatever the number n of ranks; NCCL's own definition.",
     "algorithm bandwidth x 2 (n - 1) / n for all-reduce, x (n - 1) / n for all-gather, "
     "reduce-scatter and all-to-all, x 1 else", _SIZED),
    ("collectives.transfer_bus_gbps", "Bus bandwidth of the transfer", "GB/s",
     "Bus bandwidth without the time that waits for the slowest rank.",
     "bus bandwidth of the median of duration - wait_ns", _JOINED),
    ("rank_steps.skew_ns", "Skew", "ns",
     "Largest time between the first and the last rank's arrival at a collective of the step.",
     "max(last start - first start)", _JOINED),
    ("rank_steps.waited_ns", "Waited for the straggler", "ns",
     "Time in the step that all others waited for the rank that was latest.",
     "late_ns of that rank in the step", _JOINED),
)  # fmt: skip


CLEAN = "clean pass (CUDA events, on a CPU its clock; no profiler)"
KERNEL_PASS = "nsys capture, else PyTorch trace"
MEMORY = "PyTorch's counters in the clean pass, memory snapshot, nsys allocation events"
MODEL = "cost model, clean pass and the GPU's peak"


@dataclass(frozen=True, slots=True)
class Definition:
    """What one number means."""

    key: str
    label: str
    unit: str
    "Unit of the stored value; empty for a name or a count."
    meaning: str
    "One sentence."
    formula: str
    "How it is computed, in the names of the stored values; empty where it is read as it is."
    obtained: str
    "Which pass or tool it comes from."
    metric: str = ""
    "Name by which runs are compared (`compare --metric`); empty where they are not."
    is_profiled: bool = False
    "Measured under a profiler, so that the tool's settings matter to a comparison."
    column: str = ""
    "Column of the database's `runs`, by which lists sort and filter; empty without one."
    list_title: str = ""
    "Title in the list of runs, with the unit shown there."
    list_scale: float = 1.0
    "From the stored unit to that of the list."

    def value(self, summary: Mapping[str, Any]) -> Any:
        """Return the number of a run's summary; None where it is unknown."""
        value: Any = summary
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    @property
    def compared_unit(self) -> str:
        """The unit in which it is compared: times in ms, shares without one."""
        return {"ns": "ms", "fraction": ""}.get(self.unit, self.unit)


_SUMMARY_ROWS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("latency_ms", "Latency", "ms", "Time of one measured iteration without a profiler.",
     "see latency_ms.median", CLEAN),
    ("latency_ms.median", "Latency, median", "ms", "Half of the measured iterations are faster.",
     "median of the samples of all processes", CLEAN),
    ("latency_ms.ci95", "Latency, 95 % interval", "ms",
     "Range that holds the median in 95 % of bootstrap resamples.",
     "2.5 % and 97.5 % quantile of medians, resampled by process, then sample", CLEAN),
    ("latency_ms.mean", "Latency, mean", "ms", "Arithmetic mean of the measured iterations.",
     "sum(latency) / n", CLEAN),
    ("latency_ms.std", "Latency, standard deviation", "ms",
     "Spread of the measured iterations.", "sqrt(sum((latency - mean)^2) / (n - 1))", CLEAN),
    ("latency_ms.min", "Latency, fastest", "ms", "The fastest measured iteration.",
     "min(latency)", CLEAN),
    ("latency_ms.max", "Latency, slowest", "ms", "The slowest measured iteration.",
     "max(latency)", CLEAN),
    ("latency_ms.cv", "Latency, variation", "", "Spread relative to the mean.",
     "std / mean", CLEAN),
    ("latency_ms.p95", "Latency, 95th percentile", "ms",
     "95 % of the measured iterations are faster.", "quantile(latency, 0.95)", CLEAN),
    ("latency_ms.fast", "Latency of the fastest quarter", "ms",
     "A quarter of the processes are faster, from 4 processes on. A busy host slows some launch-"
     "bound processes and speeds up none, so it is steadier than the median there.",
     "quantile(medians of the processes, 0.25)", CLEAN),
    ("latency_ms.n", "Samples", "", "Measured iterations over all processes.", "count(latency)",
     CLEAN),
    ("num_kernels", "Kernels", "", "GPU kernel executions recorded.", "count(kernel records)",
     KERNEL_PASS),
    ("kernel_time_ns", "Kernel time", "ns",
     "Sum of kernel durations; kernels that overlap both count.", "sum(end - start)", KERNEL_PASS),
    ("busy_ns", "Busy", "ns", "Time in which at least one kernel ran, summed over devices.",
     "length of the union of kernel intervals per device", KERNEL_PASS),
    ("span_ns", "Span", "ns", "From the first kernel's start to the last kernel's end.",
     "max(end) - min(start) per device, summed", KERNEL_PASS),
    ("idle_frac", "Idle", "fraction",
     "Share of an iteration in which no kernel runs: that of the program itself where a clean pass "
     "measured it (idle_source clean), else that of the profiled capture (profiled), which the "
     "profiler's own cost makes larger. Pages and lists show the steps' own share "
     "(steps.idle_frac) instead of the capture's where the capture was cut into steps.",
     "max(0, 1 - iteration_kernel_ns / latency_ms.median), else profiled_idle_frac",
     f"{CLEAN} and {KERNEL_PASS}"),
    ("idle_source", "Idle, source", "", "Which of the two the idle share is: clean or profiled.",
     "", f"{CLEAN} and {KERNEL_PASS}"),
    ("idle_bounds", "Idle, bounds", "fraction",
     "Between which shares the idle share lies where kernels overlap, or the profiled kernels are "
     "not those of the clean pass; absent where both ends are the same.",
     "1 - iteration_kernel_ns x busy_ns / kernel_time_ns / latency, or profiled_idle_frac",
     f"{CLEAN} and {KERNEL_PASS}"),
    ("profiled_idle_frac", "Idle, profiled", "fraction",
     "Share of the profiled span in which no kernel ran; the profiler slows the host, so about the "
     "most the program itself can idle.", "1 - busy_ns / span_ns", KERNEL_PASS),
    ("iteration_kernel_ns", "Kernel time a step", "ns",
     "Kernel time that belongs to one step; those without a recorded kernel are left out.",
     "median over the regular steps (without a timeline: over marked iterations) of the sum of "
     "(end - start)", KERNEL_PASS),
    ("gemm_frac", "GEMM fraction", "fraction",
     "Share of kernel time in matrix products: GEMM and GEMV kernels, split-K reductions included, "
     "fused attention not.",
     "sum(total_ns of gemm, gemv) / sum(total_ns), opaque graph time in the denominator",
     KERNEL_PASS + "; classes from kernel names"),
    ("attention_frac", "Attention fraction", "fraction",
     "Share of kernel time in fused attention kernels, forward and backward.",
     "sum(total_ns of attention) / sum(total_ns), opaque graph time in the denominator",
     KERNEL_PASS + "; classes from kernel names"),
    ("unclassified_frac", "Not recognised", "fraction",
     "Share of GPU time whose kernels no rule recognises or were not recorded one by one.",
     "(sum(total_ns of unknown) + opaque_graph_ns) / sum(total_ns)", KERNEL_PASS),
    ("opaque_graph_ns", "Opaque graph time", "ns",
     "Time of whole CUDA graph launches whose kernels were not recorded.",
     "sum(end - start) of graph records", "nsys capture in graph mode"),
    ("num_graph_launches", "Graph launches", "", "CUDA graph launches recorded.",
     "count(graph launch calls)", "nsys capture"),
    ("peak_memory_bytes", "Peak memory", "B",
     "Most memory allocated at one time: allocated_bytes; where only the driver's allocations were "
     "recorded, driver_bytes.", "allocated_bytes, else driver_bytes", MEMORY),
    ("requested_bytes", "Peak requested", "B", "Most memory that tensors asked for at one time.",
     "max(sum of requested sizes of live blocks)", "memory snapshot"),
    ("allocated_bytes", "Peak allocated", "B",
     "Most memory in live blocks at one time, as the allocator rounds them.",
     "max_memory_allocated, else max(sum of sizes of live blocks)",
     "PyTorch's counter in the clean pass, else memory snapshot"),
    ("reserved_bytes", "Peak reserved", "B",
     "Most memory that the allocator held at one time, in live blocks or not.",
     "max_memory_reserved, else max(sum of segments)",
     "PyTorch's counter in the clean pass, else memory snapshot"),
    ("driver_bytes", "Taken from the driver", "B",
     "Most device memory that the process had from the CUDA driver at one time: the allocator's "
     "segments and what libraries took themselves.", "max(sum of live driver allocations)",
     "nsys with --cuda-memory-usage"),
    ("memory_sources", "Memory, sources", "",
     "Which source each memory figure is from: allocator, snapshot, trace or driver.", "", MEMORY),
    ("mfu", "MFU", "fraction",
     "Model FLOP utilisation: arithmetic of the cost model as a share of the peak rate.",
     "flops / latency / peak FLOP/s of the dtype; above 1 it is an error, not a figure", MODEL),
    ("mbu", "MBU", "fraction",
     "Model bandwidth utilisation: bytes of the cost model as a share of the memory peak "
     "(measured: the fastest of copying, reading and adding).",
     "bytes / latency / peak B/s; above 1 it is an error, not a figure", MODEL),
    ("num_kernels_without_launch", "Kernels without launch", "",
     "Kernels whose launching call was not recorded.", "count", "nsys capture"),
    ("num_launches_without_kernel", "Launches without kernel", "",
     "Launch calls whose kernel was not recorded.", "count", "nsys capture"),
    ("num_api_calls", "CUDA calls", "", "CUDA calls of the host that were recorded.",
     "count(call records)", KERNEL_PASS),
    ("capture_window_ns", "Recorded", "ns", "How long the profiler recorded.",
     "duration of the session, on the clock of the events", "nsys capture"),
    ("event_window_ns", "Events", "ns",
     "From the first to the last kernel, copy, call or range; much less than what was recorded "
     "means that recording went on around the work, more that ranges began before it.",
     "max(end) - min(start) over all events", KERNEL_PASS),
    ("median_gap_ns", "Median gap", "ns",
     "Idle time between a device's successive GPU operations: about a launch where the host is the "
     "limit, nearly nothing inside a CUDA graph.",
     "median of start - the latest end before it, where positive", KERNEL_PASS),
    ("num_quarantined", "Left out", "",
     "GPU operations whose duration cannot be; they are in no sum.", "count", "PyTorch trace"),
    ("num_kernels_before_launch", "Before their launch", "",
     "Kernels that start before the call that launched them: clocks are off.", "count",
     "PyTorch trace"),
    ("noise_floor_frac", "Noise floor", "fraction",
     "Difference that the same job shows against itself on this GPU; less is no difference.",
     "(max - min) / median of the medians of 6 processes, of a GPU-bound and of a launch-bound job:"
     " a comparison takes the run's own kind, the larger where that is not known",
     "warpboard doctor --measure"),
)  # fmt: skip


_USES: Mapping[str, Mapping[str, Any]] = {
    "latency_ms.median": {"metric": "latency", "column": "latency_ms", "list_title": "latency ms"},
    "latency_ms.n": {"column": "num_samples", "list_title": "samples"},
    "kernel_time_ns": {
        "metric": "kernel_time",
        "is_profiled": True,
        "column": "kernel_time_ns",
    },
    "iteration_kernel_ns": {
        "column": "step_kernel_ns",
        "list_title": "kernel ms / step",
        "list_scale": 1e-6,
    },
    "busy_ns": {"metric": "busy", "is_profiled": True},
    "span_ns": {"metric": "span", "is_profiled": True},
    "peak_memory_bytes": {
        "metric": "peak_memory",
        "column": "peak_memory_bytes",
        "list_title": "peak memory GB",
        "list_scale": 1e-9,
    },
    "requested_bytes": {"metric": "requested_memory"},
    "reserved_bytes": {"metric": "reserved_memory"},
    "driver_bytes": {"metric": "driver_memory", "is_profiled": True},
    "idle_frac": {
        "metric": "idle_frac",
        "column": "idle_frac",
        "list_title": "idle %",
        "list_scale": 100,
    },
    "profiled_idle_frac": {"metric": "profiled_idle_frac", "is_profiled": True},
    "gemm_frac": {
        "metric": "gemm_frac",
        "is_profiled": True,
        "column": "gemm_frac",
        "list_title": "GEMM %",
        "list_scale": 100,
    },
    "attention_frac": {"metric": "attention_frac", "is_profiled": True},
    "mfu": {"metric": "mfu"},
    "mbu": {"metric": "mbu"},
}
"""What is done with a number of the summary besides showing it on the run's page."""


DEFINITIONS: dict[str, Definition] = {
    row[0]: Definition(*row, **_USES.get(row[0], {}))
    for row in (*_SUMMARY_ROWS, *TABLE_ROWS, *RANK_ROWS)
}
"""Every definition by key, in the order of the docs."""


COMPARED: dict[str, Definition] = {d.metric: d for d in DEFINITIONS.values() if d.metric}
"""The summary's numbers by which runs are compared, by their name there."""
LISTED: tuple[Definition, ...] = tuple(d for d in DEFINITIONS.values() if d.list_title)
"""The numbers in the list of runs."""


def columns_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run's row holds of its summary: the numbers that lists sort and filter by."""
    low, high = (summary.get("latency_ms") or {}).get("ci95") or (None, None)
    columns = {d.column: d.value(summary) for d in DEFINITIONS.values() if d.column}
    return columns | {"latency_lo_ms": low, "latency_hi_ms": high}


def unit_of(key: str) -> str:
    """Return the unit of a number of the summary; by its name's ending where it has no entry."""
    if key in DEFINITIONS:
        return DEFINITIONS[key].unit or "count"
    endings = (("_ns", "ns"), ("_bytes", "B"), ("_frac", "fraction"))
    return next((unit for end, unit in endings if key.endswith(end)), "count")


def define(key: str) -> Definition:
    """Return the definition of a key; KeyError for a number that has none (a bug)."""
    return DEFINITIONS[key]


def tooltip(key: str) -> str:
    """Return the definition as one line: meaning, formula, where it comes from."""
    definition = define(key)
    formula = f" Formula: {definition.formula}." if definition.formula else ""
    unit = f" Unit: {definition.unit}." if definition.unit else ""
    return f"{definition.meaning}{formula}{unit} From: {definition.obtained}."
