"""Device memory asked of CUDA (`--cuda-memory-usage`): a curve a device, and its peak.

These are the driver's allocations. A caching allocator such as PyTorch's asks for large segments,
so this is its reserved memory, not what its tensors use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.readers.nsys_arrays import GrowingArrays
from analysis.readers.nsys_columns import MAX_TIME_NS, ColumnBatches, Ints
from analysis.readers.nsys_database import NsysDatabase
from analysis.readers.nsys_events import TID_BITS, Codes, Quarantine, narrow
from analysis.tables import MEMORY_POINT_COLUMNS, empty

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
ALLOCATION, RELEASE = 0, 1
PINNED, DEVICE, MANAGED, STATIC = 1, 2, 4, 5
MAX_POINTS = 5_000
MAX_BYTES = 1 << 50
_TYPES = {
    "start": np.int64,
    "deviceId": np.int32,
    "bytes": np.int64,
    "memKind": np.int32,
    "memoryOperationType": np.int8,
    "address": np.int64,
}
_COLUMNS = ("start", "deviceId", "bytes", "memKind", "memoryOperationType")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The curve (MEMORY_POINT_COLUMNS) and its figures; empty without the option."""

    points: pd.DataFrame
    figures: Mapping[str, Any] = field(default_factory=dict)


def load_memory(
    database: NsysDatabase, device_of: Mapping[tuple[int, int], int], quarantine: Quarantine
) -> MemoryUse:
    """Return allocated device memory after each change; memory from before the capture is added
    as far as its release shows it."""
    data = _load(database, device_of, quarantine)
    if len(data["start"]) == 0:
        return MemoryUse(points=empty(MEMORY_POINT_COLUMNS))
    figures: dict[str, Any] = {"num_events": len(data["start"]), "source": "cuda_allocations"}
    for kind, name in ((PINNED, "pinned"), (MANAGED, "managed"), (STATIC, "device_static")):
        used = data["memKind"] == kind
        if used.any():
            figures[f"{name}_peak_bytes"] = _curve(data, used)[3]
    frames, peaks, baselines, finals = [], [], [], []
    for device in np.unique(data["deviceId"][data["memKind"] == DEVICE]).tolist():
        times, level, baseline, peak = _curve(
            data, (data["memKind"] == DEVICE) & (data["deviceId"] == device)
        )
        frames.append(_points(times, level, device))
        peaks.append(peak)
        baselines.append(baseline)
        finals.append(int(level[-1]))
    if not frames:
        return MemoryUse(points=empty(MEMORY_POINT_COLUMNS), figures=figures)
    figures |= {
        "peak_bytes": max(peaks),
        "baseline_bytes": sum(baselines),
        "final_bytes": sum(finals),
        "is_partial": any(baselines),
    }
    return MemoryUse(points=pd.concat(frames, ignore_index=True), figures=figures)


def _load(
    database: NsysDatabase, device_of: Mapping[tuple[int, int], int], quarantine: Quarantine
) -> dict[str, Ints]:
    batches = ColumnBatches(
        database=database, table=TABLE, required=_COLUMNS, optional=("globalPid", "address")
    )
    found = GrowingArrays(_TYPES, expected=database.expected_rows(TABLE))
    for batch in batches:
        sound = (batch["bytes"] >= 0) & (batch["bytes"] < MAX_BYTES)
        operation = batch["memoryOperationType"]
        sound &= (operation == ALLOCATION) | (operation == RELEASE)
        sound &= np.abs(batch["start"]) < MAX_TIME_NS
        if not sound.all():
            batches.num_dropped += int((~sound).sum())
            batch = {name: values[sound] for name, values in batch.items()}
        device = _physical(narrow(batch["deviceId"]), batch["globalPid"], device_of)
        found.append({**batch, "deviceId": device, "memKind": narrow(batch["memKind"])})
    quarantine.note(TABLE, batches.num_dropped, len(found) + batches.num_dropped)
    return {name: found[name] for name in _TYPES}


def _physical(device: Codes, global_pid: Ints, device_of: Mapping[tuple[int, int], int]) -> Codes:
    """Return the GPU of each event where processes number their devices apart."""
    if not device_of:
        return device
    owner = (global_pid >> TID_BITS) & ((1 << TID_BITS) - 1)
    found = device.copy()
    for (pid, ordinal), gpu in device_of.items():
        found[(owner == pid) & (device == ordinal)] = gpu
    return found


def _curve(data: dict[str, Ints], used: np.ndarray) -> tuple[Ints, Ints, int, int]:
    """Return times, level after each change, what was live before the capture, and the peak."""
    chosen = np.flatnonzero(used)
    times = data["start"][chosen]
    if (times[1:] < times[:-1]).any():
        order = np.argsort(times, kind="stable")
        chosen, times = chosen[order], times[order]
    is_release = data["memoryOperationType"][chosen] == RELEASE
    level = data["bytes"][chosen]
    address = data["address"][chosen]
    releases = np.flatnonzero(is_release)
    known = np.sort(pd.unique(address[~is_release]))
    is_foreign = ~_is_among(address[releases], known)
    foreign_bytes = int(level[releases[is_foreign]].sum())
    np.negative(level, out=level, where=is_release)
    np.cumsum(level, out=level)
    baseline = max(foreign_bytes, -int(level.min()), 0)
    level += baseline
    return times, level, baseline, max(int(level.max()), baseline)


def _is_among(values: Ints, ordered: Ints) -> np.ndarray:
    if len(ordered) == 0:
        return np.zeros(len(values), bool)
    at = np.searchsorted(ordered, values)
    np.minimum(at, len(ordered) - 1, out=at)
    return ordered[at] == values


def _points(times: Ints, level: Ints, device: int) -> pd.DataFrame:
    """Return the curve, at most MAX_POINTS: of more, the highest of each stretch is kept."""
    if len(times) > MAX_POINTS:
        edges = np.linspace(0, len(times), MAX_POINTS, dtype=np.int64)[:-1]
        highest = np.maximum.reduceat(level, edges)
        times, level = times[edges], highest
    return pd.DataFrame(
        {
            "time_ns": times,
            "device": np.full(len(times), device),
            "allocated_bytes": level,
            "reserved_bytes": pd.array([pd.NA] * len(times), dtype="Int64"),
            "phase": None,
        },
        columns=list(MEMORY_POINT_COLUMNS),
    )
