"""The real processes of the campaign, and the restart policy that a container engine would be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.faults.network import die_with_us
from core.supervisor import descendants

ROOT = Path(__file__).resolve().parents[2]
MARK = "WARPBOARD_FAULTS"
RESTART_S = 0.5


class Actor:
    """One long-running process; started again when it ends."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.num_starts = 0
        self._command = die_with_us(*command)
        self._log = log
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._again_s = 0.0

    @property
    def pid(self) -> int | None:
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    def keep(self) -> None:
        """Start it, or start it again half a second after its end."""
        if self.pid is not None:
            return
        now = time.monotonic()
        if self._process is not None:
            self._process = None
            self._again_s = now + RESTART_S
        if now < self._again_s:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._env, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.num_starts += 1

    def kill(self) -> bool:
        """Kill -9 the process alone: its children must notice by themselves."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid is not None

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def kill_pids(pids: Sequence[int]) -> bool:
    """Kill -9 these; say whether there were any."""
    killed = False
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            killed = True
        except ProcessLookupError:
            continue
    return killed


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def below(pid: int | None, is_wanted: Callable[[str], bool]) -> list[int]:
    """Return the processes below one whose command line is wanted."""
    children = descendants(pid) if pid is not None else []
    return [p for p in children if is_wanted(command_line(p))]


def marked(mark: str) -> list[int]:
    """Return every process that was started, at whatever distance, by this campaign."""
    pids = []
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if state != "Z" and wanted in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
        except (OSError, IndexError):
            continue
    return pids


def python(*words: str) -> list[str]:
    return [sys.executable, *words]
