"""What a user must know before trusting the numbers of an export, each with its count or share."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_events import GRAPH, KERNEL, GpuOps, Quarantine
from analysis.readers.nsys_facts import Facts
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_nvtx import Ranges
from analysis.tables import CaptureWarning

WINDOW_SLACK_NS = 1_000_000
NO_ACTIVITY_HINTS = (
    "Likely causes: CUDA was not traced (--trace=cuda), the program forked its workers "
    "(--trace-fork-before-exec=true), another CUPTI client such as torch.profiler was active, the "
    "capture range never opened, or the platform (WSL2) or permissions forbid GPU tracing"
)


def _warn(code: str, message: str) -> CaptureWarning:
    return CaptureWarning(code=code, message=message)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "all"


def file_warnings(
    facts: Facts, quarantine: Quarantine, *, has_events: bool
) -> Iterator[CaptureWarning]:
    """Give what concerns the file as such: schema, left-out rows, the tool's own diagnostics."""
    if facts.is_new_schema:
        version = facts.environment.get("nsys_schema_version")
        yield _warn(
            "unknown_schema", f"the export schema {version} is none of those known (up to 3.x)"
        )
    if facts.is_session_lost and has_events:
        yield _warn(
            "session_unknown",
            "ANALYSIS_DETAILS holds no duration that can be: when the recording ended is unknown, "
            "and ranges that were still open then count as closed. The file may be damaged",
        )
    for table, columns in quarantine.unreadable.items():
        yield _warn(
            "missing_columns", f"{table} has no column {', '.join(columns)}: it is not used"
        )
    for table, columns in quarantine.absent.items():
        lacking = ", ".join(columns)
        yield _warn("absent_columns", f"{table} has no column {lacking}: what it says is unknown")
    for table, (dropped, total) in quarantine.dropped.items():
        yield _warn(
            "quarantined_rows",
            f"{table}: {dropped} of {total} rows ({_share(dropped, total)}) are left out: "
            "a value is missing or cannot be (no integer, end before start, absurd time or size)",
        )
    for table, count in quarantine.odd.items():
        yield _warn(
            "odd_values",
            f"{table}: {count} cells hold no value, or one of another type, where the rest of the "
            "column has one: what they say is unknown. The file may be damaged",
        )
    for severity, text, count in facts.diagnostics:
        times = f" ({count} times)" if count > 1 else ""
        level = "error" if severity == 3 else "warning"
        yield _warn("nsys_diagnostic", f"Nsight Systems {level}: {text}{times}")


def work_warnings(
    work: GpuWork, calls: ApiCalls, is_launch: NDArray[np.bool_]
) -> Iterator[CaptureWarning]:
    """Give what is missing between launches and GPU operations; `is_launch` is by kind of call."""
    if len(calls) and len(work):
        yield from _unlaunched(work)
        yield from _unanswered(work, calls, is_launch)
    if work.num_duplicate_ids:
        yield _warn(
            "duplicate_correlation_ids",
            f"{work.num_duplicate_ids} calls repeat a correlation id of their process: "
            "the first call of each id counts as the launch",
        )
    if work.num_early:
        yield _warn(
            "operations_before_launch",
            f"{work.num_early} GPU operations start before their launch: clocks or rows are off",
        )
    if work.num_late:
        yield _warn(
            "operations_after_session",
            f"{work.num_late} GPU operations end more than 1 s after the recorded session",
        )


def repeated_kernels_warning(
    work: GpuWork, launches_one: NDArray[np.bool_]
) -> Iterator[CaptureWarning]:
    """Give the kernels beyond one a launch; `launches_one` is by kind of call, graphs left out."""
    count = int(np.maximum(work.kernels_of - work.answered, 0)[launches_one].sum())
    if count:
        yield _warn(
            "repeated_kernels",
            f"{count} kernels have the launch of another kernel: rows are there twice, and kernel "
            "counts and times are too high by them",
        )


def _unlaunched(work: GpuWork) -> Iterator[CaptureWarning]:
    count, total = work.num_unlaunched, work.num_kernels
    if not count:
        return
    yield _warn(
        "kernels_without_launch",
        f"{count} of {total} kernels ({_share(count, total)}; "
        f"{_share(work.unlaunched_ns, work.total_ns(KERNEL))} of kernel time) "
        "have no recorded launch: no range can claim them",
    )


def _unanswered(
    work: GpuWork, calls: ApiCalls, is_launch: NDArray[np.bool_]
) -> Iterator[CaptureWarning]:
    unanswered = launches_without_work(work, calls, is_launch)
    if not unanswered:
        return
    num_launches = int(calls.sums.count[is_launch].sum())
    yield _warn(
        "launches_without_kernel",
        f"{unanswered} of {num_launches} launch calls "
        f"({_share(unanswered, num_launches)}) have no recorded kernel: captured into a "
        "graph, cut off by the capture's end, or lost",
    )
    owner_of_kind = calls.thread_of_kind >> 24
    busy = set(work.processes[sorted(work.owners)].tolist())
    silent = [p for p in np.unique(owner_of_kind[is_launch]).tolist() if p not in busy]
    for process in silent:
        count = int(calls.sums.count[is_launch & (owner_of_kind == process)].sum())
        yield _warn(
            "process_without_kernels",
            f"process {process & 0xFFFFFF} made {count} launch calls but has no GPU activity",
        )


def launches_without_work(work: GpuWork, calls: ApiCalls, is_launch: NDArray[np.bool_]) -> int:
    """Return how many launch calls no GPU operation refers to."""
    return int((calls.sums.count - work.answered)[is_launch].sum())


def lost_graph_launches(work: GpuWork, calls: ApiCalls, is_graph_call: NDArray[np.bool_]) -> int:
    """Return how many graphs were launched if none of them left a GPU record, else 0."""
    unanswered = launches_without_work(work, calls, is_graph_call)
    return unanswered if unanswered == int(calls.sums.count[is_graph_call].sum()) else 0


def graph_warnings(work: GpuWork, num_lost: int) -> Iterator[CaptureWarning]:
    """Give the share of GPU time that is inside opaque graph launches, and graphs without any."""
    if num_lost:
        yield _warn(
            "graphs_not_recorded",
            f"{num_lost} CUDA graph launches left no GPU record: their time is in no sum and no "
            "share. Capture again with --cuda-graph-trace=node and a newer Nsight Systems",
        )
    opaque, kernel = work.total_ns(GRAPH), work.total_ns(KERNEL)
    if work.num_graphs:
        yield _warn(
            "opaque_graphs",
            f"{100 * opaque / max(opaque + kernel, 1):.5g} % of GPU time is in {work.num_graphs} "
            "CUDA graph launches whose kernels were not recorded: kernel shares cover only the "
            "rest. Capture again with --cuda-graph-trace=node",
        )


def no_activity_warning(
    work: GpuWork, calls: ApiCalls, num_syncs: int, ranges: Ranges
) -> CaptureWarning:
    """Give the state of a capture without kernels, with what is there."""
    copies = len(work)
    there = (
        f"{len(calls)} CUDA API calls, {num_syncs} of them waiting, {copies} copies and memory "
        f"sets, {len(ranges)} ranges"
    )
    if copies:
        return _warn("no_kernels", f"no kernel was recorded; there are {there}")
    return _warn(
        "no_gpu_activity", f"no GPU activity recorded; there are {there}. {NO_ACTIVITY_HINTS}"
    )


def window_warning(ranges: Ranges, facts: Facts) -> Iterator[CaptureWarning]:
    """Say which of the program's ranges reach beyond what was recorded.

    The recording is from 0 to the session's end on the clock of the events.
    """
    end_ns = facts.session_end_ns
    begins_before = (ranges.start_ns < 0) & (ranges.end_ns > 0)
    ends_after = np.zeros(len(ranges), bool)
    if end_ns is not None:
        ends_after = (ranges.start_ns < end_ns) & (ranges.end_ns > end_ns + WINDOW_SLACK_NS)
    chosen = ranges.name[(begins_before | ends_after) & ~ranges.is_library]
    names = dict.fromkeys([*(ranges.names[i] for i in chosen.tolist()), *ranges.cut_names])
    if not names:
        return
    shown = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
    window = "" if end_ns is None else f" (0 to {end_ns / 1e6:.3f} ms)"
    yield _warn(
        "capture_window_short",
        f"the recording{window} does not cover these ranges whole: {shown}. What they did outside "
        "of it is in no sum: let the capture range or duration enclose them",
    )


def range_warnings(ranges: Ranges, num_too_deep: int) -> Iterator[CaptureWarning]:
    """Give the ranges that are not counted."""
    if ranges.num_unclosed:
        cut = ranges.num_closed_by_session_end
        by_tool = f" ({cut} closed by the tool at the session's end)" if cut else ""
        yield _warn(
            "unclosed_ranges",
            f"{ranges.num_unclosed} ranges were never closed by the program{by_tool}: "
            "they are in no sum",
        )
    if ranges.num_cross_thread:
        yield _warn(
            "cross_thread_ranges",
            f"{ranges.num_cross_thread} start/end ranges end on another thread than they began: "
            "launches cannot be given to them and they are in no sum",
        )
    if num_too_deep:
        yield _warn("deep_ranges", f"{num_too_deep} ranges nest deeper than 64 levels: left out")


def name_warnings(
    kernels: GpuOps, calls: ApiCalls, names: Mapping[int, str]
) -> Iterator[CaptureWarning]:
    """Say how many kernels and calls have a name that the file does not hold."""
    is_nameless = np.array(
        [not (a in names or b in names) for a, b in kernels.shapes[:, :2].tolist()], bool
    )
    num_kernels = int(kernels.sums.count[is_nameless].sum())
    is_lost = np.array([i not in names for i in calls.kinds[:, 0].tolist()], bool)
    num_calls = int(calls.sums.count[is_lost].sum())
    if num_kernels or num_calls:
        yield _warn(
            "unknown_names",
            f"the names of {num_kernels} kernels and {num_calls} CUDA calls are not in the file: "
            "they are listed by number and have no class. Export the report again",
        )
