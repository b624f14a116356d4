"""Run jobs here and leave bundles: no broker, no database, nothing but PyTorch.

`python -m worker.run_bundle WORKLOAD [--set k=v[,v]...] --out DIR`. Several values make a sweep:
one bundle folder a job under DIR. Progress and the final table go to stderr, with `--json` one JSON
document to stdout.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from core.console import (
    EXIT_INTERRUPTED,
    LineParser,
    fail,
    flushed,
    note,
    parse_sweep,
    print_json,
    refusal,
    seconds,
    stop_writing,
    wants_json,
)
from core.errors import AppError, UserError
from core.measured import FIGURES, peak_table
from core.spec import DEFAULT_NCU_SET, NCU_SETS, JobSpec, expand_sweep, normalise_profilers
from worker.execute import Job, JobLimits, warnings_of
from worker.measure import measure_and_keep
from worker.passes import GpuTarget
from worker.targets import CPU, find_targets, join_targets, without_uuids
from workloads.registry import parse_params

EXIT_DONE, EXIT_FAILED = 0, 3


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    is_json = wants_json(words)
    try:
        return flushed(_run(_parser().parse_args(words)))
    except AppError as error:
        return fail(str(error), error.exit_code, is_json=is_json)
    except KeyboardInterrupt:
        return fail("stopped", EXIT_INTERRUPTED, is_json=is_json)
    except BrokenPipeError:
        return stop_writing(EXIT_FAILED)
    except OSError as error:
        return fail(refusal(error) or str(error), UserError.exit_code, is_json=is_json)


def _run(args: argparse.Namespace) -> int:
    if args.data:
        os.environ["WARPBOARD_DATA"] = args.data
    targets = find_targets(args.gpu)
    model, gpu = targets[0]
    specs = build_specs(args, model)
    for spec in specs:
        join_targets(targets, spec.num_gpus)
    folders = bundle_folders(args.out, specs)
    if args.measure_peaks:
        targets[0] = (model, with_measured_peaks(model, gpu))
    manifests = run_all(specs, folders, targets, args)
    rows = [_row(folder, manifest) for folder, manifest in zip(folders, manifests, strict=True)]
    note(_table(rows))
    if args.json:
        print_json({"schema_version": 1, "runs": rows})
    is_good = all(row["status"] in ("done", "oom") for row in rows)
    return EXIT_DONE if is_good else EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = LineParser(
        prog="warpboard run",
        usage="warpboard run WORKLOAD --out DIR [--set K=V[,V]]... [options]",
        description=__doc__,
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="name of a workload")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="K=V[,V]",
        dest="settings",
        help="a parameter; several values make a sweep",
    )
    parser.add_argument("--profilers", default="", help="nsys,ncu,memory,trace; default none")
    parser.add_argument("--ncu-set", choices=NCU_SETS, default=DEFAULT_NCU_SET)
    parser.add_argument(
        "--keep-reports",
        action="store_true",
        help="keep .nsys-rep and .ncu-rep too; they hold environment variables and paths",
    )
    parser.add_argument("--repeats", type=int, default=1, help="processes of the clean pass")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    parser.add_argument("--gpu", default="all", help="ordinal, UUID, model or cpu; default: first")
    parser.add_argument("--timeout", type=seconds, help="seconds for one process; default 1 h")
    parser.add_argument("--interleave", action="store_true", help="repeat as A B A B, not A A B B")
    parser.add_argument("--keep-private", action="store_true", help="keep host facts and reports")
    parser.add_argument(
        "--measure-peaks",
        action="store_true",
        help="measure this GPU's peaks first (minutes); default: those of `doctor --measure`",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="data directory with the measured peaks (WARPBOARD_DATA)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def with_measured_peaks(model: str, gpu: GpuTarget) -> GpuTarget:
    """Measure the GPU and return it with the figures; they stay where a data folder is named."""
    note("measuring peaks and noise floor")
    measured = measure_and_keep(model, gpu, keep=bool(os.environ.get("WARPBOARD_DATA")))
    note(peak_table(measured))
    return replace(gpu, facts={**gpu.facts, **{name: measured[name] for name in FIGURES}})


def build_specs(args: argparse.Namespace, model: str) -> list[JobSpec]:
    """Return one spec for each combination of the given values; UserError names a wrong one."""
    values = parse_sweep(args.settings)
    profilers = normalise_profilers(args.profilers.split(","))
    return [
        JobSpec(
            workload=args.workload,
            params=parse_params(args.workload, combination, gpu_is_cpu=model == CPU),
            profilers=profilers,
            repeats=args.repeats,
            gpu=model,
            ncu_set=args.ncu_set,
            keep_reports=args.keep_reports,
        )
        for combination in expand_sweep(values)
    ]


def bundle_folders(out: Path, specs: list[JobSpec]) -> list[Path]:
    """Return an empty folder for each job: `out` itself for one, else one below it for each."""
    varied = {k for k in specs[0].params if len({s.params[k] for s in specs}) > 1}
    folders = [out] if len(specs) == 1 else [out / _name(i, s, varied) for i, s in enumerate(specs)]
    for folder in folders:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"--out {folder}: is not an empty folder; choose another")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {folder}: {error.strerror}") from error
    return folders


def _name(index: int, spec: JobSpec, varied: set[str]) -> str:
    parts = "_".join(f"{k}-{spec.params[k]}" for k in sorted(varied) if k != "preset")
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{index:02d}_{spec.workload}_{parts}")[:100].rstrip(
        "_"
    )


def run_all(
    specs: list[JobSpec],
    folders: list[Path],
    targets: list[tuple[str, GpuTarget]],
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Run the jobs one after the other, or their clean passes in turn, and return the manifests."""
    limits = JobLimits()
    if args.timeout is not None:
        limits = JobLimits(clean_s=args.timeout, profiled_s=args.timeout)
    jobs = [
        Job(
            spec,
            folder,
            gpu=_given_away(join_targets(targets, spec.num_gpus)[1], args),
            on_event=_printer(folder.name),
            keep_private=args.keep_private,
        )
        for spec, folder in zip(specs, folders, strict=True)
    ]
    try:
        for job in jobs:
            job.prepare(python=None, limits=limits, should_cancel=None)
        if not args.interleave:
            manifests = []
            for job in jobs:
                for process in range(job.spec.repeats):
                    job.run_clean(process)
                job.run_profilers()
                manifests.append(job.finish())
            return manifests
        order = 0
        for process in range(args.repeats):
            for job in jobs:
                job.run_clean(process, order)
                order += 1
        for job in jobs:
            job.run_profilers()
        return [job.finish() for job in jobs]
    finally:
        for job in jobs:
            job.close()


def _given_away(target: GpuTarget, args: argparse.Namespace) -> GpuTarget:
    return target if args.keep_private else without_uuids(target)


def _printer(label: str) -> Any:
    started = time.monotonic()

    def show(event: Mapping[str, Any]) -> None:
        progress = event.get("progress") or {}
        text = str(event["message"])
        if progress:
            text = f"{text} {progress.get('done')}/{progress.get('total')}"
        note(f"[{time.monotonic() - started:7.1f}] {label}: {text}")

    return show


def _row(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    clean = [p for p in manifest["passes"] if p["pass"] == "clean"]
    samples = [ns for p in clean for ns in p["result"].get("samples_ns", ())]
    medians = sorted(
        median(p["result"]["samples_ns"]) for p in clean if p["result"].get("samples_ns")
    )
    row = {
        "bundle": str(folder),
        "workload": manifest["job"]["workload"],
        "params": manifest["job"]["params"],
        "gpu": manifest["gpu"]["model"],
        "status": manifest["status"],
        "error": manifest["error"],
        "outcomes": {f"{p['pass']}-{p['process']}": p["outcome"] for p in manifest["passes"]},
        "num_processes": len(medians),
        "num_samples": len(samples),
        "warnings": warnings_of(manifest),
    }
    if medians:
        row["latency_ms"] = {
            "median": median(samples) / 1e6,
            "process_medians": [ns / 1e6 for ns in medians],
        }
    return row


def _table(rows: list[dict[str, Any]]) -> str:
    """Return a table of the jobs: varied params, latency, passes; below it the warnings."""
    varied = sorted(
        k for k in rows[0]["params"] if len({str(r["params"].get(k)) for r in rows}) > 1
    )
    varied = [k for k in varied if k != "preset"] or varied
    cells = [["status", *varied, "median ms", "processes", "samples", "passes", "bundle"]]
    for row in rows:
        latency = row.get("latency_ms", {}).get("median")
        bad = [f"{name} {outcome}" for name, outcome in row["outcomes"].items() if outcome != "ok"]
        cells.append(
            [
                row["status"],
                *(str(row["params"].get(name, "-")) for name in varied),
                "-" if latency is None else f"{latency:.4f}",
                *(str(row["num_processes"]), str(row["num_samples"])),
                ", ".join(bad) or f"{len(row['outcomes'])} ok",
                row["bundle"],
            ]
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["", *("  ".join(map(str.ljust, line, widths)).rstrip() for line in cells)]
    notes = []
    for row in rows:
        name = Path(row["bundle"]).name
        notes += [f"{name}: {w['code']}: {w['message']}" for w in row["warnings"]]
        notes += [f"{name}: error: {row['error']}"] if row["error"] else []
    notes += [f"look at it: warpboard import {rows[0]['bundle']}"] if len(rows) == 1 else []
    return "\n".join([*lines, *(["", *notes] if notes else [])])


if __name__ == "__main__":
    sys.exit(main())
