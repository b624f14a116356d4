"""Keep stdout for the one result line, and write progress as JSON lines."""

import json
import os
import sys
import time
from typing import Any

PROGRESS_INTERVAL_NS = 200_000_000
"""Least time between two progress lines of one stage: writing must not shape the samples."""


class Events:
    """JSON lines on a file descriptor; without one, nothing."""

    def __init__(self, fd: int | None) -> None:
        self._stream = os.fdopen(fd, "w", buffering=1) if fd is not None else None
        self._last: dict[str, int] = {}

    def progress(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage is; the first and last of a stage are always written."""
        now = time.perf_counter_ns()
        due = now - self._last.get(stage, -PROGRESS_INTERVAL_NS) >= PROGRESS_INTERVAL_NS
        if due or done == total:
            self._last[stage] = now
            self._write({"event": "progress", "stage": stage, "done": done, "total": total})

    def iterations(self, samples_ns: list[int]) -> None:
        """Write every measured iteration."""
        for index, latency_ns in enumerate(samples_ns):
            self._write({"event": "iteration", "index": index, "latency_ns": latency_ns})

    def _write(self, record: dict[str, Any]) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps(record) + "\n")
        except BrokenPipeError:
            self._stream = None


class ResultLine:
    """Own the real stdout; all else that writes there lands on stderr."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def write(self, result: dict[str, Any]) -> None:
        """Write the last line of stdout."""
        sys.stdout.flush()
        with os.fdopen(self._fd, "w") as stream:
            stream.write(json.dumps(result, allow_nan=False) + "\n")
