"""Profile any program, unchanged, and keep what was found as one run.

The program is run once for each pass: `clean` alone, for latency; `nsys` or `trace` for kernels,
`memory` for the allocator, `ncu` for the counters of the kernels that matter. Needs Python's
standard library; what a PyTorch program needs for its steps to be seen enters by PYTHONPATH.
Exit code: the program's own (128 + N for signal N), 130 after Ctrl-C or SIGTERM, 2 for a wrong
argument, 3 where nothing could be measured.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.console import (
    EXIT_INTERRUPTED,
    LineParser,
    fail,
    flushed,
    note,
    print_json,
    seconds,
    whole_number,
    word,
)
from core.errors import AppError, UserError
from core.git import commit_of
from core.metric_patterns import metric_pattern
from core.program_settings import settings_in, settings_text
from core.spec import DEFAULT_NCU_SET, MAX_REPEATS, NCU_SETS, JobSpec, program_name
from core.states import PROFILER_PASSES, Pass
from worker.execute import Job, JobLimits
from worker.own_program import OwnProgram, Wishes, public_words
from worker.profile.deliver import deliver, place_of_run, refuse_early
from worker.profile.given_input import given_input
from worker.profile.latency import ALONE, TO_NEXT
from worker.profile.progress import Progress
from worker.targets import CPU, find_targets, without_uuids
from worker.tools import find_nsys
from workloads.registry import parse_params

EXIT_FAILED = 3


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    is_json = "--json" in words[: words.index("--") if "--" in words else len(words)]
    try:
        return flushed(_run(*split_arguments(words)))
    except AppError as error:
        return fail(str(error), error.exit_code, is_json=is_json)
    except KeyboardInterrupt:
        return fail("stopped", EXIT_INTERRUPTED, is_json=is_json)
    except OSError as error:
        return fail(
            f"{error.filename or 'writing'}: {error.strerror}", EXIT_FAILED, is_json=is_json
        )


def split_arguments(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return our options and the program's words, which follow `--`; UserError without them."""
    cut = words.index("--") if "--" in words else len(words)
    is_help = not {"-h", "--help"}.isdisjoint(words[:cut])
    program = words[cut + 1 :]
    args = make_parser().parse_args(words[:cut]) if program or is_help else None
    if args is None:
        raise UserError("profile: no program given; put it after `--`: profile -- python train.py")
    if shutil.which(program[0]) is None:
        is_script = program[0].endswith(".py") and os.path.isfile(program[0])
        remedy = f"; a script needs its Python: -- python {program[0]}" if is_script else ""
        raise UserError(
            f"profile: {program[0]!r} is not an executable program on this host{remedy}"
        )
    return args, program


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of our own options, which stand before `--`."""
    parser = LineParser(
        prog="warpboard profile",
        usage="warpboard profile [options] -- PROGRAM ARGS...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--name", type=word, help="name of the run; default: the program's")
    parser.add_argument(
        "--passes",
        metavar="P[,P]",
        help="clean,nsys,ncu,memory,trace; default clean, nsys (trace without it) and memory; "
        "clean is always run",
    )
    parser.add_argument(
        "--repeats",
        type=whole_number(1, MAX_REPEATS),
        default=1,
        help="processes of the clean pass; default 1",
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1, 1_000_000),
        default=0,
        help="end the program after this many measured steps; default: measure all of them",
    )
    parser.add_argument(
        "--skip",
        type=whole_number(0, 1_000_000),
        default=0,
        help="warm-up steps to leave out; default: until step times settle",
    )
    parser.add_argument(
        "--latency",
        choices=("next", "alone"),
        default="next",
        help="latency of a step: from its start to the next step's start, or to its own end",
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="REGEX",
        help="store a number the program prints: 'tok/s: ([0-9.]+)'; may be repeated",
    )
    parser.add_argument("--ncu-set", choices=NCU_SETS, default=DEFAULT_NCU_SET)
    parser.add_argument(
        "--keep-reports",
        action="store_true",
        help="keep .nsys-rep and .ncu-rep too: they hold environment variables and paths",
    )
    parser.add_argument(
        "--keep-private", action="store_true", help="store host names and paths too"
    )
    parser.add_argument("--timeout", type=seconds, help="seconds for one process; default 1 h")
    parser.add_argument("--quiet", action="store_true", help="do not show what the program prints")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--out", type=Path, metavar="DIR", help="write the run to this folder")
    to.add_argument("--to", metavar="URL", help="send the run to this dashboard")
    parser.add_argument(
        "--token-file", type=Path, metavar="F", help="file with the dashboard's token"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document at the end")
    return parser


def _run(args: argparse.Namespace, words: list[str]) -> int:
    for pattern in args.metric:
        metric_pattern(pattern)
    refuse_early(args.out, args.to, args.token_file)
    args.out = place_of_run(args.out, args.to)
    model, target = find_targets("all")[0]
    # A program may use every GPU that its environment shows it.
    target = replace(target, visible_devices=None)
    target = target if args.keep_private else without_uuids(target)
    passes = _passes(args.passes, on_cpu=model == CPU)
    with _folder(args.out) as folder, given_input() as stdin:
        source = commit_of(Path.cwd())
        own = OwnProgram(words=words, wishes=_wishes(args), stdin=stdin, source=source)
        spec = _spec(args, words, passes, model)
        progress = Progress(
            passes=passes, repeats=args.repeats, quiet=args.quiet, is_json=args.json
        )
        job = Job(spec, folder, gpu=target, keep_private=args.keep_private, own=own,
                  on_output=progress.program_output, on_note=progress.remark)  # fmt: skip
        stop = threading.Event()
        limits = JobLimits()
        if args.timeout is not None:
            limits = JobLimits(clean_s=args.timeout, profiled_s=args.timeout)
        with _interrupts(stop):
            manifest = _measure(job, own, progress, stop, limits, args.name)
        note(progress.summary(manifest))
        with _stops_at_once():
            where = deliver(folder, out=args.out, url=args.to, token_file=args.token_file)
        if args.json:
            print_json({"schema_version": 1, "run": where, "status": manifest["status"]})
        return _exit_code(own, manifest, is_stopped=stop.is_set())


def _wishes(args: argparse.Namespace) -> Wishes:
    return Wishes(
        num_steps=args.steps,
        num_skipped=args.skip,
        latency=ALONE if args.latency == "alone" else TO_NEXT,
        metrics=tuple(args.metric),
    )


def _passes(text: str | None, *, on_cpu: bool) -> tuple[str, ...]:
    """Return the profiler passes in the order they run; UserError for an unknown one."""
    if text is not None:
        wanted = {name.strip().lower() for name in text.split(",") if name.strip()}
        unknown = wanted - {str(p) for p in Pass}
        if unknown:
            known = ", ".join(str(p) for p in Pass)
            raise UserError(f"--passes: {sorted(unknown)[0]!r} is not one of {known}")
        return tuple(str(p) for p in PROFILER_PASSES if str(p) in wanted)
    timeline = "nsys" if find_nsys().is_usable else "trace"
    return (timeline,) if on_cpu else (timeline, "memory")


def _spec(args: argparse.Namespace, words: list[str], passes: tuple[str, ...], model: str) -> Any:
    values = {
        "argv": json.dumps(words if args.keep_private else public_words(words)),
        "name": args.name or program_name(words),
        "iterations": args.steps,
        "warmup": args.skip,
        "latency": "step alone" if args.latency == "alone" else "step to step",
        "metrics": json.dumps(args.metric),
        "settings": settings_text(settings_in(os.environ)),
    }
    params = parse_params("command", values, gpu_is_cpu=model == CPU)
    return JobSpec(
        workload="command",
        params=params,
        profilers=passes,
        repeats=args.repeats,
        gpu=model,
        ncu_set=args.ncu_set,
        keep_reports=args.keep_reports,
    )


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Give the folder of the bundle: the user's, or one that goes when the run is delivered."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"--out {out}: is not an empty folder; choose another")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {out}: {error.strerror}; choose another folder") from error
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="warpboard-profile-") as name:
        yield Path(name)


@contextmanager
def _interrupts(stop: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the pass that runs, and the second one everything.

    SIGTERM is what `timeout`, a batch system at its time limit and a container that stops send.
    """

    def interrupted(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        note("warpboard: stopping; results so far are kept (Ctrl-C again: stop at once)")

    before = {n: signal.signal(n, interrupted) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _stops_at_once() -> Iterator[None]:
    """Let SIGTERM end what runs as Ctrl-C does."""

    def interrupted(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measure(
    job: Job,
    own: OwnProgram,
    progress: Progress,
    stop: threading.Event,
    limits: JobLimits,
    name: str | None,
) -> dict[str, Any]:
    """Run the passes, each shown as it begins and ends; return the manifest."""
    try:
        job.prepare(python=None, limits=limits, should_cancel=stop.is_set)
        for process in range(job.spec.repeats):
            if not stop.is_set():
                progress.begins("clean", process)
                job.run_clean(process)
                progress.ended(job.last_record)
        for pass_name in job.spec.profilers:
            if stop.is_set() or job.is_stopped:
                break
            if why := own.why_left_out(pass_name):
                job.leave_out(why)
                progress.left_out(why["message"])
                continue
            progress.begins(pass_name, 0, own.captured(pass_name) if own.has_steps else None)
            job.run_profiler(pass_name)
            progress.ended(job.last_record)
        return job.finish(keeps_cut_off=True)
    finally:
        job.close()


def _exit_code(own: OwnProgram, manifest: Mapping[str, Any], *, is_stopped: bool) -> int:
    if is_stopped:
        return EXIT_INTERRUPTED
    code = own.exit_code
    if code is None:
        return EXIT_FAILED
    if code < 0:
        return 128 - code
    if code == 0 and manifest["status"] == "failed":
        return EXIT_FAILED
    return code
