"""One process of the stack: started, watched, started again, and ended with its children."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from core.config import ROOT

RESTART_DELAYS_S = (0.5, 1.0, 3.0, 10.0, 30.0)
STEADY_S = 60.0
"A process that lived this long is taken as sound: its next failure counts as the first."
STOP_S = 8.0
KILL_S = 3.0
MAX_LOG_BYTES = 20 * 2**20


class Part:
    """A child process in a group of its own. Only the thread that made it may start it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        *,
        env: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log_path = log_path
        self.once = once
        self.state = "stopped"
        self.returncode: int | None = None
        self.num_failures = 0
        self._env = dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._next_s = 0.0

    @property
    def pid(self) -> int | None:
        """Return the process id while it runs."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Spawn the process; its output goes to the log."""
        environment = {**os.environ, **self._env}
        environment["PYTHONPATH"] = str(ROOT)
        launcher = [sys.executable, "-S", str(ROOT / "app" / "launch.py"), str(os.getpid())]
        with self._opened_log() as log:
            self._process = subprocess.Popen(
                [*launcher, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        self._started_s = time.monotonic()
        self.state = "running"

    def _opened_log(self) -> IO[bytes]:
        """Return the log, an old one put aside; nothing's where the disk is full."""
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            if self.log_path.exists() and self.log_path.stat().st_size > MAX_LOG_BYTES:
                self.log_path.replace(self.log_path.with_suffix(".old"))
            return self.log_path.open("ab")
        except OSError:
            return open(os.devnull, "ab")

    def poll(self) -> None:
        """Notice an end, and start again after a growing delay unless it runs once only."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            _end_group(self._process.pid, signal.SIGKILL)
            self._process = None
            self.returncode = code
            if self.once:
                self.state = "done" if code == 0 else "failed"
                return
            lived_s = time.monotonic() - self._started_s
            self.num_failures = 1 if lived_s > STEADY_S else self.num_failures + 1
            delay_s = RESTART_DELAYS_S[min(self.num_failures, len(RESTART_DELAYS_S)) - 1]
            self._next_s = time.monotonic() + delay_s
            self.state = "restarting"
        elif self.state == "restarting" and time.monotonic() >= self._next_s:
            self.start()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self, deadline_s: float) -> None:
        """Wait until the monotonic `deadline_s`, then kill the whole group."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(KILL_S)
        _end_group(self._process.pid, signal.SIGKILL)
        self._process = None
        self.state = "stopped"

    def last_line(self) -> str:
        """Return the last line of the log, for a message."""
        try:
            lines = self.log_path.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].strip() if lines else ""


def stop_all(parts: Sequence[Part]) -> None:
    """End every process with all its children: asked first, killed after STOP_S."""
    for part in parts:
        part.ask_to_stop()
    deadline_s = time.monotonic() + STOP_S
    for part in parts:
        part.end(deadline_s)


def _end_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return
