"""Nsight Compute: hardware counters of the kernels that take the most time.

A report of every launch would be gigabytes and hours. One launch of each configuration is measured,
of the kernels that the nsys capture of the same run shows to take most of the time; the pass
record says what share of the GPU time that is.
"""

import csv
import gzip
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captures.kinds import CaptureKind
from core.plain_text import some_of
from worker.outcomes import Outcome, OutcomeCode
from worker.profilers.ncu_choice import (
    FULL_SHARE_FRAC,
    LIMIT_VARIABLE,
    Choice,
    Launch,
    choose_kernels,
    coverage,
    kernel_id,
    launch_limit,
    time_shares,
)
from worker.profilers.spec import (
    Capture,
    Collected,
    PassContext,
    ProfilerSpec,
    ToolEndedError,
)
from worker.tools import find_ncu

SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "MemoryWorkloadAnalysis",
    "Occupancy",
    "LaunchStats",
)
"""What the counters, the roofline and the rules need, in 12 replays where `detailed` takes 20."""
SETS = {
    "basic": ("SpeedOfLight", "Occupancy", "LaunchStats"),
    "roofline": SECTIONS,
    "full": (
        *SECTIONS,
        *("MemoryWorkloadAnalysis_Chart", "MemoryWorkloadAnalysis_Tables"),
        *("WarpStateStats", "SchedulerStats", "InstructionStats", "SourceCounters"),
    ),
}
"""Sections of each set; `full` adds why warps wait, hit rates, traffic of memories, lines."""
MAX_REPORT_BYTES = 256 << 20


def _choice(context: PassContext) -> Choice | None:
    if context.nsys_sqlite is None:
        return None
    return choose_kernels(context.nsys_sqlite, launch_limit())


def _command(context: PassContext) -> list[str]:
    assert context.tool is not None and context.tool.path is not None
    choice = _choice(context)
    own = context.own
    if choice is not None:
        # By itself this mode tells configurations apart by grid, block and shared memory, not by
        # kernel; a launch number in the kernel id counts each kernel's launches in each of them.
        mode = ["--filter-mode", "per-launch-config", "--kernel-id", kernel_id(choice.kernels)]
        context.notes["kernel_shares"] = dict(time_shares(choice))
        context.notes["max_launches"] = len(choice.configurations)
    else:
        mode = ["--kernel-id", "::regex:.*:1", "--launch-count", str(launch_limit())]
        context.notes["max_launches"] = launch_limit()
    # A program whose steps are not seen has no switch inside it; see worker/child.py, hooks.
    switch = ["--profile-from-start", "off"] if own is None or own.has_steps else []
    extra = extra_metrics(context)
    return [
        context.tool.path,
        *(part for name in SETS[context.ncu_set] for part in ("--section", name)),
        *(("--metrics", ",".join(extra)) if extra else ()),
        *("--target-processes", "all", "--nvtx", *switch),
        *("--kernel-name-base", "mangled", *mode),
        *("--clock-control", "none", "--import-source", "no"),
        *("--force-overwrite", "--export", str(_report(context))),
        *context.program_under_tool("--iterations", "1", switch="BENCHMARK"),
    ]


def extra_metrics(context: PassContext) -> tuple[str, ...]:
    """Return this GPU's counters of tensor core operations, by kind of number, and of L2 traffic.

    Without them the FLOP of a matrix product are not known, nor a kernel's place under the roof of
    the L2 cache. Names differ between GPUs, and ncu ends the program for one that it does not know.
    """
    assert context.tool is not None and context.tool.path is not None
    assert context.run_tool is not None
    try:
        listed = context.run_tool([context.tool.path, "--query-metrics"], "metrics.txt")
    except ToolEndedError:  # the counters of every GPU are measured all the same
        return ()
    text = listed.read_text(errors="replace")
    names = re.findall(r"^(sm__ops_path_tensor_src_(?!int)[a-z0-9_]+?)\s", text, re.M)
    whole = [n for n in names if "_sparsity_" not in n]
    # `src_fp16` holds `src_fp16_dst_fp32`: where the parts are there, the whole counts them twice.
    kinds = [n for n in whole if not any(other.startswith(f"{n}_") for other in whole)]
    l2 = re.findall(r"^lts__t_sectors(?=\s)", text, re.M)[:1]
    return tuple(f"{name}.sum" for name in (*kinds, *l2))


def _report(context: PassContext) -> Path:
    return context.work_dir / "report.ncu-rep"


def _captures(context: PassContext, result: Mapping[str, Any] | None) -> Collected:
    report = _report(context)
    if not report.is_file():
        if result is None or result.get("status") != "ok":
            return Collected()
        message = "ncu wrote no report"
        return Collected(outcome=Outcome(code=OutcomeCode.NO_KERNELS_PROFILED, message=message))
    captures: list[Capture] = []
    launched: dict[str, Launch] = {}
    for page in ("raw", "details"):
        printed = _print_page(context, report, page)
        target = context.capture_path(f"{page}.csv.gz")
        capture = context.store(printed, target, CaptureKind.NCU_CSV)
        on_page = load_launches(target)
        if not on_page:
            target.unlink()
            continue
        launched |= on_page
        captures.append(capture)
    context.notes["num_launches"] = len(launched)
    if not captures:
        message = "the ncu report holds no kernel"
        return Collected(outcome=Outcome(code=OutcomeCode.NO_KERNELS_PROFILED, message=message))
    if context.ncu_set == "full":
        captures += _source_lines(context, report)
    warnings = _coverage_warning(context, launched)
    if context.keep_reports and report.stat().st_size > MAX_REPORT_BYTES:
        text = f"the report of ncu has more than {MAX_REPORT_BYTES >> 20} MiB and was not kept"
        warnings += (("report_too_large", text),)
    elif context.keep_reports:
        kept = context.capture_path("ncu-rep")
        shutil.move(report, kept)
        captures.append(context.capture(kept, CaptureKind.NCU_REP))
    return Collected(captures=tuple(captures), warnings=warnings)


def _source_lines(context: PassContext, report: Path) -> list[Capture]:
    """Keep the counters of each instruction as ncu prints them; [] where it prints none.

    The report was taken without the program's source files, so the lines are of machine code.
    """
    printed = _print_page(context, report, "source")
    if not printed.is_file() or not printed.stat().st_size:
        return []
    target = context.capture_path("source.csv.gz")
    return [context.store(printed, target, CaptureKind.NCU_SOURCE)]


def _coverage_warning(
    context: PassContext, launched: Mapping[str, Launch]
) -> tuple[tuple[str, str], ...]:
    """Note what share of the GPU time the report covers; warn unless it is most of it."""
    choice = _choice(context)
    if choice is None:
        text = (
            f"ncu covers one launch of {len(launched)} kernels; without an nsys pass their share "
            "of the GPU time is not known"
        )
        return (("ncu_partial_coverage", text),)
    covered = coverage(choice, launched.values())
    context.notes.update(
        kernel_time_share_frac=covered.time_share_frac,
        num_configurations_measured=covered.num_configurations,
        num_configurations=choice.num_configurations,
        num_launches_represented=covered.num_launches,
        num_launches_in_nsys=choice.num_launches,
    )
    if covered.time_share_frac >= FULL_SHARE_FRAC:
        return ()
    text = (
        f"ncu covers {covered.time_share_frac:.0%} of the GPU time: one launch of each of "
        f"{covered.num_configurations} of {choice.num_configurations} launch configurations"
    )
    if covered.tuned_otherwise:
        text += (
            f"; {some_of(covered.tuned_otherwise, 3)} ran with another grid or block "
            "than under nsys, as an autotuner that chooses anew in each process does"
        )
    if choice.share_frac < FULL_SHARE_FRAC:
        text += f" ({LIMIT_VARIABLE} raises the limit)"
    return (("ncu_partial_coverage", text),)


def _print_page(context: PassContext, report: Path, page: str) -> Path:
    assert context.tool is not None and context.tool.path is not None
    assert context.run_tool is not None
    command = [context.tool.path, "--import", str(report), "--csv", "--page", page]
    return context.run_tool([*command, "--print-units", "base"], f"{page}.csv")


def load_launches(page: Path) -> dict[str, Launch]:
    """Return launch id -> (kernel name, grid, block) of a page written by `_captures`."""
    csv.field_size_limit(1 << 24)
    header: list[str] = []
    launches: dict[str, Launch] = {}
    with gzip.open(page, "rt", newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.reader(file):
            if row and row[0] == "ID" and "Kernel Name" in row:
                header = row
            elif header and row and row[0].isdigit() and row[0] not in launches:
                cells = dict(zip(header, row, strict=False))
                name, grid, block = (
                    cells.get(n, "") for n in ("Kernel Name", "Grid Size", "Block Size")
                )
                launches[row[0]] = (name, _dims(grid), _dims(block))
    return launches


def _dims(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


PROFILER = ProfilerSpec(
    name="ncu", needs_tool=True, probe=find_ncu, command=_command, captures=_captures
)
