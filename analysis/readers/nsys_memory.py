"""Device memory asked of CUDA (`--cuda-memory-usage`): a curve a device, and its peak.

These are the driver's allocations. A caching allocator such as PyTorch's asks for large segments,
so this is its reserved memory, not what its tensors use.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.nsys_chunks import Chunks, time_windows
from analysis.readers.nsys_columns import MAX_TIME_NS, ColumnBatches, Ints, missing_columns
from analysis.readers.nsys_events import TID_BITS, Codes, Quarantine, narrow
from analysis.readers.nsys_memory_curve import Curve
from analysis.tables import MEMORY_POINT_COLUMNS, empty
from captures.nsys_database import NsysDatabase

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
ALLOCATION, RELEASE = 0, 1
PINNED, DEVICE, MANAGED, STATIC = 1, 2, 4, 5
NAMES = {PINNED: "pinned", MANAGED: "managed", STATIC: "device_static"}
MAX_BYTES = 1 << 50
_REQUIRED = ("start", "deviceId", "bytes", "memKind", "memoryOperationType")
_COLUMNS = ("start", "device", "kind", "is_release", "bytes", "address")

Pool = tuple[int, int]
"(kind of memory, device); the device of other memory than the GPU's own is -1."


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The curve (MEMORY_POINT_COLUMNS) and its figures; empty without the option."""

    points: pd.DataFrame
    figures: Mapping[str, Any] = field(default_factory=dict)


def load_memory(
    database: NsysDatabase,
    device_of: Mapping[tuple[int, int], int],
    quarantine: Quarantine,
    scratch: Path | None,
) -> MemoryUse:
    """Return allocated device memory after each change; memory from before the capture is added
    as far as its release shows it."""
    curves: dict[Pool, Curve] = {}
    rows = _load(database, device_of, quarantine, scratch, curves)
    if not len(rows):
        return MemoryUse(points=empty(MEMORY_POINT_COLUMNS))
    _fill(rows, curves)
    figures: dict[str, Any] = {"num_events": len(rows), "source": "cuda_allocations"}
    figures |= {
        f"{name}_peak_bytes": curves[kind, -1].peak
        for kind, name in NAMES.items()
        if (kind, -1) in curves
    }
    own = {device: c for (kind, device), c in sorted(curves.items()) if kind == DEVICE}
    if not own:
        return MemoryUse(points=empty(MEMORY_POINT_COLUMNS), figures=figures)
    figures |= {
        "peak_bytes": max(curve.peak for curve in own.values()),
        "baseline_bytes": sum(curve.baseline for curve in own.values()),
        "final_bytes": sum(curve.final for curve in own.values()),
        "is_partial": any(curve.baseline for curve in own.values()),
    }
    frames = [_points(curve, device) for device, curve in own.items()]
    return MemoryUse(points=pd.concat(frames, ignore_index=True), figures=figures)


def _load(
    database: NsysDatabase,
    device_of: Mapping[tuple[int, int], int],
    quarantine: Quarantine,
    scratch: Path | None,
    curves: dict[Pool, Curve],
) -> Chunks:
    """Return the events, and make a curve for each pool that knows its size and addresses."""
    batches = ColumnBatches(
        database=database, table=TABLE, required=_REQUIRED, optional=("globalPid", "address")
    )
    found = Chunks(scratch)
    for batch in batches:
        sound = (batch["bytes"] >= 0) & (batch["bytes"] < MAX_BYTES)
        operation = batch["memoryOperationType"]
        sound &= (operation == ALLOCATION) | (operation == RELEASE)
        sound &= np.abs(batch["start"]) < MAX_TIME_NS
        if not sound.all():
            batches.num_dropped += int((~sound).sum())
            batch = {name: values[sound] for name, values in batch.items()}
        rows = {
            "start": batch["start"],
            "device": _physical(narrow(batch["deviceId"]), batch["globalPid"], device_of),
            "kind": narrow(batch["memKind"]),
            "is_release": batch["memoryOperationType"] == RELEASE,
            "bytes": batch["bytes"],
            "address": batch["address"],
        }
        for pool, own in _pools(rows):
            curves.setdefault(pool, Curve()).expect(rows["address"][own], rows["is_release"][own])
        found.append(rows)
    lacking = missing_columns(database, TABLE, _REQUIRED)
    if lacking:
        quarantine.unreadable[TABLE] = lacking
    quarantine.note_odd(TABLE, batches.num_odd)
    quarantine.note(TABLE, batches.num_dropped, len(found) + batches.num_dropped)
    return found


def _fill(rows: Chunks, curves: Mapping[Pool, Curve]) -> None:
    for low_ns, high_ns in time_windows([rows]):
        window = rows.between(low_ns, high_ns, _COLUMNS)
        if not window:
            continue
        order = np.argsort(window["start"], kind="stable")
        window = {name: values[order] for name, values in window.items()}
        for pool, own in _pools(window):
            curves[pool].add(
                times=window["start"][own],
                sizes=window["bytes"][own],
                addresses=window["address"][own],
                is_release=window["is_release"][own],
            )


def _pools(rows: Mapping[str, NDArray[Any]]) -> Iterator[tuple[Pool, NDArray[np.intp]]]:
    """Give each pool that these rows belong to, and which do."""
    for kind in (DEVICE, *NAMES):
        own = np.flatnonzero(rows["kind"] == kind)
        if kind != DEVICE:
            if len(own):
                yield (kind, -1), own
            continue
        device = rows["device"][own]
        for number in pd.unique(device).tolist():
            yield (kind, number), own[device == number]


def _physical(device: Codes, global_pid: Ints, device_of: Mapping[tuple[int, int], int]) -> Codes:
    """Return the GPU of each event where processes number their devices apart."""
    if not device_of:
        return device
    owner = (global_pid >> TID_BITS) & ((1 << TID_BITS) - 1)
    found = device.copy()
    for (pid, ordinal), gpu in device_of.items():
        found[(owner == pid) & (device == ordinal)] = gpu
    return found


def _points(curve: Curve, device: int) -> pd.DataFrame:
    times, level = curve.points()
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
