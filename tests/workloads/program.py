"""Run workload programs as a worker does, and read what they leave."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import ROOT

COMPILE_LITTLE = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""Settings of compiled jobs: no vector code to try out, no second process that imports PyTorch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One ended program."""

    returncode: int
    stdout: str
    stderr: str
    events: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        return json.loads(self.stdout.splitlines()[-1])


def run_program(
    python: str, *arguments: str, out: Path, spec: Mapping[str, Any] | None = None, **env: str
) -> Finished:
    """Run `python -m workloads ARGUMENTS` to its end."""
    argv = [*arguments, "--out", str(out)]
    if spec is not None:
        argv += ["--spec", json.dumps(spec)]
    events = out / "events.txt"
    with events.open("w") as file:
        number = file.fileno()
        done = subprocess.run(
            [python, "-m", "workloads", *argv, "--events-fd", str(number)],
            cwd=ROOT,
            env={**os.environ, **env},
            pass_fds=[number],
            capture_output=True,
            text=True,
        )
    return Finished(
        returncode=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        events=[json.loads(line) for line in events.read_text().splitlines()],
    )
