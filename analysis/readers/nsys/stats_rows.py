"""Parse the summaries in the output of `nsys stats`, identified by their columns.

Reports of CUDA, of other libraries and of single events share most of their columns. A summary
counts as one of kernels, calls, copies or ranges only if its columns are exactly those of such a
report; every other report is given with its name and without rows.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path

from core.errors import CaptureError


class Content(StrEnum):
    """What the rows of a summary are."""

    KERNELS = "kernel"
    CALLS = "API"
    TIMES = "memory time"
    SIZES = "memory size"
    RANGES = "range"
    MIXED = "GPU"
    "Kernels, copies and possibly API calls, distinguished by a category column."
    OTHER = "other"


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
    category: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One report in the file."""

    content: Content
    report: str
    "Name of the report where the file says it or its columns show it, else its columns."
    rows: tuple[SummaryRow, ...]
    num_rows: int
    "Also of those that are not read."


_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_UNIT_NS = {
    **{"ns": 1, "nsec": 1, "nanosecond": 1, "nanoseconds": 1},
    **dict.fromkeys(("us", "usec", "microsecond", "microseconds"), 10**3),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 10**6),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 10**9),
}
_MICRO = re.compile("\u00c2?\u00b5|\u03bc|\u00ce\u00bc")
"""The letter mu in its two code points, and as it looks where UTF-8 was read as Latin."""
_UNIT_BYTES = {"B": 1, "BYTE": 1, "BYTES": 1}
_UNIT_BYTES |= {f"{p}B": 1000**n for n, p in enumerate("KMGT", 1)}
_UNIT_BYTES |= {f"{p}IB": 1024**n for n, p in enumerate("KMGT", 1)}
_COUNTS = frozenset(("instances", "num calls", "count", "calls", "operations"))
_TIMES = {
    "total time": "total_ns",
    "min": "min_ns",
    "minimum": "min_ns",
    "max": "max_ns",
    "maximum": "max_ns",
}
_MEANS = frozenset(("avg", "average"))
_SPREAD = frozenset(("med", "median", "stddev", "time"))
_STATISTICS = frozenset(("total time", "total", *_TIMES, *_MEANS, *_SPREAD, *_COUNTS))
_NAMES = frozenset(("name", "operation", "range"))
_REMEDY = "Export the report again as CSV"
_MAX = 1 << 58
"""9 years in ns, and more bytes and calls than any capture holds; sums still fit 64 bits."""
_GROUPED = re.compile(r"^\d{1,3}(,\d{3})+(\.\d+)?$")
_NUMBER = re.compile(r"^\d+(\.\d+)?$")
_MAX_UNIT_CHARS = 80
_UNIT = re.compile(r"\s*[(\[]([^)\]]*)[)\]]\s*$")
_TITLE = re.compile(r"^\s*\*\*\s.*?\(([a-z0-9_]+)(?:[:=][^)]*)?\):?\s*$")
_SCRIPT = re.compile(r"^Processing \[.*\] with \[(?:.*[/\\])?([a-z0-9_]+)\.py")
_SIZE_TITLE = re.compile(r"by size in ([KMGT]?i?B)\b", re.IGNORECASE)
_FILE_NAME = re.compile(r"(?:^|_)((?:cuda|nvtx|osrt|mpi|um|openmp|openacc|vulkan|opengl|dx1)\w+)$")
_RANGE_REPORTS = frozenset(
    (
        *("nvtx_sum", "nvtxsum", "nvtx_pushpop_sum", "nvtxppsum", "pushpopsum"),
        *("nvtx_startend_sum", "nvtxssum", "startendsum"),
    )
)
_BY_COLUMNS = (
    ("nvtx_gpu_proj_sum", {"total proj time"}),
    ("nvtx_gpu_proj_trace", {"projected start"}),
    ("nvtx_kern_sum", {"nvtx range", "kernel name"}),
    ("nvtx_pushpop_trace", {"durchild"}),
    ("cuda_kern_exec_sum", {"kernel name", "qcount"}),
    ("cuda_kern_exec_trace", {"kernel start", "api start"}),
    ("cuda_gpu_trace", {"start", "duration", "strm"}),
    ("cuda_api_trace", {"start", "duration", "corrid"}),
    ("um_total_sum", {"total htod migration size"}),
    ("um_sum", {"virtual address"}),
    ("um_cpu_page_faults_sum", {"cpu instruction address"}),
    ("mpi_event_trace", {"peerrank"}),
)
"""Reports that hold no summary of kernels, calls, copies or ranges."""


def summaries(path: Path, lines: Sequence[str]) -> Iterator[Summary]:
    """Yield each summary in the file; a blank line or a title ends it."""
    at, title = 0, _of_file_name(path)
    size_unit: str | None = None
    while at < len(lines):
        line = lines[at]
        at += 1
        stated = _TITLE.match(line) or _SCRIPT.match(line)
        title = stated[1] if stated else title
        by_size = _SIZE_TITLE.search(line)
        size_unit = by_size[1] if by_size else size_unit
        header = _cells(line)
        if not _is_header(header):
            continue
        first = at
        while at < len(lines) and lines[at].strip() and not lines[at].lstrip().startswith("**"):
            at += 1
        rows = csv.reader(lines[first:at], delimiter=_delimiter(line))
        yield _summary(path, header, list(rows), first, title, size_unit)
        title = ""


def _delimiter(header: str) -> str:
    return "\t" if header.count("\t") > header.count(",") else ","


def _cells(line: str) -> list[str]:
    try:
        reader = csv.reader([line], delimiter=_delimiter(line), strict=True)
        return [c.strip() for c in next(reader, [])]
    except csv.Error:
        return []


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether a line is a header: several columns, some with a unit or a known name."""
    names = {_base(c) for c in cells}
    has_figures = (
        bool(names & _COUNTS) or "start" in names or any(_unit(c) is not None for c in cells)
    )
    is_text = not any(_NUMBER.match(c) for c in cells)
    return len(cells) >= 3 and has_figures and is_text and len(names) == len(cells)


def _of_file_name(path: Path) -> str:
    """Return the report that `nsys stats -o` named the file after: `report1_cuda_gpu_sum.csv`."""
    match = _FILE_NAME.search(path.stem.lower())
    return match[1] if match else ""


def _summary(
    path: Path, header: list[str], cells: list[list[str]], first: int, title: str, unit: str | None
) -> Summary:
    names = {_base(h) for h in header}
    content, report = _content(names, title)
    report = report or _shown(header)
    num_rows = len(cells)
    lacking = {"min", "max"} - {name[:3] for name in names}
    if lacking and {"name", "total time"} <= names and names & _COUNTS:
        text = f"line {first}: the summary has no {min(lacking)} column"
        raise CaptureError(path, text, _REMEDY)
    if content is Content.OTHER:
        return Summary(content=content, report=report, rows=(), num_rows=num_rows)
    reader = _RowReader(path, header, first, unit)
    rows = tuple(reader.row(i, row) for i, row in enumerate(cells, 1))
    return Summary(content=content, report=report, rows=rows, num_rows=num_rows)


def _content(names: set[str], title: str) -> tuple[Content, str]:
    """Return what a summary with these columns holds, and the report's name."""
    for report, columns in _BY_COLUMNS:
        if columns <= names:
            return Content.OTHER, title or report
    rest = names - _STATISTICS
    has_count, has_time = bool(names & _COUNTS), "total time" in names
    if not has_count or not (has_time or "total" in names):
        return Content.OTHER, title
    if rest == {"operation"}:
        return (Content.TIMES if has_time else Content.SIZES), title
    if not has_time:
        return Content.OTHER, title
    if rest == {"category", "operation"}:
        with_calls = title or "cuda_gpu_sum"
        return Content.MIXED, with_calls
    if rest == {"source", "name"}:
        return Content.CALLS, title or "mpi_event_sum"
    if rest in ({"range"}, {"range", "style"}):
        is_nvtx = not title or title in _RANGE_REPORTS
        return (Content.RANGES if is_nvtx else Content.OTHER), title
    if rest == {"name"} and names & {"num calls", "calls"}:
        return Content.CALLS, title
    if rest in ({"name"}, {"name", "gridxyz", "blockxyz"}) and "instances" in names:
        return Content.KERNELS, title
    return Content.OTHER, title


def _shown(header: Sequence[str]) -> str:
    return f"a report with the columns {', '.join(header)[:160]}"


def _base(header: str) -> str:
    """Return a column's name without its unit, in lower case: "Total Time (ns)" -> "total time"."""
    body, tail = header[:-_MAX_UNIT_CHARS], header[-_MAX_UNIT_CHARS:]
    return " ".join((body + _UNIT.sub("", tail)).lower().split())


def _unit(header: str) -> str | None:
    match = _UNIT.search(header[-_MAX_UNIT_CHARS:])
    return match[1].strip() if match else None


class _RowReader:
    """Reads the rows of one summary, in the units of its header."""

    def __init__(
        self, path: Path, header: Sequence[str], first: int, size_unit: str | None
    ) -> None:
        self._path = path
        self._header = header
        self._first = first
        self._bases = [_base(h) for h in header]
        units = {b: _unit(h) for b, h in zip(self._bases, header, strict=True)}
        self._scales = {
            base: self._scale(header[i], base, units, size_unit)
            for i, base in enumerate(self._bases)
            if base in _TIMES or base in _MEANS or base == "total"
        }

    def row(self, number: int, cells: list[str]) -> SummaryRow:
        """Return the row; CaptureError where a cell is missing or is not a number."""
        where = f"line {self._first + number}"
        if len(cells) != len(self._header):
            raise CaptureError(
                self._path,
                f"{where} has {len(cells)} cells where the header has {len(self._header)}",
                "The file is cut off or edited: write the report again",
            )
        times: dict[str, int | None] = dict.fromkeys(("total_ns", "min_ns", "max_ns"))
        texts: dict[str, str] = {}
        count, size = 0, None
        mean_ns = share_pct = None
        for header, base, raw in zip(self._header, self._bases, cells, strict=True):
            cell, place = raw.strip(), f"{where}, {header}"
            if base in _COUNTS:
                count = self._whole(place, cell, 1)
            elif base in _TIMES and base in self._scales:
                times[_TIMES[base]] = self._whole(place, cell, self._scales[base])
            elif base == "total":
                size = self._whole(place, cell, self._scales[base])
            elif base in _MEANS:
                mean_ns = float(self._exact(place, cell)) * self._scales[base]
            elif base == "time":
                share_pct = float(self._exact(place, cell))
            elif base not in _SPREAD:
                texts["name" if base in _NAMES else base] = cell
        return SummaryRow(
            name=texts.get("name", ""),
            count=count,
            **times,
            grid=_dims(texts.get("gridxyz", "")),
            block=_dims(texts.get("blockxyz", "")),
            num_bytes=size,
            share_pct=share_pct,
            mean_ns=mean_ns,
            style=texts.get("style", ""),
            category=texts.get("category", ""),
        )

    def _scale(
        self, header: str, base: str, units: dict[str, str | None], size_unit: str | None
    ) -> int:
        """Return ns or bytes of a column's unit; old reports name it once, or in the title."""
        is_size = "total time" not in units
        whole = units.get("total" if is_size else "total time")
        otherwise = size_unit if is_size else "ns"
        stated = next((u for u in (units[base], whole, otherwise) if u is not None), None)
        if stated is None:
            raise CaptureError(
                self._path,
                f"line {self._first}: the column {header!r} has no unit",
                "Export the report again with a newer nsys, or import the .sqlite",
            )
        plain = _MICRO.sub("u", stated)
        scale = _UNIT_BYTES.get(plain.upper()) if is_size else _UNIT_NS.get(plain.lower())
        if scale is None:
            known = ", ".join(_UNIT_BYTES if is_size else _NS)
            raise CaptureError(
                self._path,
                f"line {self._first}: the unit {stated!r} of the column {header!r} is unknown",
                f"Export the report in one of {known}",
            )
        return scale

    def _whole(self, where: str, cell: str, scale: int) -> int:
        value = (self._exact(where, cell) * scale).to_integral_value()
        if value >= _MAX:
            raise CaptureError(self._path, f"{where}: {cell[:40]!r} is impossibly large", _REMEDY)
        return int(value)

    def _exact(self, where: str, cell: str) -> Decimal:
        plain = cell.replace(",", "") if _GROUPED.match(cell) else cell
        try:
            if not _NUMBER.match(plain):
                raise InvalidOperation
            return Decimal(plain)
        except InvalidOperation:
            text = f"{where}: {cell[:40]!r} is not a number"
            raise CaptureError(self._path, text, _REMEDY) from None


def _dims(cell: str) -> str | None:
    return ",".join(cell.replace(",", " ").split()) or None
