"""`warpboard submit WORKLOAD`: one job or a sweep; with --wait to the end, showing progress."""

from argparse import ArgumentParser, Namespace
from typing import Any

from app.cli.output import add_json, note, print_json
from core.config import DataDir
from core.console import parse_sweep
from core.numbers import decimal
from core.spec import DEFAULT_NCU_SET, NCU_SETS

EXIT_FAILED = 3
GOOD = ("done", "oom")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("workload", metavar="WORKLOAD", help="name of a workload")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE[,VALUE]",
        help="a parameter; several values make a sweep",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME[,NAME]",
        help="cpu, a GPU model or part of it, or one physical GPU: MODEL@HOST:INDEX or its UUID",
    )
    parser.add_argument(
        "--profilers",
        metavar="P[,P]",
        help="nsys,ncu,memory,trace or none; default: those installed",
    )
    parser.add_argument("--repeats", type=int, default=1, help="processes of the clean pass")
    parser.add_argument(
        "--ncu-set", choices=NCU_SETS, default=DEFAULT_NCU_SET, help="counters of the ncu pass"
    )
    parser.add_argument(
        "--keep-reports",
        action="store_true",
        help="keep .nsys-rep and .ncu-rep too; they hold environment variables and paths",
    )
    parser.add_argument("--name", help="name of the run or sweep")
    parser.add_argument("--wait", action="store_true", help="wait until it ends, showing progress")
    add_json(parser)


def run(options: Namespace, data: DataDir) -> int:
    from app.imports import checked_name
    from app.waiting import Wanted, submit_and_wait, submit_only
    from workloads.registry import find_workload

    find_workload(options.workload)
    wanted = Wanted(
        workload=options.workload,
        values=parse_sweep(options.set),
        gpu=options.gpu,
        profilers=_profilers(options.profilers),
        repeats=options.repeats,
        name=checked_name(options.name),
        tools={"ncu_set": options.ncu_set, "keep_reports": options.keep_reports},
    )
    if options.wait:
        result = submit_and_wait(data, wanted, note)
    else:
        result = submit_only(data, wanted, note)
    if options.json:
        print_json(result)
    else:
        _print(result["runs"])
    is_bad = options.wait and any(r["status"] not in GOOD for r in result["runs"])
    return EXIT_FAILED if is_bad else 0


def _profilers(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text.strip().lower() in ("", "none") else tuple(text.split(","))


def _print(runs: list[dict[str, Any]]) -> None:
    for row in runs:
        latency = row.get("latency_ms")
        shown = f"  {decimal(latency)} ms" if latency is not None else ""
        error = f"  {row['error']}" if row.get("error") else ""
        print(f"{row['run_id']}  {row['status']}  {row['name']}{shown}{error}")
