"""Read what the hooks wrote about each process of a program. Standard library only."""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.hooks.warpboard_hooks import CHUNK_BYTES, HAS_EVENTS, IS_READ, RECORD


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


@dataclass(slots=True)
class Process:
    """All that one process left."""

    stem: str
    facts: dict[str, Any] = field(default_factory=dict)
    "pid, rank, world_size, environment, device, memory, stopped, captured."
    names: dict[int, dict[str, Any]] = field(default_factory=dict)
    captures: list[dict[str, str]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def name(self, number: int) -> str:
        return str(self.names.get(number, {}).get("type", "?"))


def load_processes(folder: Path) -> list[Process]:
    """Return the processes that recorded anything; a file cut off by a kill is read up to there."""
    processes = []
    for path in sorted(folder.glob("process-*.jsonl")):
        process = Process(path.name.removesuffix(".jsonl"))
        for line in path.read_text(errors="replace").splitlines():
            try:
                facts = json.loads(line)
            except ValueError:
                continue
            _add_facts(process, facts)
        binary = path.with_suffix(".bin")
        if binary.is_file():
            process.records = _load_records(binary)
        processes.append(process)
    return processes


def _add_facts(process: Process, facts: dict[str, Any]) -> None:
    if "name" in facts:
        process.names[facts["name"]] = facts
    elif "capture" in facts:
        process.captures.append({"path": facts["capture"], "kind": facts["kind"]})
    else:
        process.facts.update(facts)


def _load_records(path: Path) -> list[Record]:
    clock = _GpuClock()
    records: list[Record] = []
    with open(path, "rb") as file:
        for _ in range(os.path.getsize(path) // CHUNK_BYTES):
            for values in RECORD.iter_unpack(file.read(CHUNK_BYTES)):
                if values[0] == 0:
                    return records
                records.append(clock.record(*values))
    return records


class _GpuClock:
    """Adds up the distances between records; where one is missing a new stretch begins."""

    def __init__(self) -> None:
        self._stretch = 0
        self._at_ns: float | None = None

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
        at: tuple[int, float] | None = None
        if state & IS_READ and not math.isnan(call_ms):
            if math.isnan(distance_ms) or self._at_ns is None:
                self._stretch += 1
                self._at_ns = 0.0
            else:
                self._at_ns += distance_ms * 1e6
            at = (self._stretch, self._at_ns)
        elif state & HAS_EVENTS:
            self._at_ns = None
        return Record(
            kind=kind,
            flags=flags,
            name=name,
            size=size,
            start_ns=start_ns,
            end_ns=end_ns,
            gpu_start=at,
            gpu_call_ns=None if at is None else call_ms * 1e6,
        )
