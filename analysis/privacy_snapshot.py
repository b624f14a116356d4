"""Take home folders and private paths out of a memory snapshot's stack frames."""

import pickle
import re
from pathlib import Path
from typing import Any

from analysis.readers.memory_sites import short_path
from analysis.readers.memory_snapshot import load_snapshot_data
from analysis.readers.opening import reading


def scrub_snapshot(path: Path, dest: Path) -> tuple[str, ...]:
    """Write the snapshot with short file names; return what was removed.

    Frames keep the path from site-packages on, or the file's own name. Lists and frames that the
    file shares stay shared, so the copy is not larger.
    """
    with reading(path):
        data = load_snapshot_data(path)
    cleaner = _FrameCleaner()
    for segment in data.get("segments", ()):
        cleaner.clean(segment.get("frames"))
        for block in segment.get("blocks", ()):
            cleaner.clean(block.get("frames"))
            for entry in block.get("history", ()):
                cleaner.clean(entry.get("frames"))
    for trace in data.get("device_traces", ()):
        for event in trace:
            cleaner.clean(event.get("frames"))
    with dest.open("wb") as out:
        pickle.dump(data, out, protocol=4)
    return ("folders in stack frames",) if cleaner.num_changed else ()


class _FrameCleaner:
    """Shorten file names in place, each shared frame list once."""

    def __init__(self) -> None:
        self.num_changed = 0
        self._seen: set[int] = set()
        self._short: dict[str, str] = {}

    def clean(self, frames: Any) -> None:
        if not isinstance(frames, list) or id(frames) in self._seen:
            return
        self._seen.add(id(frames))
        for frame in frames:
            name = frame.get("filename") if isinstance(frame, dict) else None
            if not isinstance(name, str) or not re.search(r"[/\\]", name):
                continue
            short = self._short.setdefault(name, short_path(name))
            if short != name:
                frame["filename"] = short
                self.num_changed += 1
