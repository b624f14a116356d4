"""`warpboard doctor`: check this host; each fault comes with its fix."""

import json
import os
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from app.cli.output import add_json, note, print_json
from core.config import ROOT, DataDir
from core.console import MAX_PORT, whole_number
from core.errors import RunFailedError
from core.finding import finding
from core.measured import FIGURES, peak_table
from core.python import module_command, with_rooms

PROBE_LIMIT_S = 300


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure and store this host's peaks and noise floor (minutes on a GPU)",
    )
    parser.add_argument(
        "--broker-file", metavar="F", help="check the broker whose URL is in file F"
    )
    parser.add_argument("--dashboard", metavar="URL", help="check a dashboard on another host")
    parser.add_argument("--token-file", metavar="F", help="file with that dashboard's token")
    number = whole_number(1, MAX_PORT)
    parser.add_argument("--port", type=number, default=8501, help="port that `up` will use")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.checks import dashboard_checks

    for name in ("broker_file", "dashboard", "token_file"):
        if getattr(options, name):
            os.environ[f"WARPBOARD_{name.upper()}"] = getattr(options, name)

    result = _worker_probe()
    checks: list[dict[str, Any]] = [*result.get("checks", [])]
    checks += dashboard_checks(data, options.port)
    result["checks"] = checks
    if options.measure:
        result["measured"] = _measure(data)
    faults = [c for c in checks if not c["is_ok"]]
    result["num_faults"] = len(faults)
    if options.json:
        print_json(result)
    else:
        _print(checks)
        for facts in result.get("measured", ()):
            print(f"\nmeasured and stored: {peak_table(facts)}")
    return 1 if faults else 0


def _worker_probe() -> dict[str, Any]:
    """Ask the worker's own probe, in the Python that runs workloads if there is one yet."""
    from app.environments import probe_python

    python = probe_python()
    try:
        done = subprocess.run(
            module_command("worker.probe", "--json", python=python),
            cwd=ROOT,
            env=with_rooms(os.environ),
            capture_output=True,
            text=True,
            timeout=PROBE_LIMIT_S,
            check=False,
        )
        result = dict(json.loads(done.stdout))
    except OSError as exc:
        return _no_probe(f"{python}: {exc.strerror}", "Fix WARPBOARD_PYTHON, or unset it")
    except subprocess.TimeoutExpired:
        fix = "Does nvidia-smi hang? Then the driver does: reboot the host"
        return _no_probe(f"no answer within {PROBE_LIMIT_S} s", fix)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return _no_probe(last, "Delete .venv-worker and run `warpboard up`, which makes it again")
    result["checks"] = [_not_made_yet(check) for check in result["checks"]]
    return result


def _no_probe(found: str, fix: str) -> dict[str, Any]:
    return {"checks": [finding("worker", found, fix, needed_for="jobs")]}


def _not_made_yet(check: dict[str, Any]) -> dict[str, Any]:
    """Return a missing torch as no fault where the worker's environment is only made on use."""
    from app.environments import made_worker_python, torch_choice

    if check["name"] != "torch" or check["is_ok"] or made_worker_python() is not None:
        return check
    found = f"not installed yet: the first job, or `warpboard up`, installs {torch_choice()}"
    fix = "WARPBOARD_TORCH=cpu, =cuda or a pip requirement chooses another"
    return {**check, "is_ok": True, "found": found, "fix": fix}


def _measure(data: DataDir) -> list[dict[str, Any]]:
    """Measure every GPU here; the figures go to the database and to this data folder's workers."""
    from app.environments import torch_python

    python = torch_python()
    note("measuring peaks: copy bandwidth, matrix products, launch latency, noise floor")
    done = subprocess.run(
        module_command("worker.measure", "--json", "--save", python=python),
        cwd=ROOT,
        env={**with_rooms(os.environ), "WARPBOARD_DATA": str(data.root)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise RunFailedError("doctor --measure: nothing was measured, for the reason above")
    measured: list[dict[str, Any]] = json.loads(done.stdout)["measured"]
    for facts in measured:
        _store(data, facts)
    return measured


def _store(data: DataDir, facts: Mapping[str, Any]) -> None:
    """Store one GPU's figures; one without a UUID has a row only once a worker reported it."""
    from db.connection import opened
    from db.workers import store_measurement, unnamed_gpus

    gpu = {**facts["gpu"], **{k: facts[k] for k in FIGURES}}
    workers = [p.read_text().strip() for p in data.root.glob("worker-*.id")]
    with opened(data.db_path) as db:
        uuid = gpu.get("uuid")
        for key in [uuid] if uuid else unnamed_gpus(db, gpu["model"], workers):
            store_measurement(db, key, gpu)


def _print(checks: list[dict[str, Any]]) -> None:
    for check in checks:
        mark = "ok   " if check["is_ok"] else "FAULT"
        print(f"{mark}  {check['name']}: {check['found']}")
        if check.get("fix"):
            print(f"       {'note' if check['is_ok'] else 'fix'}: {check['fix']}")
