"""One process of the program in the folder of a commit, and what it measured."""

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from core.numbers import decimal
from core.python import module_command, with_rooms
from core.supervisor import supervised

MAX_OUTPUT_BYTES = 64 << 20
_TAIL_CHARS = 300


class MeasureError(Exception):
    """Report a commit at which nothing could be measured: it does not build, or fails."""


class BuildError(MeasureError):
    """Report a commit that does not build: to run it again is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended."""

    returncode: int
    duration_s: float
    "From its start to its end, without ours."
    output: str
    "What it printed, its end."


def run_supervised(
    command: Sequence[str],
    cwd: Path,
    *,
    log: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command to its end, with its whole process tree; Ctrl-C ends the tree.

    MeasureError when it cannot be started or takes longer than `timeout_s`.
    """
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    with log.open("wb") as file:
        child = subprocess.Popen(
            supervised(list(command), control_read, status_write),
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            pass_fds=(control_read, status_write),
            start_new_session=True,  # Ctrl-C is ours; we end the tree by closing the pipe
        )
    os.close(control_read)
    os.close(status_write)
    try:
        with os.fdopen(status_read) as status:
            begun = _next(status)
            started_s = time.perf_counter()
            child.wait(timeout=timeout_s)
            duration_s = time.perf_counter() - started_s
    except subprocess.TimeoutExpired as error:
        raise MeasureError(f"took over {decimal(timeout_s, 6)} s") from error
    finally:
        os.close(control_write)
        child.wait()
    if "error" in begun:
        raise MeasureError(str(begun["error"]))
    return Ended(returncode=child.returncode, duration_s=duration_s, output=_tail(log))


def _next(status: IO[str]) -> Mapping[str, object]:
    try:
        status_line = json.loads(status.readline())
    except ValueError:
        return {"error": "could not be started"}
    return status_line if isinstance(status_line, dict) else {}


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_OUTPUT_BYTES))
        return file.read().decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is measured at each commit."""

    words: tuple[str, ...]
    subfolder: Path = Path()
    "Where in the repository it is run: the place of the user's own folder in it."
    pattern: re.Pattern[str] | None = None
    "A number that it prints; the median of all is what the process measured."
    steps_only: bool | None = None
    "True: the steps that Warpboard sees; False: the time of the process; None: see `choose`."
    build: str | None = None
    timeout_s: float = 3600.0
    profile_words: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return "" if self.pattern else "ms"

    @property
    def what(self) -> str:
        """What a sample is, in words."""
        if self.pattern:
            return f"the number printed as {self.pattern.pattern}"
        return "time of a step" if self.steps_only else "time of the process"

    def build_in(self, folder: Path, log: Path) -> None:
        """Build the program; MeasureError when that fails."""
        if self.build is None:
            return
        words = ["/bin/sh", "-c", self.build]
        ended = run_supervised(words, self._place(folder), log=log, timeout_s=self.timeout_s)
        if ended.returncode:
            raise MeasureError(f"does not build (exit code {ended.returncode}): {_last(ended)}")

    def measure(self, folder: Path, scratch: Path) -> np.ndarray:
        """Run it once and return its samples; MeasureError when there are none."""
        if self.steps_only and not self.pattern:
            return self._steps(folder, scratch)
        log = scratch / "program.log"
        ended = run_supervised(self.words, self._place(folder), log=log, timeout_s=self.timeout_s)
        if ended.returncode:
            raise MeasureError(f"failed with exit code {ended.returncode}: {_last(ended)}")
        if self.pattern is None:
            return np.array([1000 * ended.duration_s])
        values = [float(m) for m in self.pattern.findall(ended.output)]
        positive = [v for v in values if 0 < v < float("inf")]
        if not positive:
            raise MeasureError(f"printed no positive number as {self.pattern.pattern}")
        return np.array([float(np.median(positive))])

    def _place(self, folder: Path) -> Path:
        place = folder / self.subfolder
        if not place.is_dir():
            raise MeasureError(f"has no folder {self.subfolder}")
        return place

    def _steps(self, folder: Path, scratch: Path) -> np.ndarray:
        """Return the step times in ms that the clean pass of `profile` sees."""
        out = scratch / f"bundle-{time.monotonic_ns()}"
        words = module_command("worker.profile", "--passes", "clean", "--quiet")
        words += ["--out", str(out), *self.profile_words, "--", *self.words]
        ended = run_supervised(
            words,
            self._place(folder),
            log=scratch / "program.log",
            timeout_s=self.timeout_s,
            environment={**with_rooms(os.environ), "TMPDIR": str(scratch)},
        )
        samples = _clean_samples_ms(out)
        if ended.returncode or not len(samples):
            why = "no step was seen" if not ended.returncode else f"exit code {ended.returncode}"
            raise MeasureError(f"{why}: {_last(ended)}")
        return samples


def _clean_samples_ms(bundle: Path) -> np.ndarray:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        manifest = json.loads((bundle / "manifest.json").read_text())
        clean = next(p for p in manifest["passes"] if p["pass"] == "clean")
        return np.array(clean["result"]["samples_ns"], dtype=float) / 1e6
    return np.empty(0)


def _last(ended: Ended) -> str:
    lines = [line for line in ended.output.splitlines() if line.strip()]
    return lines[-1][:_TAIL_CHARS] if lines else "it printed nothing"
