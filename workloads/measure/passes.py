"""What surrounds the measured part in the memory and trace passes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from workloads.measure.ranges import Ranges
from workloads.program import Context

PASSES = ("clean", "nsys", "ncu", "memory", "trace")
PROFILED_ITERATIONS = {"nsys": 5, "ncu": 1, "memory": 2, "trace": 5}
"""Iterations under a tool: captures grow with each, and the clean pass has the samples."""
MEMORY_FILE = "memory.pickle"
TRACE_FILE = "trace.json.gz"


def make_ranges(pass_name: str, *, on_gpu: bool) -> Ranges:
    """Return the ranges of a pass: NVTX for Nsight tools, annotations for PyTorch's own."""
    return Ranges(
        nvtx=on_gpu and _has_nvtx(),
        annotations=pass_name in ("trace", "memory"),
        nested=pass_name != "clean",
    )


def _has_nvtx() -> bool:
    import torch

    try:
        torch.cuda.nvtx.range_push("probe")
        torch.cuda.nvtx.range_pop()
    except RuntimeError:
        return False
    return True


class PhasePeaks:
    """Peak of allocated bytes inside each top-level phase, by resetting the allocator's peak."""

    def __init__(self) -> None:
        self.peak_bytes: dict[str, int] = {}

    def at_phase(self, name: str, is_start: bool) -> None:
        import torch

        if is_start:
            torch.cuda.reset_peak_memory_stats()
            return
        peak = torch.cuda.max_memory_allocated()
        self.peak_bytes[name] = max(peak, self.peak_bytes.get(name, 0))


def surround(
    context: Context,
    out: Path,
    captures: list[dict[str, str]],
    warm: Callable[[], Any],
    *,
    is_profiled: bool = True,
) -> AbstractContextManager[None]:
    """Return what to hold open around the measured part; adds the files it wrote to `captures`.

    A rank that is not profiled does the same steps as those that are: collectives need it.
    """
    if context.pass_name == "trace" and not is_profiled:
        warm()
    if not is_profiled:
        return nullcontext()
    if context.pass_name == "memory":
        return _memory_history(context, out, captures)
    if context.pass_name == "trace":
        return _torch_trace(context, out, captures, warm)
    return nullcontext()


@contextmanager
def _memory_history(context: Context, out: Path, captures: list[dict[str, str]]) -> Iterator[None]:
    if not context.on_gpu:
        context.warn(
            "memory_history_unavailable",
            "PyTorch keeps an allocation history on CUDA devices only",
        )
        yield
        return
    start_memory_history()  # again, which forgets build and warm-up: they would drown the rest
    peaks = PhasePeaks()
    context.ranges.at_phase = peaks.at_phase
    try:
        yield
    finally:
        context.ranges.at_phase = None
        context.peak_bytes.update(peaks.peak_bytes)
        dump_memory_history(out, captures)


def start_memory_history() -> None:
    """Record from now on. Begun before the build, so that running out there has its history."""
    import torch

    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(
        enabled="all", context="alloc", stacks="python", max_entries=1_000_000
    )


def dump_memory_history(out: Path, captures: list[dict[str, str]]) -> None:
    """Write the history so far and stop recording."""
    import torch

    torch.cuda.memory._dump_snapshot(str(out / MEMORY_FILE))
    torch.cuda.memory._record_memory_history(enabled=None)
    captures.append({"path": MEMORY_FILE, "kind": "torch_memory"})


@contextmanager
def _torch_trace(
    context: Context, out: Path, captures: list[dict[str, str]], warm: Callable[[], Any]
) -> Iterator[None]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if context.on_gpu:
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(activities=activities)
    profiler.prepare_trace()
    warm()  # the profiler loses kernels right after its start; these are thrown away
    if context.on_gpu:
        torch.cuda.synchronize()
    profiler.start_trace()
    try:
        yield
    finally:
        if context.on_gpu:
            torch.cuda.synchronize()
        profiler.stop_trace()
        profiler.export_chrome_trace(str(out / TRACE_FILE))
        captures.append({"path": TRACE_FILE, "kind": "torch_trace"})
