"""Read ncu's source page: the instructions of each kernel at which warps were seen most.

The page is one table a launch: a row `"Kernel Name","NAME"`, a header, a row an instruction. Which
columns there are depends on the version and on what was collected.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis.tables import COUNTER_SOURCE_COLUMNS, CaptureKind, CaptureTables
from captures.opening import read_text, reading
from core.errors import CaptureError

MOST = 40
"""Instructions kept of each launch: those with the most samples."""
MAX_LAUNCHES = 200
_SAMPLES = (
    "Warp Stall Sampling (All Samples)",
    "Warp Stall Sampling (All)",
    "# Samples",
    "Samples",
)
_EXECUTED = ("Instructions Executed", "# Instructions Executed")
_MAX_NUMBER = 1e18
_STALL = "stall_"
_REMEDY = "Export it again with `ncu --import FILE --csv --page source`"


@dataclass(slots=True)
class _Table:
    """The instructions of one launch."""

    kernel: str
    header: list[str]
    rows: list[tuple[int, str, float, float | None, str | None]] = field(default_factory=list)
    "Number, instruction, samples, executed, reason that most samples give."
    place: dict[str, int] = field(init=False)
    "Column -> its place; the last of several that have one name."

    def __post_init__(self) -> None:
        self.place = {name: i for i, name in enumerate(self.header)}

    def cell(self, cells: list[str], name: str) -> str | None:
        """Return a row's cell of that column, None without the column."""
        place = self.place.get(name)
        return None if place is None else cells[place]


def read_ncu_source(path: Path) -> CaptureTables:
    """Return `counter_sources`; CaptureError where the file holds no instruction."""
    with reading(path):
        text = read_text(path)
    launches = list(_tables(text))[:MAX_LAUNCHES]
    rows = [row for number, table in enumerate(launches) for row in _most_sampled(number, table)]
    if not rows:
        raise CaptureError(path, "ncu's source page has no instruction with samples", _REMEDY)
    return CaptureTables(
        kind=CaptureKind.NCU_SOURCE,
        path=path,
        tool="ncu",
        counter_sources=pd.DataFrame(rows, columns=list(COUNTER_SOURCE_COLUMNS)),
    )


def _tables(text: str) -> Iterator[_Table]:
    kernel = ""
    table: _Table | None = None
    for cells in csv.reader(io.StringIO(text, newline="")):
        if len(cells) >= 2 and cells[0].strip() == "Kernel Name":
            kernel, table = cells[1].strip(), None
        elif "Source" in cells and any(name in cells for name in _SAMPLES):
            table = _Table(kernel, cells)
            yield table
        elif table is not None and len(cells) == len(table.header):
            _add(table, cells)


def _add(table: _Table, cells: list[str]) -> None:
    samples = next((n for s in _SAMPLES if (n := _number(table.cell(cells, s))) is not None), None)
    if not samples:
        return
    stalls = {k: _number(cells[i]) or 0.0 for k, i in table.place.items() if k.startswith(_STALL)}
    worst = max(stalls, key=lambda k: stalls[k], default=None)
    executed = (_number(table.cell(cells, name)) for name in _EXECUTED)
    table.rows.append(
        (
            int(_number(table.cell(cells, "#")) or len(table.rows) + 1),
            cells[table.place["Source"]].strip()[:500],
            samples,
            next((n for n in executed if n is not None), None),
            worst.removeprefix(_STALL).replace("_", " ") if worst and stalls[worst] else None,
        )
    )


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < _MAX_NUMBER else None


def _most_sampled(number: int, table: _Table) -> Iterator[tuple[object, ...]]:
    whole = sum(row[2] for row in table.rows)
    for line, text, samples, executed, stall in sorted(table.rows, key=lambda r: -r[2])[:MOST]:
        yield number, table.kernel, line, text, samples, samples / whole, executed, stall
