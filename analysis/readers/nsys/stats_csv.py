"""Read the CSV reports of `nsys stats`: kernel, API, memory and range summaries, old and new names.

`nsys stats` ends with code 0 whatever happens, so an empty file or one that only says SKIPPED is
"no data", not a measurement of nothing. Text tables are refused: they cut names short, and kernels
of one cut name cannot be told apart. Reports that hold something else are left out by name, or
refused where there is nothing beside them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from analysis.classify.names import short_name
from analysis.readers.nsys.stats_rows import Content, Summary, SummaryRow, summaries
from analysis.tables import (
    API_CALL_COLUMNS,
    KERNEL_COLUMNS,
    PHASE_COLUMNS,
    TRANSFER_COLUMNS,
    CaptureKind,
    CaptureTables,
    CaptureWarning,
)
from captures.opening import read_text, reading
from core.errors import CaptureError
from core.trace_rules import api_name, is_wait, path_part

_ELLIPSIS = re.compile(r"\.\.\.$|\u2026")
_TEXT_RULE = re.compile(r"^\s*-{4,}(\s+-{4,}){3,}\s*$")
_CATEGORIES = {
    "CUDA_KERNEL": Content.KERNELS,
    "MEMORY_OPER": Content.TIMES,
    "CUDA_API": Content.CALLS,
}
_CUDA_CALL = re.compile(r"cu[A-Z_]|cuda[A-Z_]|MPI_")
"""Calls of CUDA and MPI; those of the operating system and others say little of a GPU."""
_SIDE = r"(Host|Device|Peer|Array|H|D|P|A)"
_DIRECTION = re.compile(rf"\b{_SIDE}(?:-to-|to){_SIDE}\b", re.IGNORECASE)
_SIDES = {"h": "H", "d": "D", "p": "P", "a": "D"}
"""Arrays live on the device."""
_SHARE_TOLERANCE_PCT = 0.06
"""Shares are printed with one decimal."""
_MAX_SHOWN = 3
_USABLE = "cuda_gpu_kern_sum, cuda_api_sum, cuda_gpu_mem_time_sum, cuda_gpu_mem_size_sum, nvtx_sum"

Blocks = dict[Content, list[SummaryRow]]


def read_nsys_csv(path: Path) -> CaptureTables:
    """Return the tables of the summaries in the file; CaptureError if there is none."""
    with reading(path):
        text = read_text(path)
    if text.startswith("version https://git-lfs"):
        raise CaptureError(
            path, "the file is a Git LFS pointer, not the report itself", "Run `git lfs pull`"
        )
    lines = text.splitlines()
    reports = list(summaries(path, lines))
    warnings = [*_notices(lines), *_contradictions(reports)]
    blocks = _blocks(reports, warnings)
    if not reports:
        _refuse_other_content(path, lines)
        warnings.append(_warn("no_data", _no_data_message(lines)))
    _note_left_out(path, reports, blocks, warnings)
    names = [row.name for rows in blocks.values() for row in rows]
    cut = sum(1 for name in names if _ELLIPSIS.search(name))
    if cut:
        warnings.append(
            _warn("truncated_names", f"{cut} names are truncated: equal ones may be different")
        )
    return _tables(path, blocks, warnings)


def _blocks(reports: Iterable[Summary], warnings: list[CaptureWarning]) -> Blocks:
    """Return the rows of each content; where there are several summaries, the most detailed."""
    candidates: dict[Content, list[list[SummaryRow]]] = defaultdict(list)
    for summary in reports:
        for content, rows in _by_content(summary).items():
            candidates[content].append(rows)
    blocks: Blocks = {}
    for content, several in candidates.items():
        if content is Content.CALLS:
            several = _joined_calls(several)
        elif content is Content.RANGES:
            several = _joined_ranges(several)
        kept = max(several, key=lambda rows: len({(r.name, r.grid, r.block) for r in rows}))
        if any(rows and _totals(rows) != _totals(kept) for rows in several):
            text = f"several different {content} summaries: only the largest is used"
            warnings.append(_warn("several_summaries", text))
        if kept:
            blocks[content] = kept
    return blocks


def _by_content(summary: Summary) -> Blocks:
    """Return the rows by content; those of a mixed report by their category."""
    if summary.content is Content.OTHER:
        return {}
    if summary.content is not Content.MIXED:
        rows = list(summary.rows)
        if summary.content is Content.CALLS:
            rows = [row for row in rows if _CUDA_CALL.match(row.name)]
            return {Content.CALLS: rows} if rows else {}
        return {summary.content: rows}
    by_content: Blocks = defaultdict(list)
    for row in summary.rows:
        content = _CATEGORIES.get(row.category.upper())
        if content is not None:
            by_content[content].append(row)
    return dict(by_content)


def _totals(rows: Iterable[SummaryRow]) -> dict[str, tuple[int, int, int]]:
    """Return count, time and size per name: equal for reports by name and by launch shape."""
    by_name: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        count, total, size = by_name.get(row.name, (0, 0, 0))
        total, size = total + (row.total_ns or 0), size + (row.num_bytes or 0)
        by_name[row.name] = (count + row.count, total, size)
    return by_name


def _joined_calls(several: list[list[SummaryRow]]) -> list[list[SummaryRow]]:
    """Append MPI calls to the CUDA calls: nsys reports them separately."""
    mpi = [rows for rows in several if all(r.name.startswith("MPI_") for r in rows)]
    cuda = [rows for rows in several if rows not in mpi]
    return [rows + (mpi[0] if mpi else []) for rows in cuda] or mpi


def _joined_ranges(several: list[list[SummaryRow]]) -> list[list[SummaryRow]]:
    """Combine push/pop and start/end ranges unless one summary holds both.

    The two kinds never overlap; equal summaries are the same report twice.
    """
    distinct = [rows for i, rows in enumerate(several) if rows not in several[:i]]
    plain = [rows for rows in distinct if not any(row.style for row in rows)]
    if len(distinct) == len(plain) == 2:
        return [[*plain[0], *plain[1]]]
    return distinct


def _note_left_out(
    path: Path, reports: Sequence[Summary], blocks: Blocks, warnings: list[CaptureWarning]
) -> None:
    """Warn of unused reports and rows; reject a file with nothing usable."""
    others = [s for s in reports if s.content is Content.OTHER or _is_foreign(s)]
    strange = [
        row
        for s in reports
        if s.content is Content.MIXED
        for row in s.rows
        if row.category.upper() not in _CATEGORIES
    ]
    if others and len(others) == len(reports):
        names = ", ".join(dict.fromkeys(s.report for s in others))
        raise CaptureError(
            path,
            f"{names}: not a summary of kernels, CUDA calls, copies or NVTX ranges",
            f"Import the CSV of `nsys stats -r {_USABLE}`, or import the .sqlite",
        )
    if others:
        shown = ", ".join(f"{s.report} ({s.num_rows} rows)" for s in others)
        warnings.append(_warn("reports_left_out", f"unused reports: {shown}"))
    if strange:
        kinds = ", ".join(sorted({repr(row.category) for row in strange}))
        total_ns = sum(row.total_ns or 0 for row in strange)
        text = f"{len(strange)} rows of unknown categories ({kinds}), {total_ns} ns: left out"
        warnings.append(_warn("unknown_categories", text))
    bare = {str(s.content) for s in reports if not s.rows and s.content is not Content.OTHER}
    if bare:
        text = f"the {', '.join(sorted(bare))} summary has a header and no row: cut off, or no data"
        warnings.append(_warn("no_data", text))


def _is_foreign(summary: Summary) -> bool:
    """Return whether the summary holds neither CUDA nor MPI calls."""
    is_calls = summary.content is Content.CALLS and bool(summary.rows)
    return is_calls and not any(_CUDA_CALL.match(row.name) for row in summary.rows)


def _tables(path: Path, blocks: Blocks, warnings: list[CaptureWarning]) -> CaptureTables:
    kernels = blocks.get(Content.KERNELS)
    summary = {}
    if kernels:
        summary["num_kernels"] = sum(r.count for r in kernels)
        summary["kernel_time_ns"] = sum(r.total_ns or 0 for r in kernels)
    if Content.CALLS in blocks:
        warnings.append(_warn("failed_calls_unknown", "an API summary does not list failed calls"))
    if Content.RANGES in blocks:
        warnings.append(
            _warn(
                "flat_ranges",
                ("a range summary has no nesting: each name counts as a separate path"),
            )
        )
    has_times, has_sizes = Content.TIMES in blocks, Content.SIZES in blocks
    if has_sizes:
        warnings.append(_warn("rounded_bytes", "sizes are rounded by the report"))
    return CaptureTables(
        kind=CaptureKind.NSYS_CSV,
        path=path,
        tool="nsys",
        summary=summary,
        kernels=_kernel_frame(kernels) if kernels else None,
        api_calls=_call_frame(blocks[Content.CALLS]) if Content.CALLS in blocks else None,
        transfers=_transfer_frame(blocks) if has_times or has_sizes else None,
        phases=_phase_frame(blocks[Content.RANGES]) if Content.RANGES in blocks else None,
        warnings=tuple(warnings),
    )


def _kernel_frame(rows: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return KERNEL_COLUMNS; old reports have one row per launch shape, new ones one per name."""
    frame = pd.DataFrame(
        {
            "name": [r.name for r in rows],
            "short_name": [short_name(r.name) for r in rows],
            "grid": pd.Series([r.grid for r in rows], dtype=object),
            "block": pd.Series([r.block for r in rows], dtype=object),
            "registers": _unknown(len(rows)),
            "shared_bytes": _unknown(len(rows)),
            "count": [r.count for r in rows],
            "total_ns": _whole(r.total_ns for r in rows),
            "min_ns": _whole(r.min_ns for r in rows),
            "max_ns": _whole(r.max_ns for r in rows),
            "is_opaque": False,
        },
        columns=list(KERNEL_COLUMNS),
    )
    return _largest_first(frame)


def _call_frame(rows: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return API_CALL_COLUMNS; calls that differ in the version suffix alone are merged."""
    frame = pd.DataFrame(
        {
            "name": [api_name(r.name) for r in rows],
            "count": [r.count for r in rows],
            "total_ns": _whole(r.total_ns for r in rows),
            "min_ns": _whole(r.min_ns for r in rows),
            "max_ns": _whole(r.max_ns for r in rows),
        }
    )
    merged = frame.groupby("name", sort=False, as_index=False).agg(
        {"count": "sum", "total_ns": "sum", "min_ns": "min", "max_ns": "max"}
    )
    merged["num_failed"] = 0
    merged["is_sync"] = [is_wait(n) for n in merged["name"]]
    return _largest_first(merged[list(API_CALL_COLUMNS)])


def transfer_kind(operation: str) -> str:
    """Return the kind of `[CUDA memcpy HtoD]`, `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.

    Migrations of managed memory are `unified HtoD` and the like; what is not known keeps its name.
    """
    direction = _DIRECTION.search(operation)
    if "memset" in operation.lower():
        return "memset"
    ends = [_SIDES[side[0].lower()] for side in direction.groups()] if direction else []
    kind = "to".join(ends) or operation.strip("[] ") or "unknown"
    is_managed = "unified" in operation.lower() and bool(ends)
    return f"unified {kind}" if is_managed else kind


def _transfer_frame(blocks: Mapping[Content, Sequence[SummaryRow]]) -> pd.DataFrame:
    """Return TRANSFER_COLUMNS: times and sizes, or whichever is known."""
    times, sizes = (blocks.get(c, ()) for c in (Content.TIMES, Content.SIZES))
    timed = _by_kind(times)
    sized = _by_kind(sizes)
    rows = []
    for kind in timed or sized:
        first = timed.get(kind) or sized[kind]
        size = sized[kind].num_bytes if kind in sized else None
        total_ns = timed[kind].total_ns if kind in timed else None
        rows.append((kind, None, None, first.count, size, total_ns))
    frame = pd.DataFrame(rows, columns=list(TRANSFER_COLUMNS))
    return _largest_first(frame.astype({"bytes": "Int64", "total_ns": "Int64"}))


def _by_kind(rows: Iterable[SummaryRow]) -> dict[str, SummaryRow]:
    """Return one row per kind; copies to and from arrays are added to the others."""
    by_kind: dict[str, SummaryRow] = {}
    for row in rows:
        kind = transfer_kind(row.name)
        if kind in by_kind:
            row = replace(
                row,
                count=row.count + by_kind[kind].count,
                total_ns=_sum(row.total_ns, by_kind[kind].total_ns),
                num_bytes=_sum(row.num_bytes, by_kind[kind].num_bytes),
            )
        by_kind[kind] = row
    return by_kind


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _phase_frame(rows: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return PHASE_COLUMNS with host time only: summaries have neither kernels nor nesting."""
    merged: dict[str, tuple[int, int]] = {}
    for row in rows:
        name = path_part(row.name.removeprefix(":"))
        count, total = merged.get(name, (0, 0))
        merged[name] = (count + row.count, total + (row.total_ns or 0))
    return pd.DataFrame(
        {
            "path": list(merged),
            "process": 0,
            "num_ranges": [count for count, _ in merged.values()],
            "host_ns": pd.array([total for _, total in merged.values()], dtype="Int64"),
            "projected_ns": _unknown(len(merged)),
            "kernel_ns": _unknown(len(merged)),
            "num_kernels": 0,
            "attribution": "launch_thread",
            "first_start_ns": range(len(merged)),
        },
        columns=list(PHASE_COLUMNS),
    )


def _unknown(size: int) -> pd.api.extensions.ExtensionArray:
    return pd.array([pd.NA] * size, dtype="Int64")


def _whole(values: Iterable[int | None]) -> pd.api.extensions.ExtensionArray | list[int]:
    numbers = list(values)
    known = [v for v in numbers if v is not None]
    if len(known) == len(numbers):
        return known
    return pd.array([pd.NA if v is None else v for v in numbers], dtype="Int64")


def _largest_first(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _contradictions(reports: Iterable[Summary]) -> Iterator[CaptureWarning]:
    """Warn of summaries with inconsistent rows: shares, means, duplicates.

    That means lost or edited rows.
    """
    for summary in reports:
        bad = [*_shares(summary.rows), *_means(summary.rows), *_repeats(summary.rows)]
        if bad:
            shown = "; ".join(bad[:_MAX_SHOWN])
            text = f"the {summary.content} summary contradicts itself: {shown}"
            yield _warn("inconsistent_summary", text)


def _shares(rows: Sequence[SummaryRow]) -> list[str]:
    timed = [r for r in rows if r.share_pct is not None and r.total_ns is not None]
    total = sum(r.total_ns or 0 for r in timed)
    bad = [
        r
        for r in timed
        if total
        and abs(100 * (r.total_ns or 0) / total - (r.share_pct or 0)) > _SHARE_TOLERANCE_PCT
    ]
    if not bad:
        return []
    return [f"the shares of {len(bad)} rows do not match a total of {total} ns (rows are missing)"]


def _means(rows: Sequence[SummaryRow]) -> list[str]:
    bad = []
    for row in rows:
        if row.total_ns is None or row.mean_ns is None or not row.count:
            continue
        # Means are printed with one decimal, in old versions with none.
        is_off = abs(row.mean_ns * row.count - row.total_ns) > 0.51 * row.count + 1
        low, high = row.min_ns, row.max_ns
        is_outside = (low is not None and low > row.mean_ns + 1) or (
            high is not None and high < row.mean_ns - 1
        )
        if is_off or is_outside:
            bad.append(f"{row.name[:60]}: mean, count, extremes and total are inconsistent")
    return bad


def _repeats(rows: Sequence[SummaryRow]) -> list[str]:
    keys = [(r.name, r.grid, r.block, r.style, r.category) for r in rows]
    repeated = len(keys) - len(set(keys))
    return [f"{repeated} rows occur twice"] if repeated else []


def _warn(code: str, message: str) -> CaptureWarning:
    return CaptureWarning(code=code, message=message)


def _notices(lines: Sequence[str]) -> Iterator[CaptureWarning]:
    for line in lines:
        if "Existing SQLite export found" in line:
            yield _warn(
                "stale_export",
                "the report was made from an existing SQLite export: it may be "
                "older than the capture (use --force-export=true)",
            )
        if line.lstrip().startswith("SKIPPED"):
            yield _warn("nsys_diagnostic", f"Nsight Systems: {_only_name(line.strip())[:300]}")


def _only_name(text: str) -> str:
    return re.sub(r"(?:/[\w.+@~-]+)+/", "", text)


def _no_data_message(lines: Sequence[str]) -> str:
    content = "SKIPPED reports" if any("SKIPPED" in line for line in lines) else "nothing"
    return f"the report contains {content}: no data was recorded, or nsys stats failed silently"


def _refuse_other_content(path: Path, lines: Sequence[str]) -> None:
    for number, line in enumerate(lines, 1):
        if _TEXT_RULE.match(line):
            raise CaptureError(
                path,
                f"line {number}: this is a text table of nsys stats, which truncates names",
                "Run `nsys stats --format csv`, or import the .sqlite",
            )
    known = ("SKIPPED", "NOTICE", "Processing", "Generating", "**", "WARNING", "ERROR")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(known):
            raise CaptureError(
                path,
                f"line {number} is not a header of a kernel, API, memory or range summary",
                f"Import the CSV of `nsys stats -r {_USABLE}`",
            )
