"""Memory in use after each allocation or release: a curve a device, and its peak.

Events of the driver are a caching allocator's segments: its reserved memory, not what tensors use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.memory_curve import STORED_POINTS, rows_to_keep
from analysis.tables import MEMORY_POINT_COLUMNS, empty
from analysis.trace.model import Allocations, Int64s

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
