"""Read the rows of `nsys stats` summaries, of old and new column names, in any of their units."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

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
_REMEDY = "Write the report again as CSV"
_MAX = 1 << 58
"""9 years in ns, and more bytes and calls than any capture holds; sums still fit 64 bits."""
_GROUPED = re.compile(r"^\d{1,3}(,\d{3})+(\.\d+)?$")
_NUMBER = re.compile(r"^\d+(\.\d+)?$")


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


def summaries(path: Path, lines: list[str]) -> Iterator[tuple[str, list[SummaryRow]]]:
    """Give each summary in the file: its kind and rows. A blank line ends one."""
    at = 0
    while at < len(lines):
        header = [c.strip() for c in next(csv.reader([lines[at]]), [])]
        kind = _kind(header)
        at += 1
        if kind is None:
            continue
        lacking = {"min", "max"} - {_base(h)[:3] for h in header}
        if lacking and kind in ("kernel", "api"):
            raise CaptureError(
                path, f"line {at}: the {kind} summary has no {min(lacking)} column", _REMEDY
            )
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
    if names & {"num calls", "calls"}:
        return "api"
    return "kernel" if "instances" in names else None  # OpenMP's has a Count


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
    value = (_exact(path, where, cell) * scale).to_integral_value()
    if value >= _MAX:
        raise CaptureError(path, f"{where}: {cell[:40]!r} is more than can be", _REMEDY)
    return value


def _exact(path: Path, where: str, cell: str) -> Decimal:
    plain = cell.replace(",", "") if _GROUPED.match(cell) else cell
    try:
        if not _NUMBER.match(plain):
            raise InvalidOperation
        return Decimal(plain)
    except InvalidOperation:
        raise CaptureError(path, f"{where}: {cell[:40]!r} is not a number", _REMEDY) from None
