"""What a user must know of the phases, the calls and the memory that came out of an export."""

from collections.abc import Iterator
from typing import Any

from analysis.readers.nsys_memory import MemoryUse
from analysis.readers.nsys_pass import InOrder
from analysis.readers.nsys_phases import Phases
from analysis.tables import CaptureWarning


def attribution_warnings(seen: InOrder, found: Phases) -> Iterator[CaptureWarning]:
    """Say which operations no range got, and by which rule the others were given."""
    if seen.num_ambiguous:
        yield CaptureWarning(
            code="ambiguous_ranges",
            message=f"{seen.num_ambiguous} GPU operations come from threads without a range while "
            "several threads of the process had one open: they are given to none",
        )
    if seen.by_device_time and len(found.frame) and seen.num_operations:
        yield CaptureWarning(
            code="ranges_by_device_time",
            message="no API call was recorded: kernels are given to the ranges in which they ran, "
            "not to those that launched them",
        )
    if found.num_left_out:
        yield CaptureWarning(
            code="phases_left_out",
            message=f"{found.num_left_out} range paths are not listed: only the {len(found.frame)} "
            "shallowest and longest are",
        )
    if found.num_uncounted:
        yield CaptureWarning(
            code="straddling_launches",
            message=f"{found.num_uncounted} ranges include launches that outlast them",
        )


def failed_call_warnings(api_calls: Any) -> Iterator[CaptureWarning]:
    """Name the calls that failed."""
    failed = api_calls[api_calls["num_failed"] > 0] if len(api_calls) else api_calls
    if len(failed):
        named = ", ".join(f"{r.name} ({r.num_failed})" for r in _named(failed.head(5)))
        total = int(failed["num_failed"].sum())
        yield CaptureWarning(code="failed_api_calls", message=f"{total} CUDA calls failed: {named}")


def _named(frame: Any) -> list[Any]:
    return list(frame.itertuples(index=False))


def memory_warnings(memory: MemoryUse) -> Iterator[CaptureWarning]:
    """Say what the curve of allocations cannot know."""
    if memory.figures.get("is_partial"):
        size = memory.figures["baseline_bytes"]
        yield CaptureWarning(
            code="memory_before_capture",
            message=f"{size} bytes were allocated before the capture, as their release shows; what "
            "was never released is unknown, so the curve is partial",
        )
