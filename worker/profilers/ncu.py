"""Nsight Compute: hardware counters of the kernels that take the most time.

A report of every launch would be gigabytes and hours. The kernels are chosen from the nsys capture
of the same run, and the pass record says what share of the GPU time the chosen ones have.
"""

import csv
import gzip
import re
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.outcomes import Outcome, OutcomeCode
from worker.profilers.spec import Capture, Collected, PassContext, ProfilerSpec
from worker.scrub import scrub_ncu_csv
from worker.tools import find_ncu

MAX_KERNEL_NAMES = 12
WANTED_SHARE_FRAC = 0.95
MAX_LAUNCHES = 120
LAUNCHES_WITHOUT_NSYS = 40
MAX_REPORT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which kernels ncu is asked for."""

    shares: Mapping[str, float]
    "Base name -> part of all kernel time in the nsys capture, largest first."
    launches_per_iteration: int
    "Launches of these names in one iteration."

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.shares)


def choose_kernels(nsys_sqlite: Path) -> Choice | None:
    """Return the kernel names that make up most of the GPU time, or None without kernels."""
    db = sqlite3.connect(f"file:{nsys_sqlite}?mode=ro", uri=True)
    try:
        tables = {n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        if not {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
            return None
        rows = db.execute(
            'SELECT s.value, SUM(k."end" - k.start), COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k '
            "JOIN StringIds s ON s.id = k.shortName GROUP BY s.value ORDER BY 2 DESC, 1"
        ).fetchall()
        iterations = _count_iterations(db, tables)
    finally:
        db.close()
    total_ns = sum(ns for _, ns, _ in rows)
    if not total_ns:
        return None
    each = [(name, ns / total_ns, -(-count // iterations)) for name, ns, count in rows]
    chosen = _most_time(each)
    if sum(launches for _, _, launches in chosen) > MAX_LAUNCHES:
        chosen = _longest_that_fit(each) or chosen[:1]
    return Choice(
        shares={name: share for name, share, _ in chosen},
        launches_per_iteration=sum(launches for _, _, launches in chosen),
    )


def _most_time(each: list[tuple[str, float, int]]) -> list[tuple[str, float, int]]:
    """Return the names with the most time, up to the wanted share."""
    chosen: list[tuple[str, float, int]] = []
    for entry in each[:MAX_KERNEL_NAMES]:
        chosen.append(entry)
        if sum(share for _, share, _ in chosen) >= WANTED_SHARE_FRAC:
            break
    return chosen


def _longest_that_fit(each: list[tuple[str, float, int]]) -> list[tuple[str, float, int]]:
    """Return the names with the longest launches, all launches of an iteration within the limit.

    ncu takes the first launches that match: a name with hundreds of short ones would use up the
    limit before a backward or optimizer kernel is reached.
    """
    chosen: list[tuple[str, float, int]] = []
    left = MAX_LAUNCHES
    for entry in sorted(each, key=lambda e: e[1] / e[2], reverse=True):
        if entry[2] <= left and len(chosen) < MAX_KERNEL_NAMES:
            chosen.append(entry)
            left -= entry[2]
    return sorted(chosen, key=lambda e: e[1], reverse=True)


def _count_iterations(db: sqlite3.Connection, tables: set[str]) -> int:
    if "NVTX_EVENTS" not in tables:
        return 1
    (count,) = db.execute(
        "SELECT COUNT(*) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
        "WHERE COALESCE(n.text, s.value) GLOB 'iteration_[0-9]*'"
    ).fetchone()
    return max(1, int(count))


def kernel_regex(names: tuple[str, ...]) -> str:
    """Return ncu's `--kernel-name` value that matches exactly these base names."""
    return "regex:^(" + "|".join(re.escape(n).replace(r"\-", "-") for n in names) + ")$"


def _command(context: PassContext) -> list[str]:
    assert context.tool is not None and context.tool.path is not None
    choice = choose_kernels(context.nsys_sqlite) if context.nsys_sqlite is not None else None
    is_own_program = context.workload == "command"
    filters: list[str] = []
    if choice is not None:
        launches = min(MAX_LAUNCHES, choice.launches_per_iteration)
        filters = ["--kernel-name-base", "function", "--kernel-name", kernel_regex(choice.names)]
        context.notes["kernel_shares"] = dict(choice.shares)
        context.notes["launches_per_iteration"] = choice.launches_per_iteration
    else:
        launches = LAUNCHES_WITHOUT_NSYS
    context.notes["max_launches"] = launches
    # A user's own binary has no switch inside it; see worker/child.py.
    switch = [] if is_own_program else ["--profile-from-start", "off"]
    rounds = ["--iterations", "1", *(("--warmup", "0") if is_own_program else ())]
    return [
        context.tool.path,
        *("--set", "detailed"),
        *("--target-processes", "all", "--nvtx", *switch, *filters),
        *("--launch-count", str(launches)),
        *("--clock-control", "none", "--import-source", "no"),
        *("--force-overwrite", "--export", str(_report(context))),
        *context.program_under_tool(*rounds, switch="" if is_own_program else "BENCHMARK"),
    ]


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
    launched: dict[str, str] = {}
    for page in ("raw", "details"):
        printed = _print_page(context, report, page)
        target = context.bundle_dir / f"ncu-{context.process}.{page}.csv.gz"
        if context.keep_private:
            _compress(printed, target)
            removed: tuple[str, ...] = ()
        else:
            removed = scrub_ncu_csv(printed, target)
        on_page = load_launches(target)
        if not on_page:
            target.unlink()
            continue
        launched |= on_page
        captures.append(_capture(context, target, "ncu_csv", removed))
    context.notes["num_launches"] = len(launched)
    if not captures:
        message = "the ncu report holds no kernel"
        return Collected(outcome=Outcome(code=OutcomeCode.NO_KERNELS_PROFILED, message=message))
    if context.keep_private and report.stat().st_size <= MAX_REPORT_BYTES:
        kept = context.bundle_dir / f"ncu-{context.process}.ncu-rep"
        shutil.move(report, kept)
        captures.append(_capture(context, kept, "ncu_rep", ()))
    return Collected(captures=tuple(captures), warnings=_coverage_warning(context, launched))


def _coverage_warning(
    context: PassContext, launched: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Note what share of the GPU time the report covers; warn unless it is whole iterations."""
    count = len(launched)
    if "kernel_shares" not in context.notes:
        text = (
            f"ncu covers the first {count} launches; without an nsys pass their share of the GPU "
            "time is not known"
        )
        return (("ncu_partial_coverage", text),)
    seen = " ".join(set(launched.values()))
    shares: Mapping[str, float] = context.notes["kernel_shares"]
    share = sum(frac for name, frac in shares.items() if name in seen)
    context.notes["kernel_time_share_frac"] = share
    wanted = context.notes["launches_per_iteration"]
    if count >= wanted:
        return ()
    text = (
        f"ncu covers kernels with {share:.0%} of the GPU time, and {count} of the {wanted} "
        "launches that they have in one iteration"
    )
    return (("ncu_partial_coverage", text),)


def _print_page(context: PassContext, report: Path, page: str) -> Path:
    assert context.tool is not None and context.tool.path is not None
    assert context.run_tool is not None
    command = [context.tool.path, "--import", str(report), "--csv", "--page", page]
    return context.run_tool([*command, "--print-units", "base"], f"{page}.csv")


def _compress(source: Path, target: Path) -> None:
    with open(source, "rb") as file, gzip.open(target, "wb") as out:
        shutil.copyfileobj(file, out)


def load_launches(page: Path) -> dict[str, str]:
    """Return launch id -> kernel name of a page written by `_captures`."""
    csv.field_size_limit(1 << 24)
    column = 0
    launches: dict[str, str] = {}
    with gzip.open(page, "rt", newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.reader(file):
            if row and row[0] == "ID" and "Kernel Name" in row:
                column = row.index("Kernel Name")
            elif column and len(row) > column and row[0].isdigit():
                launches[row[0]] = row[column]
    return launches


def _capture(context: PassContext, path: Path, kind: str, removed: tuple[str, ...]) -> Capture:
    assert context.tool is not None
    return Capture(
        path=path, kind=kind, tool="ncu", tool_version=context.tool.version, private_removed=removed
    )


PROFILER = ProfilerSpec(
    name="ncu", needs_tool=True, probe=find_ncu, command=_command, captures=_captures
)
