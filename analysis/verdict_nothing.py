"""What is said of a run without kernels, or whose kernels took no time: never a limit."""

from analysis.runview import RunView
from analysis.tables import CaptureKind
from analysis.verdict_busy import BusyLimit
from analysis.verdict_facts import counted, milliseconds

_CHECK = (
    "Check that the program uses the GPU, that nsys traces cuda, and that counters or tracing are "
    "permitted (WSL2 and some containers record API calls only)"
)
_GRAPH_NODES = (
    "Record again with --cuda-graph-trace=node and a newer Nsight Systems to see the kernels"
)


def nothing_recorded(view: RunView, *, is_cpu: bool) -> BusyLimit:
    """Return what a run without a kernel table holds instead, and what to record."""
    calls = int(view.api_calls["count"].sum()) if len(view.api_calls) else 0
    evidence = (f"{counted(calls, 'CUDA API call')} recorded, but no kernel",) if calls else ()
    graphs = int(view.summary.get("num_graph_launches") or 0)
    if view.primary_pass is None:
        headline = "Cannot tell what limits it: no profile was recorded"
        step = f"Run again with the {'trace' if is_cpu else 'nsys'} profiler"
    elif is_cpu:
        headline, step = "No operators recorded", "Check that the program runs PyTorch operators"
    elif graphs:
        headline = (
            f"{counted(graphs, 'CUDA graph launch')} left no GPU record: their time is unknown"
        )
        step = _GRAPH_NODES
    elif len(view.transfers):
        count, total_ns = (int(view.transfers[c].sum()) for c in ("count", "total_ns"))
        headline = f"No kernel was recorded, only copies and memory sets: {milliseconds(total_ns)}"
        evidence = (counted(count, "copy or memory set", "copies and memory sets"), *evidence)
        step = "Check that the program's kernels run while the profiler records"
    elif _are_left_out(view):
        headline = "Cannot tell what limits it: no recorded kernel has a time that can be"
        step = "Record again with a newer profiler; see the warnings for what was left out"
    elif _are_summaries(view):
        headline = "Cannot tell what limits it: the imported summary lists no kernels"
        step = "Import the SQLite export, or the kernel summary (cuda_gpu_kern_sum) too"
    else:
        headline, step = "No GPU activity recorded", _CHECK
    return BusyLimit(kind="unknown", headline=headline, evidence=evidence, next_steps=(step,))


def _are_left_out(view: RunView) -> bool:
    """True where a reader put kernels aside: there was GPU work."""
    return any(
        w.code == "quarantined_events" or (w.code == "quarantined_rows" and "_KERNEL" in w.message)
        for w in view.warnings
    )


def _are_summaries(view: RunView) -> bool:
    """True where the captures are reports of `nsys stats`, each of one kind of event."""
    kinds = set(view.captures["kind"]) if "kind" in view.captures else set()
    return kinds == {CaptureKind.NSYS_CSV}


def no_durations(*, is_cpu: bool) -> BusyLimit:
    """Return what is said where all kernels (or CPU operators) are recorded with 0 ns."""
    what = "operators" if is_cpu else "kernels"
    return BusyLimit(
        kind="cpu" if is_cpu else "unknown",
        headline=f"Cannot tell what limits it: all recorded {what} have a duration of 0",
        evidence=(),
        next_steps=("Record again with a newer profiler, or a part that does more work",),
    )
