"""Read a PyTorch CUDA memory snapshot: the curve, its peak and the blocks live at the peak.

The format is `torch.cuda.memory._snapshot()` pickled, as read from PyTorch 2.1 to 2.11. Peak,
baseline, final and sites count what was asked for; `peak_allocated_bytes` and the curve's
`allocated_bytes` count blocks as the allocator rounds them, a little below `max_memory_allocated`.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.memory_curve import STORED_POINTS, rows_to_keep
from analysis.readers.memory.replay import DeviceHistory, Point, replay
from analysis.readers.memory.sites import PhaseFinder
from analysis.tables import (
    MEMORY_AT_PEAK_COLUMNS,
    MEMORY_POINT_COLUMNS,
    CaptureKind,
    CaptureTables,
    CaptureWarning,
)
from captures.opening import clean_text, reading
from captures.snapshot import REMEDY, load_snapshot_data
from core.errors import CaptureError


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The validated top level of a snapshot file."""

    segments: list[Mapping[str, Any]]
    traces: list[list[Mapping[str, Any]]]
    annotations: list[Mapping[str, Any]]
    settings: Mapping[str, Any]


def read_memory_snapshot(path: Path, *, is_sound: bool = False) -> CaptureTables:
    """Return memory, memory_points and memory_at_peak; CaptureError where the file is damaged.

    `is_sound`: as in `load_snapshot_data`.
    """
    with reading(path):
        snapshot = load_snapshot(path, is_sound=is_sound)
        try:
            histories = _replay_all(snapshot)
        except (KeyError, TypeError, AttributeError, OverflowError) as exc:
            raise CaptureError(
                path, f"an allocator record is not in PyTorch's format ({exc!r})", REMEDY
            ) from exc
        except ValueError as exc:
            raise CaptureError(path, str(exc), REMEDY) from exc
    return _tables(path, snapshot, histories)


def load_snapshot(path: Path, *, is_sound: bool = False) -> Snapshot:
    """Return the snapshot in a pickle that holds data only, its shape checked."""
    loaded = load_snapshot_data(path, is_sound=is_sound)
    return Snapshot(
        segments=loaded["segments"],
        traces=loaded.get("device_traces", []),
        annotations=loaded.get("external_annotations") or [],
        settings=loaded.get("allocator_settings") or {},
    )


def _replay_all(snapshot: Snapshot) -> list[DeviceHistory]:
    by_device: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for segment in snapshot.segments:
        by_device[segment["device"]].append(segment)
    histories = []
    for device in sorted({*range(len(snapshot.traces)), *by_device}):
        if not isinstance(device, int) or isinstance(device, bool) or not 0 <= device < 4096:
            raise ValueError(f"a segment is on device {device!r}")
        events = snapshot.traces[device] if device < len(snapshot.traces) else []
        segments = by_device.get(device, [])
        if events or segments:
            finder = PhaseFinder(
                [a for a in snapshot.annotations if a.get("device", device) == device]
            )
            histories.append(
                replay(device, events, segments, finder, is_recorded=any(snapshot.traces))
            )
    return histories


def _tables(path: Path, snapshot: Snapshot, histories: list[DeviceHistory]) -> CaptureTables:
    points = [p for h in histories for p in _thinned(h.points)]
    at_peak = [row for h in histories for row in h.at_peak]
    frame = pd.DataFrame(points, columns=list(MEMORY_POINT_COLUMNS))
    for name in ("reserved_bytes", "requested_bytes"):
        frame[name] = frame[name].astype("Int64")
    memory = _memory(histories)
    summary = {}
    if "peak_bytes" in memory:
        summary["peak_memory_bytes"] = memory["peak_bytes"]
    return CaptureTables(
        kind=CaptureKind.MEMORY_SNAPSHOT,
        path=path,
        tool="torch",
        environment={
            clean_text(f"allocator.{k}"): clean_text(v) if isinstance(v, str) else v
            for k, v in snapshot.settings.items()
            if (isinstance(v, (int, float)) and abs(v) < 1 << 62) or (isinstance(v, str) and v)
        },
        summary=summary,
        memory=memory,
        memory_points=frame,
        memory_at_peak=pd.DataFrame(at_peak, columns=list(MEMORY_AT_PEAK_COLUMNS)),
        warnings=_warnings(histories),
    )


def _thinned(points: list[Point]) -> list[Point]:
    if not points:
        return []
    kept = rows_to_keep([[p[2] for p in points], [p[3] or 0 for p in points]], STORED_POINTS)
    return [points[row] for row in kept.tolist()]


def _memory(histories: list[DeviceHistory]) -> dict[str, Any]:
    if not histories:
        return {}
    top = max(histories, key=lambda h: (h.peak_bytes or 0, h.final_bytes))
    memory: dict[str, Any] = {
        "device": top.device,
        "final_bytes": top.final_bytes,
        "final_reserved_bytes": top.final_reserved_bytes,
        "is_partial": any(h.is_partial for h in histories),
    }
    if top.peak_bytes is not None:
        memory |= {
            "peak_bytes": top.peak_bytes,
            "peak_time_ns": top.peak_time_ns,
            "baseline_bytes": top.baseline_bytes,
            "num_events": top.num_events,
            "peak_allocated_bytes": top.peak_allocated_bytes,
            "final_allocated_bytes": top.final_allocated_bytes,
        }
        if top.peak_reserved_bytes is not None:
            memory["peak_reserved_bytes"] = top.peak_reserved_bytes
        if top.peak_phase is not None:
            memory["peak_phase"] = top.peak_phase
    oom = next((h.oom for h in histories if h.oom), None)
    if oom:
        memory["oom"] = oom
    if len(histories) > 1:
        memory["devices"] = [
            {
                "device": h.device,
                "baseline_bytes": h.baseline_bytes,
                "peak_bytes": h.peak_bytes,
                "final_bytes": h.final_bytes,
            }
            for h in histories
        ]
    return memory


def _warnings(histories: list[DeviceHistory]) -> tuple[CaptureWarning, ...]:
    if not any(h.num_events for h in histories):
        text = (
            "The snapshot has no allocation history, only the blocks live at "
            "that time. Call torch.cuda.memory._record_memory_history() before "
            "the code of interest."
        )
        return (CaptureWarning(code="no_memory_history", message=text),)
    warnings = []
    for history in histories:
        for code, text in history.warnings:
            warnings.append(CaptureWarning(code=code, message=f"Device {history.device}: {text}"))
    return tuple(warnings)
