"""A run's memory: each figure from one named source, never mixed.

From the inside out, each holds the one before:

    requested   what tensors asked for                       memory snapshot
    allocated   blocks as the allocator rounds them          its counter, else the snapshot
    reserved    what the allocator holds, in use or not      its counter, else the snapshot
    driver      what the process took from the driver        nsys

The counters are `max_memory_allocated` and `max_memory_reserved` of the clean pass. A counter of 0
is not a measurement: the program ran in another process, or without PyTorch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.rundata import RunCapture
from analysis.tables import CaptureKind, CaptureWarning
from core.states import Pass

ALLOCATOR = "allocator"
SNAPSHOT = "snapshot"
TRACE = "trace"
DRIVER = "driver"
_SOURCE_OF = {CaptureKind.MEMORY_SNAPSHOT: SNAPSHOT, CaptureKind.TORCH_TRACE: TRACE}
_KEYS = {
    "requested_bytes": ((SNAPSHOT, "peak_bytes"),),
    "allocated_bytes": (
        (ALLOCATOR, "peak_allocated_bytes"),
        (SNAPSHOT, "peak_allocated_bytes"),
        (TRACE, "peak_bytes"),
    ),
    "reserved_bytes": (
        (ALLOCATOR, "peak_reserved_bytes"),
        (SNAPSHOT, "peak_reserved_bytes"),
        (TRACE, "peak_reserved_bytes"),
    ),
    "driver_bytes": ((DRIVER, "peak_bytes"),),
}
"""Each figure of the summary: its sources, the best first, and its name there."""


def captured_memory(by_pass: Mapping[str, Sequence[RunCapture]]) -> dict[str, dict[str, Any]]:
    """Return source -> what its captures say of memory; of several captures the highest peak."""
    by_source: dict[str, dict[str, Any]] = {}
    for name in (Pass.MEMORY, Pass.NSYS, Pass.TRACE):
        for capture in by_pass.get(str(name), ()):
            memory = dict(capture.tables.memory)
            source = _SOURCE_OF.get(capture.tables.kind, DRIVER)
            known = by_source.get(source, {})
            if memory and (memory.get("peak_bytes") or 0) >= (known.get("peak_bytes") or 0):
                by_source[source] = memory
    return by_source


def memory_summary(
    counters: Mapping[str, int], captured: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return requested, allocated, reserved and driver bytes (peaks), and `memory_sources`.

    `num_alloc_retries`: how often the allocator found the memory full, gave back what was cached
    and asked again; absent where it never did, or where nothing counted it. `peak_memory_bytes` is
    the allocated one; of a capture of the driver alone, the driver's.
    """
    sources = {ALLOCATOR: counters, **captured}
    figures: dict[str, Any] = {}
    named: dict[str, str] = {}
    for key, places in _KEYS.items():
        for source, name in places:
            value = sources.get(source, {}).get(name)
            if value:
                figures[key], named[key] = int(value), source
                break
    if figures.get("driver_bytes", 0) < figures.get("reserved_bytes", 0):
        figures.pop("driver_bytes", None)  # of another pass, which took less: see pass_differs
        named.pop("driver_bytes", None)
    if counters.get("num_alloc_retries"):
        figures["num_alloc_retries"] = counters["num_alloc_retries"]
    for key in ("allocated_bytes", "driver_bytes"):
        if key in figures:
            figures["peak_memory_bytes"], named["peak_memory_bytes"] = figures[key], named[key]
            break
    return figures | ({"memory_sources": named} if named else {})


def pass_differs(
    summary: Mapping[str, Any], captured: Mapping[str, Mapping[str, Any]]
) -> CaptureWarning | None:
    """Say that the profiled pass took less from the driver than the clean pass held, if it did."""
    driver = captured.get(DRIVER, {}).get("peak_bytes")
    reserved = summary.get("reserved_bytes")
    if driver is None or reserved is None or driver >= reserved:
        return None
    message = (
        f"The profiled pass took {driver / 1e6:.1f} MB from the driver, less than the "
        f"{reserved / 1e6:.1f} MB that the allocator of another pass held: the driver's figure is "
        "not that of the clean pass and is not shown."
    )
    return CaptureWarning(code="memory_passes_differ", message=message)


def memory_document(captured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is shown of the curve: the best source's figures, the driver's apart."""
    first = next((s for s in (SNAPSHOT, TRACE, DRIVER) if s in captured), None)
    if first is None:
        return {}
    document = {**captured[first], "source": first}
    return document | (
        {"driver": dict(captured[DRIVER])} if first != DRIVER and DRIVER in captured else {}
    )
