"""The allocator's history: the program writes PyTorch's CUDA memory snapshot itself."""

import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.profilers.from_program import collect
from worker.profilers.spec import Collected, PassContext, ProfilerSpec
from worker.scrub import Scrubber
from worker.tools import Tool

MAX_REWRITE_BYTES = 512 << 20
"""A larger snapshot is shipped as it is: loading it would take several times its size in memory."""


class _DataOnly(pickle.Unpickler):
    """Refuses everything but plain data, as the readers of snapshots do."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"snapshot names {module}.{name}; plain data was expected")


def scrub_snapshot(source: Path, target: Path) -> tuple[str, ...]:
    """Copy a snapshot with its frames' file names shortened; others are copied unchanged."""
    if source.stat().st_size > MAX_REWRITE_BYTES:
        shutil.copyfile(source, target)
        return ()
    with open(source, "rb") as file:
        snapshot = _DataOnly(file).load()
    scrub = Scrubber()
    known: dict[str, str] = {}
    seen: set[int] = set()
    for frame in _frames(snapshot):
        name = frame.get("filename")
        if isinstance(name, str) and id(frame) not in seen:
            seen.add(id(frame))
            frame["filename"] = known.setdefault(name, _short_file(scrub.shorten(name)))
    with open(target, "wb") as out:
        pickle.dump(snapshot, out, protocol=4)
    return ("paths",)


def _frames(snapshot: Any) -> Any:
    for segment in snapshot.get("segments", ()):
        yield from segment.get("frames", ())
        for block in segment.get("blocks", ()):
            yield from block.get("frames", ())
    for device in snapshot.get("device_traces", ()):
        for event in device:
            yield from event.get("frames", ())


def _short_file(name: str) -> str:
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in name:
            return name.rsplit(mark, 1)[1]
    return name.rsplit("/", 1)[1] if name.startswith("/") else name


def _command(context: PassContext) -> list[str]:
    return context.program()


def _captures(context: PassContext, result: Mapping[str, Any] | None) -> Collected:
    return collect(context, result, kind="memory_snapshot", suffix="pickle", move=scrub_snapshot)


PROFILER = ProfilerSpec(
    name="memory",
    needs_tool=False,
    probe=lambda: Tool(name="torch"),
    command=_command,
    captures=_captures,
)
