"""The user's own program: any binary, run once an iteration, timed from start to exit.

Off unless the operator names the program in WARPBOARD_ALLOW_COMMANDS (paths joined by ':'); what is
compared is the real path, so a link cannot stand in for another program. It runs beside itself or
below WARPBOARD_ALLOW_FOLDERS, with the rights of the worker. `argv` is a JSON list that
goes to the program as it is: there is no shell. The program's output goes to stderr.
FLOPs and bytes of it are unknown; an nsys pass sees its kernels, `ranges` names the NVTX ranges to
keep. Source: https://docs.python.org/3/library/subprocess.html

Ranges: program.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from core.errors import RunFailedError, UserError
from workloads.allowed import allowed_folder, allowed_program
from workloads.program import Context, Program
from workloads.spec import CommonParams, WorkloadSpec, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(CommonParams):
    """Parameters of `command`."""

    argv: str = param(
        "[]", doc='program and arguments as a JSON list: ["/path/program", "-n"]', basic=True
    )
    cwd: str = param("", doc="working directory; empty: the worker's", basic=True)
    ranges: str = param("", doc="NVTX ranges to keep, joined by commas; empty: all", basic=True)
    timeout_s: float = param(
        600.0, doc="longest time of one run", unit="s", minimum=0.1, maximum=86_400
    )

    def __post_init__(self) -> None:
        words = self.words
        if words and not Path(words[0]).is_absolute() and "/" in words[0]:
            raise UserError(f"argv: {words[0]!r} is relative; give an absolute path or a name")

    @property
    def words(self) -> list[str]:
        """Return argv as a list; UserError when it is not a JSON list of texts."""
        try:
            words = json.loads(self.argv)
        except ValueError as error:
            raise UserError(f"argv: {self.argv[:60]!r} is not JSON: {error}") from error
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError(f"argv: {self.argv[:60]!r} is not a JSON list of texts")
        return words


def build(p: Params, context: Context) -> Program:
    """Return a step that runs the program to its end."""
    program = allowed_program(p.words)
    folder = allowed_folder(p.cwd, program)

    def step() -> None:
        with context.ranges.phase("program"):
            _run(p, program, folder)

    return Program(step=step)


def _run(p: Params, program: str, folder: str | None) -> None:
    words = p.words
    try:
        done = subprocess.run(
            words,
            executable=program,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=p.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"command: {words[0]} ran longer than {p.timeout_s:g} s") from error
    except OSError as error:
        raise RunFailedError(f"command: {words[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        raise RunFailedError(f"command: {words[0]} ended with exit code {done.returncode}")


def estimate_memory_bytes(p: Params) -> None:
    """Return None: what another program needs is unknown."""


WORKLOAD = WorkloadSpec(
    name="command",
    title="Own program",
    about="Any program the operator has allowed, run as it is.",
    source="https://docs.python.org/3/library/subprocess.html",
    params=Params,
    phases=("program",),
    modes=("run",),
    build=build,
    estimate_memory_bytes=estimate_memory_bytes,
)
