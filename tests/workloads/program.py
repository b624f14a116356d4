"""Run workload programs as a worker does, and read what they leave."""

import functools
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


@functools.cache
def _server() -> "subprocess.Popen[str]":
    """Start the fork server, with one thread: the suite shares its cores. It ends with our pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.workloads.fork_server"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_program(
    *arguments: str, out: Path, spec: Mapping[str, Any] | None = None, **env: str
) -> Finished:
    """Run `python -m workloads ARGUMENTS` to its end in a forked child."""
    argv = [*arguments, "--out", str(out)]
    if spec is not None:
        argv += ["--spec", json.dumps(spec)]
    paths = {name: out / f"{name}.txt" for name in ("stdout", "stderr", "events")}
    for path in paths.values():
        path.write_text("")
    request = {"argv": argv, "env": env} | {name: str(path) for name, path in paths.items()}
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    returncode = int(server.stdout.readline())
    texts = {name: path.read_text() for name, path in paths.items()}
    return Finished(
        returncode=returncode,
        stdout=texts["stdout"],
        stderr=texts["stderr"],
        events=[json.loads(line) for line in texts["events"].splitlines()],
    )
