"""The log of one job: lines to `log.txt` and, as events, to the dashboard."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from captures.scrub.log import LogCleaner

EventSink = Callable[[Mapping[str, Any]], None]
"""Takes `{"at", "kind": "progress|log|state", "message", "progress": {...}}`."""

MAX_LOG_BYTES = 8 << 20


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class JobLog:
    """Writes what happens; private paths and names are taken out on the way."""

    def __init__(self, path: Path, sink: EventSink | None) -> None:
        self.path = path
        self._file = open(path, "a", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._sink = sink
        self._scrub = LogCleaner()
        self._folder = f"{path.parent.resolve()}/"
        self._written = path.stat().st_size
        self._last_progress = (0.0, "")

    def line(self, message: str) -> None:
        """Log one line of a tool or of the program."""
        self._emit("log", self._public(message))

    def state(self, message: str) -> None:
        """Log what the job itself does now."""
        self._emit("state", self._public(message))

    def _public(self, message: str) -> str:
        """Return a line without the bundle's folder, which profilers print, and private names."""
        return self._scrub.text(message.replace(self._folder, ""))

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Tell how far the job is; not written to the file, at most ten times a second."""
        stage = f"{progress.get('pass')}/{progress.get('process')}/{progress.get('stage')}"
        is_last = progress.get("done") == progress.get("total")
        now = time.monotonic()
        if self._sink is None or (
            not is_last and stage == self._last_progress[1] and now - self._last_progress[0] < 0.1
        ):
            return
        self._last_progress = (now, stage)
        message = f"{progress.get('pass')} {progress.get('stage', '')}".strip()
        self._sink(
            {"at": utc_now(), "kind": "progress", "message": message, "progress": dict(progress)}
        )

    def _emit(self, kind: str, message: str) -> None:
        at = utc_now()
        text = f"{at} {kind:5} {message}\n"
        if self._written < MAX_LOG_BYTES:
            self._written += len(text)
            self._file.write(text)
            self._file.flush()
        if self._sink is not None:
            self._sink({"at": at, "kind": kind, "message": message})

    def close(self) -> None:
        self._file.close()
