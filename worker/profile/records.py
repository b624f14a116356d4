"""Read what the hooks wrote about each process of a program. Standard library only.

The program may write there too, anything: what is not as the hooks write it is passed over.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from captures.contents import open_plain
from captures.manifest import is_plain_name
from core.errors import CaptureError
from worker.hooks.warpboard_pace import MOST_TOGETHER
from worker.hooks.warpboard_records import (
    CHUNK_BYTES,
    DEVICE_SHIFT,
    HAS_EVENTS,
    LEFT_OUT,
    MAX_RECORDS,
    OPTIMIZER,
    PAIRS,
    RECORD,
)

MAX_PROCESSES = 4096
MAX_OF_ALL = 2 * MAX_RECORDS
"""Of all processes together: each takes some 200 bytes in the worker, and a few stand for many."""
NUM_WARM_UP = 4
"""Records of a process that do not tell how much it does."""
MAX_FACTS_BYTES = 4 << 20
"""Of one process; the hooks write some hundred for each of 4096 names at most."""
MAX_FACTS_OF_ALL_BYTES = 64 << 20
_FACTS: dict[str, type] = {
    **dict.fromkeys(("pid", "rank", "world_size", "captured", "calls_elsewhere"), int),
    **dict.fromkeys(("environment", "device", "memory"), dict),
    **{"stopped": bool, "refused": str},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One outermost call, optimizer step or marked step."""

    kind: int
    flags: int
    name: int
    size: int
    "Elements of the call's first tensor."
    start_ns: int
    end_ns: int
    "Host clock."
    gpu_start: tuple[int, float] | None
    "On the GPU's clock: number of a stretch without gaps, and ns in it; None: not recorded."
    gpu_call_ns: float | None
    "None: not recorded; short steps have it now and then."


@dataclass(slots=True)
class Process:
    """All that one process left."""

    stem: str
    facts: dict[str, Any] = field(default_factory=dict)
    "Those of `_FACTS`."
    names: dict[int, dict[str, Any]] = field(default_factory=dict)
    captures: list[dict[str, str]] = field(default_factory=list)
    odd_captures: list[str] = field(default_factory=list)
    "Names that are none of a file beside the records."
    records: list[Record] = field(default_factory=list)

    def name(self, number: int) -> str:
        return str(self.names.get(number, {}).get("type", "?"))


def load_processes(folder: Path) -> list[Process]:
    """Return the processes that recorded anything; a file cut off by a kill is read up to there."""
    processes = []
    num_left, bytes_left = MAX_OF_ALL, MAX_FACTS_OF_ALL_BYTES
    for path in sorted(folder.glob("process-*.jsonl"))[:MAX_PROCESSES]:
        process = Process(path.name.removesuffix(".jsonl"))
        with suppress(OSError, CaptureError):
            with open_plain(path) as file:
                text = file.read(min(MAX_FACTS_BYTES, bytes_left))
            bytes_left -= len(text)
            for line in text.decode(errors="replace").splitlines():
                with suppress(ValueError, RecursionError):
                    _add_facts(process, json.loads(line))
            process.records = _load_records(path.with_suffix(".bin"), min(MAX_RECORDS, num_left))
            num_left -= len(process.records)
        processes.append(process)
    return processes


def main_process(processes: Sequence[Process]) -> Process | None:
    """Return the process that the run is about.

    Of rank 0, or of those without ranks, the first to begin that did at least half of what the
    busiest one did: workers that a program forks off do as much as it does itself.
    """
    ranked = [p for p in processes if p.facts.get("rank") in (None, 0)] or processes
    busy_ns = [_busy_ns(p, NUM_WARM_UP) for p in ranked]
    if not any(busy_ns):
        busy_ns = [_busy_ns(p, 0) for p in ranked]
    working = [p for p, ns in zip(ranked, busy_ns, strict=True) if 2 * ns >= max(busy_ns)]
    return min(working, key=lambda p: p.records[0].start_ns if p.records else 0, default=None)


def _busy_ns(process: Process, first: int) -> int:
    """Return the time of a process's calls without the first, which set up more than they do."""
    return sum(r.end_ns - r.start_ns for r in process.records[first:])


def _add_facts(process: Process, facts: Any) -> None:
    if not isinstance(facts, dict):
        return
    if "name" in facts:
        if type(facts["name"]) is int and type(facts.get("parameters", 0)) is int:
            process.names[facts["name"]] = facts
    elif "capture" in facts:
        name, kind = facts["capture"], facts.get("kind")
        if not (isinstance(name, str) and is_plain_name(name) and isinstance(kind, str)):
            process.odd_captures.append(str(name)[:80])
        else:
            process.captures.append({"path": name, "kind": kind})
    else:
        known = {k: v for k, v in facts.items() if type(v) is _FACTS.get(k)}
        process.facts |= {k: _flat(v) if isinstance(v, dict) else v for k, v in known.items()}


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that are texts and numbers."""
    return {
        name: value
        for name, value in facts.items()
        if value is None
        or isinstance(value, (str, int))
        or (isinstance(value, float) and math.isfinite(value))
    }


def _load_records(path: Path, most: int) -> list[Record]:
    clock = _GpuClock()
    records: list[Record] = []
    with open_plain(path) as file:
        for _ in range(os.fstat(file.fileno()).st_size // CHUNK_BYTES):
            for values in RECORD.iter_unpack(file.read(CHUNK_BYTES)):
                if values[0] == 0 or len(records) >= most:
                    return records[:most]
                record = clock.record(*values)
                count = values[3] >> DEVICE_SHIFT if record.flags & LEFT_OUT else 0
                if count:
                    records += _counted(record, min(count, MOST_TOGETHER))
                else:
                    records.append(record)
    return records[:most]


def _counted(record: Record, count: int) -> Iterator[Record]:
    """Return the steps that were counted after one with an event, as if each was written down."""
    size = 0 if record.flags & PAIRS else record.size
    for number in range(1, count + 1):
        at = record.start_ns + (record.end_ns - record.start_ns) * number // count
        flags = record.flags & ~PAIRS
        yield replace(record, flags=flags, size=size, start_ns=at, end_ns=at)
        if record.flags & PAIRS:
            yield replace(
                record, kind=OPTIMIZER, flags=0, name=record.size, size=0, start_ns=at, end_ns=at
            )


class _GpuClock:
    """Adds up the distances between records of a GPU; where one is missing a new stretch begins."""

    def __init__(self) -> None:
        self._num_stretches = 0
        self._at: dict[int, tuple[int, float]] = {}
        "Device -> the last record's stretch, and where it is in it."

    def record(
        self,
        kind: int,
        flags: int,
        name: int,
        state: int,
        size: int,
        start_ns: int,
        end_ns: int,
        call_ms: float,
        distance_ms: float,
    ) -> Record:
        at = self._place(state >> DEVICE_SHIFT, distance_ms) if state & HAS_EVENTS else None
        return Record(
            kind=kind,
            flags=flags,
            name=name,
            size=size,
            start_ns=start_ns,
            end_ns=end_ns,
            gpu_start=at,
            gpu_call_ns=None if at is None or not math.isfinite(call_ms) else call_ms * 1e6,
        )

    def _place(self, device: int, distance_ms: float) -> tuple[int, float] | None:
        before = self._at.pop(device, None)
        if not math.isfinite(distance_ms):
            return None
        if before is None:
            self._num_stretches += 1
            at = (self._num_stretches, 0.0)
        else:
            at = (before[0], before[1] + distance_ms * 1e6)
        self._at[device] = at
        return at
