"""Load the dictionary of a PyTorch CUDA memory snapshot, its outer shape checked."""

from pathlib import Path
from typing import Any

from captures.opening import read_bytes
from captures.pickle_data import PickleRefusedError, load_data
from core.errors import CaptureError

MAX_SNAPSHOT_BYTES = 2 << 30
REMEDY = "Dump it again with torch.cuda.memory._dump_snapshot()"


def load_snapshot_data(path: Path, *, is_sound: bool = False) -> dict[str, Any]:
    """Return the snapshot's dictionary as it is stored, its outer shape checked.

    `is_sound`: the scrubber has just written it, so its opcodes need no check.
    """
    data = read_bytes(path, MAX_SNAPSHOT_BYTES)
    try:
        loaded = load_data(data, is_sound=is_sound)
    except PickleRefusedError as exc:
        raise CaptureError(
            path, str(exc), "Only pickles of plain data are read; " + REMEDY
        ) from exc
    if not isinstance(loaded, dict) or not isinstance(loaded.get("segments"), list):
        raise CaptureError(path, "the pickle has no `segments`: not a memory snapshot", REMEDY)
    traces = loaded.get("device_traces", [])
    annotations = loaded.get("external_annotations") or []
    settings = loaded.get("allocator_settings") or {}
    shapes = isinstance(traces, list) and all(isinstance(t, list) for t in traces)
    if not shapes or not isinstance(annotations, list) or not isinstance(settings, dict):
        raise CaptureError(path, "`device_traces` or its neighbours are not lists", REMEDY)
    # Shared lists could stand for more events and blocks than the file has bytes.
    if sum(map(len, traces)) + _num_blocks(loaded["segments"]) > max(1000, len(data)):
        raise CaptureError(path, "it stands for more events than it has bytes", REMEDY)
    return loaded


def _num_blocks(segments: list[Any]) -> int:
    blocks = (s.get("blocks") for s in segments if isinstance(s, dict))
    return len(segments) + sum(len(b) for b in blocks if isinstance(b, list))
