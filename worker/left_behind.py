"""What a program leaves running when it ends: waited for while it works, ended once it is idle.

A launcher that puts the training into the background and returns, a daemon that forks twice: what
was to be measured goes on after the process that was started. `nsys profile` waits for all of that
by default. But a program may also leave servers that never end (TensorBoard, Ray), so only
processes that use a core are waited for.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BUSY_FRAC = 0.05
"""Of a core, all that is left taken together: what uses less is idle."""
IDLE_S = 5.0
"""What has been idle for so long is ended."""
SAID_AFTER_S = 1.0
"""What ends by itself within this time is not worth a word."""
_SAMPLE_S = 0.5


class LeftBehind:
    """What one process of a pass left running."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self._say = say
        self._clock_ticks = os.sysconf("SC_CLK_TCK")
        self._since = self._busy_until = self._sampled_at = 0.0
        self._ticks: dict[int, int] = {}
        self._names: list[str] = []
        self.were_ended = False

    @property
    def worked_s(self) -> float:
        """How long after the program's end something was at work."""
        return self._busy_until - self._since

    def wanted(self, pids: Sequence[int]) -> bool:
        """Tell whether to wait on for these processes, which are still there."""
        now = time.monotonic()
        if not self._since:
            self._since = self._busy_until = self._sampled_at = now
            self._ticks = {pid: _ticks(pid) for pid in pids}
        if now - self._sampled_at >= _SAMPLE_S:
            self._sample(pids, now)
        if not self._names and now - self._since > SAID_AFTER_S:
            self._names = sorted({_name(pid) for pid in pids})
            self._say(
                f"the program has ended and left {', '.join(self._names)} running; waiting "
                "while it works (Ctrl-C ends it)"
            )
        self.were_ended = now - self._busy_until > IDLE_S
        return not self.were_ended

    def _sample(self, pids: Sequence[int], now: float) -> None:
        ticks = {pid: _ticks(pid) for pid in pids}
        used = sum(max(0, ticks[pid] - self._ticks.get(pid, 0)) for pid in pids)
        if used > BUSY_FRAC * (now - self._sampled_at) * self._clock_ticks:
            self._busy_until = now
        self._ticks, self._sampled_at = ticks, now

    def warnings(self, pass_name: str) -> list[dict[str, str]]:
        """Return what the run says of it."""
        if not self._names:
            return []
        names = ", ".join(self._names)
        message = f"{pass_name}: the program ended and left {names} running"
        if self.worked_s > SAID_AFTER_S:
            message += f", which worked for another {self.worked_s:.0f} s and was waited for"
        if self.were_ended:
            message += f"; idle for {IDLE_S:.0f} s, it was then ended"
        return [{"code": "left_running", "message": message}]


def _ticks(pid: int) -> int:
    """Return the processor time of a process in clock ticks; 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return 0
    return int(fields[11]) + int(fields[12])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() or "a process"
    except OSError:
        return "a process"
