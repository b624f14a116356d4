"""One child process with its whole tree: streamed output, events, time limits, cancel.

A process that ends by signal 9 may have been killed by anyone; only the kernel's count of OOM kills
tells that memory ran out. It is of the whole host, containers included (Linux 4.13 on).

What the child leaves is two files (stdout, stderr) and a `ProcessResult`. The tree is ended by
`core/supervisor.py`, which also does so when this process is killed.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from captures.contents import open_plain
from core.errors import CaptureError
from core.supervisor import ASK_TREE, supervised
from worker.left_behind import LeftBehind

VMSTAT = Path("/proc/vmstat")


def count_memory_kills() -> int | None:
    """Return the count since boot; None where the kernel does not tell."""
    try:
        lines = VMSTAT.read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else None


def kills_since(before: int | None) -> int | None:
    """Return the kills since `before` was counted; None where unknown."""
    now = count_memory_kills()
    return None if before is None or now is None else now - before


MAX_LINE_BYTES = 16_384
"""A longer line is handed on in pieces."""
TICK_S = 0.1
CANCEL_GRACE_S = 0.7
MAX_OUTPUT_BYTES = 4 << 30
"""Of stdout or stderr: a child that writes without end is stopped before the disk is full."""

_EVENT_BYTES = 1 << 20
"""Of events that are read at once."""

LineCallback = Callable[[str, str], None]
OutputCallback = Callable[[str, bytes], None]
EventCallback = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """When a child is told to stop, and when it is killed."""

    soft_s: float | None = None
    "SIGTERM to the whole tree after this many seconds; None: no limit."
    grace_s: float = 15.0
    "SIGKILL this many seconds after the SIGTERM."
    output_bytes: int = MAX_OUTPUT_BYTES
    "SIGTERM once stdout or stderr has more; nothing beyond is kept."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """How a child ended."""

    returncode: int | None
    "Negative is the signal that ended it; None if it could not be started or was lost."
    stdout_path: Path
    stderr_path: Path
    duration_s: float
    timed_out: bool = False
    killed_by: str | None = None
    "`timeout`, `output`, `cancel`, `supervisor lost`, `signal N` (a stranger's); None: itself."
    error: str | None = None
    "Why it could not be started."
    num_memory_kills: int | None = None
    "Processes that the OOM killer ended meanwhile, on the whole host."


@dataclass(slots=True)
class _Stream:
    name: str
    file: IO[bytes]
    rest: bytes = b""
    num_bytes: int = 0


def run_process(
    command: Sequence[str],
    *,
    stdout_path: Path,
    stderr_path: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    events_path: Path | None = None,
    pass_fds: Sequence[int] = (),
    stdin: Path | None = None,
    limits: ProcessLimits | None = None,
    on_line: LineCallback | None = None,
    on_output: OutputCallback | None = None,
    on_event: EventCallback | None = None,
    should_cancel: Callable[[], bool] | None = None,
    left_behind: LeftBehind | None = None,
) -> ProcessResult:
    """Run `command` to its end and return how it ended. Spawns processes; leaves none.

    What it leaves running when it ends is ended too, unless `left_behind` wants to wait for it.

    `events_path` is a file of JSON lines that the child appends to; it is a file, not a pipe, so
    that a slow reader never holds the measured program up. Callbacks run in this thread.
    """
    with open(stdout_path, "wb") as out, open(stderr_path, "wb") as err:
        child = _Child(
            command=command,
            limits=limits or ProcessLimits(),
            streams=(_Stream("stdout", out), _Stream("stderr", err)),
            on_line=on_line,
            on_output=on_output,
            should_cancel=should_cancel or (lambda: False),
            events=_EventTail(events_path, on_event),
            left_behind=left_behind,
        )
        started, kills = time.monotonic(), count_memory_kills()
        try:
            child.start(cwd=cwd, env=env, pass_fds=tuple(pass_fds), stdin=stdin)
            child.follow()
        finally:
            child.end()
    return ProcessResult(
        returncode=child.returncode,
        stdout_path=stdout_path,
        stderr_path=stderr_path,
        duration_s=child.duration_s(started),
        timed_out=child.killed_by == "timeout",
        killed_by=child.killed_by or child.foreign_signal(),
        error=child.error,
        num_memory_kills=kills_since(kills),
    )


class _EventTail:
    """Reads complete JSON lines that another process appends to a file."""

    def __init__(self, path: Path | None, callback: EventCallback | None) -> None:
        self._path = path
        self._callback = callback
        self._offset = 0

    def poll(self) -> None:
        if self._path is None or self._callback is None:
            return
        try:
            with open_plain(self._path) as file:
                file.seek(self._offset)
                data = file.read(_EVENT_BYTES)
        except (OSError, CaptureError):  # not there, or no longer what was made
            return
        complete = data.rfind(b"\n") + 1
        is_endless = not complete and len(data) == _EVENT_BYTES
        self._offset += len(data) if is_endless else complete
        for line in data[:complete].splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                self._callback(event)


@dataclass(kw_only=True)
class _Child:
    """A supervised command, from its start to the end of its tree."""

    command: Sequence[str]
    limits: ProcessLimits
    streams: tuple[_Stream, _Stream]
    on_line: LineCallback | None
    on_output: OutputCallback | None
    should_cancel: Callable[[], bool]
    events: _EventTail
    left_behind: LeftBehind | None
    ended_at: float | None = None
    returncode: int | None = None
    killed_by: str | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        self._left: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._control_fd: int | None = None
        self._status_fd: int | None = None
        self._status = b""
        self._kill_at: float | None = None
        self._lost_at: float | None = None
        self._pid: int | None = None

    def start(
        self,
        *,
        cwd: Path | None,
        env: Mapping[str, str] | None,
        pass_fds: tuple[int, ...],
        stdin: Path | None,
    ) -> None:
        control_read, self._control_fd = os.pipe()
        self._status_fd, status_write = os.pipe()
        command = supervised(
            list(self.command),
            control_read,
            status_write,
            pass_fds,
            leaves_rest=self.left_behind is not None,
        )
        try:
            with open(stdin or os.devnull, "rb") as given:
                self._supervisor = subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=cwd,
                    env=dict(env) if env is not None else None,
                    pass_fds=(control_read, status_write, *pass_fds),
                    start_new_session=True,
                )
        finally:
            os.close(control_read)
            os.close(status_write)
        pipes = (self._supervisor.stdout, self._supervisor.stderr)
        for stream, pipe in zip(self.streams, pipes, strict=True):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, stream)
        self._selector.register(self._status_fd, selectors.EVENT_READ, None)

    def follow(self) -> None:
        """Return when the tree has ended and all its output is read."""
        started = time.monotonic()
        while self._selector.get_map():
            for key, _ in self._selector.select(TICK_S):
                self._read(key)
            self.events.poll()
            self._check_limits(time.monotonic() - started)
            self._check_left()
            if self._is_supervisor_lost():
                self._end_group()
                break
        self.events.poll()
        if self.returncode is None and self.error is None and self.killed_by is None:
            self.killed_by = "supervisor lost"

    def _is_supervisor_lost(self) -> bool:
        """Whether it ended a second ago, its last words are read, and pipes are still open."""
        if self._supervisor is None or self._supervisor.poll() is None:
            return False
        self._lost_at = self._lost_at or time.monotonic()
        return time.monotonic() - self._lost_at > 1.0

    def _end_group(self) -> None:
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(key.fd, 65_536)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(key.fileobj)
        if key.data is None:
            self._read_status(data)
        else:
            self._read_output(key.data, data)

    def _read_status(self, data: bytes) -> None:
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self.returncode = message.get("returncode", self.returncode)
            self.error = message.get("error", self.error)
            self._pid = message.get("pid", self._pid)
            self._left = message.get("left", self._left)
            if self.ended_at is None and "returncode" in message:
                self.ended_at = time.monotonic()

    def _read_output(self, stream: _Stream, data: bytes) -> None:
        stream.num_bytes += len(data)
        if stream.num_bytes > self.limits.output_bytes:
            if self._kill_at is None:
                self._stop("output", self.limits.grace_s)
            return
        stream.file.write(data)
        stream.file.flush()
        if data and self.on_output is not None:
            self.on_output(stream.name, data)
        *lines, stream.rest = (stream.rest + data).split(b"\n")
        if len(stream.rest) > MAX_LINE_BYTES or (not data and stream.rest):
            lines.append(stream.rest)
            stream.rest = b""
        if self.on_line is not None:
            for line in lines:
                self.on_line(stream.name, line.decode(errors="replace").rstrip("\r"))

    def _check_limits(self, elapsed_s: float) -> None:
        if self._kill_at is not None:
            if time.monotonic() >= self._kill_at:
                self._close_control()
            return
        if self.should_cancel():
            self._stop("cancel", CANCEL_GRACE_S)
        elif self.limits.soft_s is not None and elapsed_s >= self.limits.soft_s:
            self._stop("timeout", self.limits.grace_s)

    def _check_left(self) -> None:
        """End what the command left running, once it is no longer waited for."""
        if self.left_behind is None or not self._left or self._kill_at is not None:
            return
        if not self.left_behind.wanted(self._left):
            self._left = []
            self._close_control()

    def _stop(self, why: str, grace_s: float) -> None:
        self.killed_by = why
        self._kill_at = time.monotonic() + grace_s
        if self._control_fd is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control_fd, ASK_TREE)

    def _close_control(self) -> None:
        if self._control_fd is not None:
            os.close(self._control_fd)
            self._control_fd = None

    def end(self) -> None:
        """End the tree if it still lives; called on every way out, exceptions included."""
        self._close_control()
        if self._supervisor is not None:
            try:
                self._supervisor.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
            for pipe in (self._supervisor.stdout, self._supervisor.stderr):
                if pipe is not None:
                    pipe.close()
        self._selector.close()
        if self._status_fd is not None:
            os.close(self._status_fd)
            self._status_fd = None

    def duration_s(self, started: float) -> float:
        """Return how long the command took, with what it left running while that worked."""
        if self.ended_at is None or self.left_behind is None:
            return time.monotonic() - started
        return self.ended_at - started + self.left_behind.worked_s

    def foreign_signal(self) -> str | None:
        if self.returncode is not None and self.returncode < 0:
            return f"signal {-self.returncode}"
        return None
