"""`python -m workloads NAME --spec JSON`: see docs/architecture.md, Workload programs."""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from core.errors import UserError
from workloads.measure.output import Events, ResultLine
from workloads.measure.passes import PASSES
from workloads.params import load_params
from workloads.registry import find_workload, load_workloads
from workloads.spec import WorkloadSpec

EXIT_OK, EXIT_USER, EXIT_FAILED = 0, 2, 3


def main(argv: list[str] | None = None) -> int:
    """Run one workload (or list them) and return the exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    args = _parser().parse_args(argv)
    if args.list:
        print(json.dumps([_listed(spec) for spec in load_workloads().values()]))
        return EXIT_OK
    result_line = ResultLine()
    head: dict[str, Any] = {"schema_version": 1, "workload": args.name, "pass": args.pass_name}
    try:
        spec = find_workload(args.name or "")
        params = load_params(spec, _read_spec(args.spec))
    except UserError as error:
        print(error, file=sys.stderr)
        result_line.write(head | {"status": "failed", "error": str(error)})
        return EXIT_USER
    from dataclasses import asdict

    from workloads.harness import RunOptions, run_workload

    args.out.mkdir(parents=True, exist_ok=True)
    options = RunOptions(
        pass_name=args.pass_name,
        out=args.out,
        iterations=args.iterations,
        warmup=args.warmup,
        device=args.device,
        is_profiled=not args.not_profiled,
    )
    result = run_workload(spec, params, options, Events(args.events_fd))
    if result["status"] == "failed":
        print(result["error"], file=sys.stderr)
    result_line.write(head | {"params": asdict(params)} | result)
    return EXIT_FAILED if result["status"] == "failed" else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workloads", description=__doc__)
    parser.add_argument("name", nargs="?", help="workload")
    parser.add_argument("--list", action="store_true", help="print all workloads as JSON")
    parser.add_argument("--spec", default="{}", help="params as a JSON object, or @FILE")
    parser.add_argument("--pass", dest="pass_name", choices=PASSES, default="clean")
    parser.add_argument("--events-fd", type=int, help="descriptor for progress JSON lines")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for captures")
    parser.add_argument("--iterations", type=_count(1), help="measured iterations")
    parser.add_argument("--warmup", type=_count(0), help="iterations before the measured part")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="")
    parser.add_argument(
        "--not-profiled", action="store_true", help="a rank of several that records nothing"
    )
    return parser


def _count(least: int) -> Any:
    def parse(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return parse


def _read_spec(text: str) -> dict[str, Any]:
    where = "--spec"
    if text.startswith("@"):
        where = text[1:]
        try:
            text = Path(where).read_text()
        except OSError as error:
            raise UserError(f"--spec {where}: {error.strerror}") from error
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error}); wanted an object of params") from error
    if not isinstance(values, dict):
        raise UserError(f"{where}: a JSON object of params is wanted, not {text[:40]!r}")
    return values


def _listed(spec: WorkloadSpec) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": spec.name,
        "title": spec.title,
        "about": spec.about,
        "source": spec.source,
        "error": spec.error,
        "runs_on_cpu": spec.runs_on_cpu,
        "phases": spec.phases,
        "modes": spec.modes,
        "implementations": spec.implementations,
        "presets": spec.all_presets,
        "fields": [asdict(f) for f in spec.fields],
    }


if __name__ == "__main__":
    sys.exit(main())
