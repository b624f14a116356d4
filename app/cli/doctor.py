"""`warpboard doctor`: what this host has and what it lacks, each fault with its fix."""

import json
import subprocess
from argparse import ArgumentParser, Namespace
from typing import Any

from app.cli.command import Command, add_json
from app.cli.output import note, print_json
from core.config import ROOT, DataDir


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--measure", action="store_true", help="measure this host's peaks (minutes on a GPU)"
    )
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.checks import dashboard_checks

    result = _worker_probe(data)
    checks: list[dict[str, Any]] = [*result.get("checks", []), *dashboard_checks(data)]
    result["checks"] = checks
    if options.measure:
        result["measured"] = _measure()
    faults = [c for c in checks if not c["is_ok"]]
    result["num_faults"] = len(faults)
    if options.json:
        print_json(result)
    else:
        _print(checks)
    return 1 if faults else 0


def _worker_probe(data: DataDir) -> dict[str, Any]:
    """Ask the worker's own probe, in the Python that runs workloads."""
    from app.pythons import probe_python

    python = probe_python()
    found = subprocess.run(
        [python, "-m", "worker.probe", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    try:
        return dict(json.loads(found.stdout))
    except ValueError:
        last = (found.stderr.strip().splitlines() or ["no output"])[-1]
        fix = "Delete .venv-worker and run `warpboard up`, which makes it again"
        check = {"name": "worker", "is_ok": False, "found": last, "fix": fix, "needed_for": "jobs"}
        return {"checks": [check]}


def _measure() -> Any:
    from app.pythons import torch_python

    python = torch_python()
    note("measuring peaks: copy bandwidth, matrix products, launch latency, noise floor")
    found = subprocess.run(
        [python, "-m", "worker.measure", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return json.loads(found.stdout) if found.stdout.strip() else None


def _print(checks: list[dict[str, Any]]) -> None:
    for check in checks:
        mark = "ok   " if check["is_ok"] else "FAULT"
        print(f"{mark}  {check['name']}: {check['found']}")
        if not check["is_ok"] and check.get("fix"):
            print(f"       fix: {check['fix']}")


COMMAND = Command(
    help="check GPUs, tools, permissions and the broker", arguments=arguments, run=run
)
