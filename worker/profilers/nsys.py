"""Nsight Systems: every kernel, API call and range of the measured part, as an SQLite export.

`nsys stats` exits 0 on failure, so the export is what is checked. The report itself holds
environment variables and paths; it leaves the host only when the operator keeps private facts.
"""

import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captures.database import open_immutable
from captures.kinds import CaptureKind
from core.errors import CaptureError
from worker.outcomes import Outcome, OutcomeCode
from worker.profilers.spec import Collected, PassContext, ProfilerSpec
from worker.tools import find_nsys


def _command(context: PassContext) -> list[str]:
    assert context.tool is not None and context.tool.path is not None
    return [
        *(context.tool.path, "profile"),
        *("--trace", "cuda,nvtx,cublas"),
        *("--sample=none", "--cpuctxsw=none", "--cuda-memory-usage=true"),
        *_what_is_captured(context),
        *("--cuda-graph-trace=node", "--stats=false", "--force-overwrite=true"),
        *("--output", str(_report(context))),
        *context.program_under_tool(),
    ]


def _what_is_captured(context: PassContext) -> list[str]:
    """Return the options that choose the measured part of the program."""
    own = context.own
    if own is None:
        return [
            # PyTorch's NVTX names are not registered strings, all nsys triggers on by default.
            *("--capture-range=nvtx", "--nvtx-capture=BENCHMARK"),
            "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
            # The default, stop-shutdown, would end the program before it prints its result.
            *("--capture-range-end=stop", "--kill=none", "--wait=primary"),
        ]
    wait = "all" if own.goes_on_after_its_end else "primary"
    children = ["--trace-fork-before-exec=true", f"--wait={wait}"]
    if not own.has_steps:
        return children
    end = ["--capture-range-end=stop", "--kill=none"]
    if own.ends_early:
        end = ["--capture-range-end=stop-shutdown", "--kill=sigterm"]
    return ["--capture-range=cudaProfilerApi", *end, *children]


def _report(context: PassContext) -> Path:
    return context.work_dir / "report.nsys-rep"


def _captures(context: PassContext, result: Mapping[str, Any] | None) -> Collected:
    report = _report(context)
    if not report.is_file():
        if result is None:
            return Collected()
        return _crash(_why_no_report(context))
    assert context.tool is not None and context.tool.path is not None
    assert context.run_tool is not None
    export = context.work_dir / "report.sqlite"
    log = context.run_tool(
        [
            *(context.tool.path, "export", "--type=sqlite", "--force-overwrite=true"),
            *("--output", str(export), str(report)),
        ],
        "nsys-export.txt",
    )
    if not export.is_file():
        return _crash(f"nsys export wrote nothing: {_last_line(log)}")
    target = context.capture_path("sqlite")
    try:
        captures = [context.store(export, target, CaptureKind.NSYS_SQLITE)]
        num_kernels = count_gpu_work(target)
    except (sqlite3.DatabaseError, CaptureError) as error:
        target.unlink(missing_ok=True)
        return _crash(f"nsys export cannot be read: {error}")
    if context.keep_reports:
        kept = context.capture_path("nsys-rep")
        shutil.move(report, kept)
        captures.append(context.capture(kept, CaptureKind.NSYS_REP))
    context.notes["num_gpu_operations"] = num_kernels
    if num_kernels == 0:
        message = "nsys recorded no GPU activity in the measured part"
        outcome = Outcome(code=OutcomeCode.NO_KERNELS_PROFILED, message=message)
        return Collected(captures=tuple(captures), outcome=outcome)
    return Collected(captures=tuple(captures))


def _crash(message: str) -> Collected:
    return Collected(outcome=Outcome(code=OutcomeCode.TOOL_CRASHED, message=message))


def _why_no_report(context: PassContext) -> str:
    if any(context.work_dir.glob("*.qdstrm")):
        return (
            "nsys left an unconverted .qdstrm and no report: its importer did not run "
            "(on Debian and Ubuntu it needs libdw1)"
        )
    if context.own is not None:
        return "nsys wrote no report: none of the steps that it was to capture began"
    return "nsys wrote no report: its capture range BENCHMARK was never opened"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def count_gpu_work(path: Path) -> int:
    """Return the number of kernels and whole-graph launches in an export."""
    total = 0
    db = open_immutable(path)
    try:
        tables = {n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
            if table in tables:
                total += db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    finally:
        db.close()
    return total


PROFILER = ProfilerSpec(
    name="nsys", needs_tool=True, probe=find_nsys, command=_command, captures=_captures
)
