"""What was not recorded, and what a user must know before trusting the numbers of a timeline."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.tables import CaptureWarning
from analysis.trace.attribution import Attribution
from analysis.trace.calls import Launches, named, of_launch
from analysis.trace.gaps import DeviceUse
from analysis.trace.model import OpKind, Trace
from analysis.trace.phases import Phases
from analysis.trace.ranges import PhaseRanges
from core.numbers import decimal
from core.trace_rules import is_wait

LATE_NS = 1_000_000_000
NO_ACTIVITY_HINTS = (
    "Likely causes: CUDA was not traced (--trace=cuda), the program forked its workers "
    "(--trace-fork-before-exec=true), another CUPTI client such as torch.profiler was active, the "
    "capture range never opened, or the platform (WSL2) or permissions forbid GPU tracing"
)


def warn(code: str, message: str) -> CaptureWarning:
    """Return a warning."""
    return CaptureWarning(code=code, message=message)


def share(part: int, whole: int) -> str:
    """Return e.g. `12.5 %`."""
    return f"{100 * part / whole:.1f} %" if whole else "all"


def coverage_warnings(
    trace: Trace, launches: Launches, devices: tuple[DeviceUse, ...]
) -> Iterator[CaptureWarning]:
    """Warn of launches without GPU operations and operations without launches."""
    if not devices:
        yield _no_activity(trace)
    yield from _graphs(trace, launches)
    if len(trace.host_calls) and len(trace.gpu_ops):
        yield from _unlaunched(trace)
        yield from _unanswered(trace, launches)
    yield from _times(trace)
    if launches.num_repeated:
        yield warn(
            "repeated_kernels",
            f"{launches.num_repeated} kernels have the launch of another kernel: rows are there "
            "twice, and kernel counts and times are too high by them",
        )


def duplicate_id_warning(num_repeats: int) -> Iterator[CaptureWarning]:
    """Say how many calls share process and correlation id with an earlier one."""
    if num_repeats:
        yield warn(
            "duplicate_correlation_ids",
            f"{num_repeats} calls repeat a correlation id of their process: "
            "the first call of each id counts as the launch",
        )


def lost_events_warnings(trace: Trace, steps: pd.DataFrame) -> Iterator[CaptureWarning]:
    """Say of which processes the last steps have no CUDA event while those before them have.

    Of several processes that a profiler watches, it ends with the first one that is done, and may
    lose what it had not yet fetched from the others. Ranges come another way.
    """
    if not len(steps) or not len(trace.host_calls):
        return
    for process, own in steps.groupby("process", sort=True):
        is_empty = ((own["num_api_calls"].fillna(0) == 0) & (own["num_kernels"] == 0)).to_numpy()
        num_lost = int(np.argmin(is_empty[::-1])) if not is_empty.all() else 0
        if not num_lost or is_empty[:-num_lost].mean() > 0.5:
            continue
        row = int(str(process))
        whose = f"process {trace.sources.processes[row].pid}" if row >= 0 else "unknown process"
        yield warn(
            "cuda_events_lost",
            f"{whose}: the last {num_lost} of {len(own)} steps have no CUDA event, though "
            "their ranges are there: the profiler lost them. Kernel counts and times of this "
            "process and its rank are of the steps before; steps are compared without these",
        )


def _no_activity(trace: Trace) -> CaptureWarning:
    num_waits = int(named(trace, is_wait).sum())
    copies = len(trace.gpu_ops)
    there = (
        f"{len(trace.host_calls)} CUDA API calls, {num_waits} of them waiting, {copies} copies and "
        f"memory sets, {len(trace.host_ranges)} ranges"
    )
    if copies:
        return warn("no_kernels", f"no kernel was recorded; there are {there}")
    return warn(
        "no_gpu_activity", f"no GPU activity recorded; there are {there}. {NO_ACTIVITY_HINTS}"
    )


def _graphs(trace: Trace, launches: Launches) -> Iterator[CaptureWarning]:
    """Give the share of GPU time that is inside opaque graph launches, and graphs without any."""
    if launches.num_lost_graphs:
        yield warn(
            "graphs_not_recorded",
            f"{launches.num_lost_graphs} CUDA graph launches left no GPU record: their time is in "
            "no sum and no share. Capture again with --cuda-graph-trace=node and a newer Nsight "
            "Systems",
        )
    ops = trace.gpu_ops
    is_graph = ops.kind == OpKind.GRAPH
    if not is_graph.any():
        return
    duration = ops.end_ns - ops.start_ns
    opaque = int(duration[is_graph].sum())
    kernel = int(duration[ops.kind == OpKind.KERNEL].sum())
    yield warn(
        "opaque_graphs",
        f"{decimal(100 * opaque / max(opaque + kernel, 1), 5)} % of GPU time is in "
        f"{int(is_graph.sum())} CUDA graph launches whose kernels were not recorded: kernel "
        "shares cover only the rest. Capture again with --cuda-graph-trace=node",
    )


def _unlaunched(trace: Trace) -> Iterator[CaptureWarning]:
    ops = trace.gpu_ops
    is_kernel = ops.kind == OpKind.KERNEL
    is_alone = is_kernel & (ops.launch < 0)
    if not is_alone.any():
        return
    duration = ops.end_ns - ops.start_ns
    count, total = int(is_alone.sum()), int(is_kernel.sum())
    of_time = share(int(duration[is_alone].sum()), int(duration[is_kernel].sum()))
    yield warn(
        "kernels_without_launch",
        f"{count} of {total} kernels ({share(count, total)}; {of_time} of kernel time) "
        "have no recorded launch: no range can claim them",
    )


def _unanswered(trace: Trace, launches: Launches) -> Iterator[CaptureWarning]:
    num_launches = int(launches.is_launch.sum())
    num_captured = int(launches.is_captured.sum())
    if num_captured:
        yield warn(
            "launches_captured",
            f"{num_captured} of {num_launches} launch calls were captured into a CUDA graph "
            "(between the begin and the end of a stream's capture): they run when it is launched",
        )
    unanswered = launches.num_unanswered
    if unanswered:
        yield warn(
            "launches_without_kernel",
            f"{unanswered} of {num_launches} launch calls "
            f"({share(unanswered, num_launches)}) have no recorded kernel: captured into a "
            "graph, cut off by the capture's end, or lost",
        )
        yield from _silent_processes(trace, launches)


def _silent_processes(trace: Trace, launches: Launches) -> Iterator[CaptureWarning]:
    owner = trace.thread_process()[trace.host_calls.thread[launches.is_launch]]
    count = np.bincount(owner[owner >= 0], minlength=len(trace.sources.processes))
    busy = set(np.flatnonzero(np.bincount(trace.gpu_ops.process + 1)[1:]).tolist())
    for process in np.flatnonzero(count).tolist():
        if process not in busy:
            yield warn(
                "process_without_kernels",
                f"process {trace.sources.processes[process].pid} made {count[process]} launch "
                "calls but has no GPU activity",
            )


def _times(trace: Trace) -> Iterator[CaptureWarning]:
    ops = trace.gpu_ops
    launch_ns = of_launch(trace.host_calls.start_ns, ops.launch, np.iinfo(np.int64).min)
    num_early = int((ops.start_ns < launch_ns).sum())
    if num_early:
        yield warn(
            "operations_before_launch",
            f"{num_early} GPU operations start before their launch: clocks or rows are off",
        )
    end_ns = trace.sources.session_end_ns
    num_late = 0 if end_ns is None else int((ops.end_ns > end_ns + LATE_NS).sum())
    if num_late:
        yield warn(
            "operations_after_session",
            f"{num_late} GPU operations end more than 1 s after the recorded session",
        )


def phase_warnings(
    trace: Trace, ranges: PhaseRanges, given: Attribution, phases: Phases
) -> Iterator[CaptureWarning]:
    """Warn of operations attributed to no range, and name the rule used for the others."""
    if ranges.num_too_deep:
        yield warn(
            "deep_ranges", f"{ranges.num_too_deep} ranges nest deeper than 64 levels: left out"
        )
    if given.num_ambiguous:
        yield warn(
            "ambiguous_ranges",
            f"{given.num_ambiguous} GPU operations come from threads without a range while "
            "several threads of the process had one open: they are given to none",
        )
    if given.is_by_device_time and len(phases.frame) and len(trace.gpu_ops):
        yield warn(
            "ranges_by_device_time",
            "no launch was recorded: kernels are given to the ranges in which they began, "
            "not to those that launched them",
        )
    if phases.num_left_out:
        yield warn(
            "phases_left_out",
            f"{phases.num_left_out} range paths are not listed: only the {len(phases.frame)} "
            "shallowest and longest are",
        )
    if phases.num_straddled:
        yield warn(
            "straddling_launches",
            f"{phases.num_straddled} ranges include launches that outlast them",
        )


def failed_call_warnings(api_calls: pd.DataFrame) -> Iterator[CaptureWarning]:
    """Name the calls that failed."""
    failed = api_calls[api_calls["num_failed"] > 0] if len(api_calls) else api_calls
    if len(failed):
        rows = failed.head(5)[["name", "num_failed"]].itertuples(index=False)
        named_calls = ", ".join(f"{name} ({count})" for name, count in rows)
        total = int(failed["num_failed"].sum())
        yield warn("failed_api_calls", f"{total} CUDA calls failed: {named_calls}")


def memory_warnings(figures: dict[str, int]) -> Iterator[CaptureWarning]:
    """Warn about what the allocation curve cannot show."""
    if figures.get("is_partial"):
        yield warn(
            "memory_before_capture",
            f"{figures['baseline_bytes']} bytes were allocated before the capture, as their release"
            " shows; what was never released is unknown, so the curve is partial",
        )
