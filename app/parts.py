"""One process of the stack: started, watched, started again, and ended with its whole tree.

The tree is ended by `core/supervisor.py`, which also does so when this process is killed.
"""

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from core.config import ROOT
from core.python import own_environment
from core.restarts import Restarts
from core.supervisor import ASK_LEADER, supervised

RESTART_DELAYS_S = (0.5, 1.0, 3.0, 10.0, 30.0)
STOP_S = 8.0
KILL_S = 12.0
"A little more than the supervisor takes to end a tree that resists."
MAX_LOG_BYTES = 20 * 2**20


class Part:
    """A supervised child process.

    It sees of this process's variables what `own_environment` lets pass; all with `keeps_shell`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        *,
        env: Mapping[str, str] | None = None,
        once: bool = False,
        keeps_shell: bool = False,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log_path = log_path
        self.once = once
        self.state = "stopped"
        self.returncode: int | None = None
        shell = os.environ if keeps_shell else own_environment(os.environ)
        self._env = {**shell, **(env or {}), "PYTHONPATH": str(ROOT)}
        self._restarts = Restarts(RESTART_DELAYS_S)
        self._control_fd: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._next_s = 0.0

    @property
    def pid(self) -> int | None:
        """Return the id of the supervisor's process while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def num_failures(self) -> int:
        """Return how many unexpected exits it had recently."""
        return self._restarts.num_failures

    def start(self) -> None:
        """Spawn the process; its output goes to the log."""
        control_read, self._control_fd = os.pipe()
        status_fd = os.open(os.devnull, os.O_WRONLY)
        try:
            with self._opened_log() as log:
                self._process = subprocess.Popen(
                    supervised([*self.command], control_read, status_fd),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=ROOT,
                    env=self._env,
                    pass_fds=(control_read, status_fd),
                    start_new_session=True,
                    umask=0o077,  # what it writes is for its user alone
                )
        finally:
            os.close(control_read)
            os.close(status_fd)
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
            self._process = None
            self._let_go()
            self.returncode = code
            if self.once:
                self.state = "done" if code == 0 else "failed"
                return
            delay_s = self._restarts.delay_s(time.monotonic() - self._started_s)
            self._next_s = time.monotonic() + delay_s
            self.state = "restarting"
        elif self.state == "restarting" and time.monotonic() >= self._next_s:
            self.start()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process itself; it ends its children in its own order."""
        if self._control_fd is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._control_fd, ASK_LEADER)

    def end(self, deadline_s: float) -> None:
        """Wait until the monotonic `deadline_s`, then kill the whole tree."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._let_go()
            self._process.wait(KILL_S)
        self._let_go()
        self._process = None
        self.state = "stopped"

    def _let_go(self) -> None:
        """Close the control pipe: the supervisor then kills what is left."""
        if self._control_fd is not None:
            os.close(self._control_fd)
            self._control_fd = None

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
