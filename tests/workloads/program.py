"""Run `python -m workloads` as a worker does, and read what it leaves."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import ROOT


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
    *arguments: str, out: Path, spec: Mapping[str, Any] | None = None, **env: str
) -> Finished:
    """Run to the end, with one thread: the suite shares its cores."""
    events_path = out / "events.jsonl"
    command = [sys.executable, "-m", "workloads", *arguments, "--out", str(out)]
    if spec is not None:
        command += ["--spec", json.dumps(spec)]
    with events_path.open("w") as events:
        command += ["--events-fd", str(events.fileno())]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
            pass_fds=[events.fileno()],
            capture_output=True,
            text=True,
            timeout=300,
        )
    lines = events_path.read_text().splitlines()
    return Finished(
        returncode=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        events=[json.loads(line) for line in lines],
    )
