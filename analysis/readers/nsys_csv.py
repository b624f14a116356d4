"""Read the CSV reports of `nsys stats`: kernel, API, memory and range summaries, old and new names.

`nsys stats` ends with code 0 whatever happens, so an empty file or one that only says SKIPPED is
"no data", not a measurement of nothing. Text tables are refused: they cut names short, and kernels
of one cut name cannot be told apart.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from analysis.readers.nsys_csv_checks import check_summaries
from analysis.readers.nsys_csv_frames import (
    api_frame,
    kernel_frame,
    phase_frame,
    transfer_frame,
)
from analysis.readers.opening import read_text, reading
from analysis.tables import CaptureKind, CaptureTables, CaptureWarning
from core.errors import CaptureError

_UNIT_NS = {"ns": 1, "nsec": 1, "us": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6}
_UNIT_NS |= {"s": 10**9, "sec": 10**9}
_UNIT_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNIT_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_TIME_COLUMNS = {
    "total time": "total",
    "min": "least",
    "minimum": "least",
    "max": "most",
    "maximum": "most",
}
_COUNT_COLUMNS = ("instances", "num calls", "count", "calls", "operations")
_GROUPED = re.compile(r"^\d{1,3}(,\d{3})+(\.\d+)?$")
_NUMBER = re.compile(r"^\d+(\.\d+)?$")
_ELLIPSIS = re.compile(r"\.\.\.$|\u2026")
_TEXT_RULE = re.compile(r"^\s*-{4,}(\s+-{4,}){3,}\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One row of a summary: a name with its count and times."""

    name: str
    count: int
    total_ns: int | None
    min_ns: int | None
    max_ns: int | None
    grid: str | None = None
    block: str | None = None
    num_bytes: int | None = None
    share_pct: float | None = None
    mean_ns: float | None = None
    style: str = ""


def read_nsys_csv(path: Path) -> CaptureTables:
    """Return what the summaries in the file hold; CaptureError if it is none of them."""
    with reading(path):
        text = read_text(path)
    if text.startswith("version https://git-lfs"):
        raise CaptureError(
            path, "the file is a Git LFS pointer, not the report itself", "Run `git lfs pull`"
        )
    lines = text.splitlines()
    warnings = list(_notices(lines))
    blocks = {kind: rows for kind, rows in _blocks(path, lines)}
    if not blocks:
        _refuse_other_content(path, lines)
        warnings.append(_warn("no_data", _no_data_message(lines)))
    warnings.extend(check_summaries(blocks))
    names = [row.name for rows in blocks.values() for row in rows]
    cut = sum(1 for name in names if _ELLIPSIS.search(name))
    if cut:
        warnings.append(
            _warn("truncated_names", f"{cut} names are cut short: equal ones may be different")
        )
    return _tables(path, blocks, warnings)


def _tables(
    path: Path, blocks: dict[str, list[SummaryRow]], warnings: list[CaptureWarning]
) -> CaptureTables:
    kernels = blocks.get("kernel")
    summary = {}
    if kernels:
        summary["num_kernels"] = sum(r.count for r in kernels)
        summary["kernel_time_ns"] = sum(r.total_ns or 0 for r in kernels)
    if "api" in blocks and not any(r.name.startswith("cu") for r in blocks["api"]):
        warnings.append(_warn("other_api", "the API summary is not of CUDA: it is left out"))
        del blocks["api"]
    if "api" in blocks:
        warnings.append(_warn("failed_calls_unknown", "an API summary does not say what failed"))
    if "range" in blocks:
        warnings.append(
            _warn("flat_ranges", "a range summary has no nesting: each name is a path of its own")
        )
    memory = [*blocks.get("memory_time", []), *blocks.get("memory_size", [])]
    if blocks.get("memory_size"):
        warnings.append(_warn("rounded_bytes", "sizes are rounded by the report"))
    return CaptureTables(
        kind=CaptureKind.NSYS_CSV,
        path=path,
        tool="nsys",
        summary=summary,
        kernels=kernel_frame(kernels) if kernels else None,
        api_calls=api_frame(blocks["api"]) if blocks.get("api") else None,
        transfers=transfer_frame(blocks) if memory else None,
        phases=phase_frame(blocks["range"]) if blocks.get("range") else None,
        warnings=tuple(warnings),
    )


def _warn(code: str, message: str) -> CaptureWarning:
    return CaptureWarning(code=code, message=message)


def _notices(lines: Sequence[str]) -> Iterator[CaptureWarning]:
    for line in lines:
        if "Existing SQLite export found" in line:
            yield _warn(
                "stale_export",
                "the report was made from an SQLite export that lay there already: it may be older "
                "than the capture (use --force-export=true)",
            )
        if line.lstrip().startswith("SKIPPED"):
            yield _warn("nsys_diagnostic", f"Nsight Systems: {_only_name(line.strip())[:300]}")


def _only_name(text: str) -> str:
    return re.sub(r"(?:/[\w.+@~-]+)+/", "", text)


def _no_data_message(lines: Sequence[str]) -> str:
    what = "SKIPPED reports" if any("SKIPPED" in line for line in lines) else "nothing"
    return f"the report holds {what}: no data was recorded, or nsys stats failed without saying so"


def _refuse_other_content(path: Path, lines: Sequence[str]) -> None:
    for number, line in enumerate(lines, 1):
        if _TEXT_RULE.match(line):
            raise CaptureError(
                path,
                f"line {number}: this is a text table of nsys stats, which cuts names short",
                "Run `nsys stats --format csv`, or import the .sqlite",
            )
    known = ("SKIPPED", "NOTICE", "Processing", "Generating", "**", "WARNING", "ERROR")
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(known):
            raise CaptureError(
                path,
                f"line {number} is no header of a kernel, API, memory or range summary",
                "Give the CSV of `nsys stats -r cuda_gpu_kern_sum,cuda_api_sum,nvtx_sum`",
            )


def _blocks(path: Path, lines: list[str]) -> Iterator[tuple[str, list[SummaryRow]]]:
    """Give each summary in the file: its kind and rows. A blank line ends one."""
    at = 0
    while at < len(lines):
        header = [c.strip() for c in next(csv.reader([lines[at]]), [])]
        kind = _kind(header)
        at += 1
        if kind is None:
            continue
        first = at
        while at < len(lines) and lines[at].strip() and not lines[at].startswith("**"):
            at += 1
        yield kind, list(_rows(path, header, lines[first:at], first))


def _kind(header: Sequence[str]) -> str | None:
    names = {_base(h) for h in header}
    if not names & set(_COUNT_COLUMNS):
        return None
    if "operation" in names:
        return "memory_time" if "total time" in names else "memory_size"
    if "total time" not in names:
        return None
    if "range" in names:
        return "range"
    if "name" not in names:
        return None
    return "api" if names & {"num calls", "calls"} else "kernel"


def _base(header: str) -> str:
    """Return a column's name without its unit, in lower case: "Total Time (ns)" -> "total time"."""
    return re.sub(r"\s*\([^)]*\)\s*$", "", header).strip().lower()


def _unit(header: str) -> str:
    found = re.search(r"\(([^)]*)\)\s*$", header)
    return found.group(1).strip() if found else "ns"


def _rows(
    path: Path, header: Sequence[str], lines: Sequence[str], offset: int
) -> Iterator[SummaryRow]:
    for i, cells in enumerate(csv.reader(lines)):
        where = f"line {offset + i + 1}"
        if len(cells) != len(header):
            raise CaptureError(
                path,
                f"{where} has {len(cells)} cells where the header has {len(header)}",
                "The file is cut off or edited: write the report again",
            )
        yield _row(path, where, dict(zip(header, (c.strip() for c in cells), strict=True)))


def _row(path: Path, where: str, cells: dict[str, str]) -> SummaryRow:
    times: dict[str, int | None] = {"total": None, "least": None, "most": None}
    count, name, size = 0, "", None
    extra: dict[str, str | None] = {"grid": None, "block": None}
    share_pct = mean_ns = None
    style = ""
    for header, cell in cells.items():
        base = _base(header)
        if base in _COUNT_COLUMNS:
            count = int(_scaled(path, f"{where}, {header}", cell, 1))
        elif base in _TIME_COLUMNS and _unit(header).lower() in _UNIT_NS:
            scale = _UNIT_NS[_unit(header).lower()]
            times[_TIME_COLUMNS[base]] = int(_scaled(path, f"{where}, {header}", cell, scale))
        elif base == "total" and _unit(header).upper() in _UNIT_BYTES:
            scale = _UNIT_BYTES[_unit(header).upper()]
            size = int(_scaled(path, f"{where}, {header}", cell, scale))
        elif base in ("avg", "average") and _unit(header).lower() in _UNIT_NS:
            scale = _UNIT_NS[_unit(header).lower()]
            mean_ns = float(_exact(path, f"{where}, {header}", cell)) * scale
        elif base in ("time", "time(%)") and "%" in header:
            share_pct = float(_exact(path, f"{where}, {header}", cell))
        elif base == "style":
            style = cell
        elif base in ("name", "operation", "range"):
            name = cell
        elif base in ("gridxyz", "blockxyz"):
            extra[base[:-3]] = ",".join(cell.replace(",", " ").split()) or None
    return SummaryRow(
        name=name,
        count=count,
        total_ns=times["total"],
        min_ns=times["least"],
        max_ns=times["most"],
        num_bytes=size,
        share_pct=share_pct,
        mean_ns=mean_ns,
        style=style,
        **extra,
    )


def _scaled(path: Path, where: str, cell: str, scale: int) -> Decimal:
    return (_exact(path, where, cell) * scale).to_integral_value()


def _exact(path: Path, where: str, cell: str) -> Decimal:
    plain = cell.replace(",", "") if _GROUPED.match(cell) else cell
    try:
        if not _NUMBER.match(plain):
            raise InvalidOperation
        return Decimal(plain)
    except InvalidOperation:
        raise CaptureError(
            path, f"{where}: {cell[:40]!r} is not a number", "Write the report again as CSV"
        ) from None
