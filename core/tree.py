"""A command with everything that it starts: ended together, however deep (`core.supervisor`)."""

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from core.supervisor import supervised

_END_S = 15.0


class Tree:
    """A process under its supervisor, which tells through a pipe how the process ended."""

    def __init__(self, supervisor: "subprocess.Popen[bytes]", status: int) -> None:
        self.pid = supervisor.pid
        self._supervisor = supervisor
        self._status = status
        self._told = b""

    def has_ended(self, wait_s: float) -> bool:
        """Wait at most this long; say whether the whole process tree has ended."""
        if not select.select([self._status], [], [], wait_s)[0]:
            return False
        data = os.read(self._status, 1 << 12)
        self._told += data
        return not data

    def exit_code(self) -> int:
        """Return how the process ended, negative for a signal; OSError when it never started."""
        reports = [json.loads(line) for line in self._told.splitlines()]
        for report in reports:
            if "error" in report:
                raise OSError(report["error"])
        codes = [int(report["returncode"]) for report in reports if "returncode" in report]
        return codes[0] if codes else self._supervisor.wait() or 1


@contextlib.contextmanager
def started(
    command: list[str],
    *,
    output: IO[bytes],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Tree]:
    """Start it, stdout and stderr in one file; when the block is left, nothing of it is there."""
    (told, control), (status, report) = os.pipe(), os.pipe()
    try:
        supervisor = subprocess.Popen(
            supervised(command, told, report),
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(told, report),
        )
    except BaseException:
        os.close(control)
        os.close(status)
        raise
    finally:
        os.close(told)
        os.close(report)
    try:
        yield Tree(supervisor, status)
    finally:
        os.close(control)  # by this the supervisor ends all that runs below it
        with contextlib.suppress(subprocess.TimeoutExpired):
            supervisor.wait(_END_S)
        supervisor.kill()
        supervisor.wait()
        os.close(status)
