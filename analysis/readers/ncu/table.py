"""Parse an ncu CSV, raw or details page, into one record per launch; values stay text.

ncu writes its own messages and the program's output into the same stream, before and between the
rows. Rows of the details page are ragged. All columns are found by their header's name. Units come
as any version of ncu prints them: `nsecond`, `ns`, `Kbyte/block`, `Ghz`.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from analysis.numbers import looks_numeric
from core.errors import CaptureError

_TIME_NS = {
    **dict.fromkeys(("ns", "nsecond", "nanosecond"), 1.0),
    **dict.fromkeys(("us", "usecond", "microsecond", "\u00b5s", "\u03bcs"), 1e3),
    **dict.fromkeys(("ms", "msecond", "millisecond"), 1e6),
    **dict.fromkeys(("s", "sec", "second"), 1e9),
}
_PREFIX = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALED = ("byte", "cycle", "inst", "sector", "thread", "warp", "block", "request", "hz")


@cache
def unit_scale(unit: str) -> tuple[float, str]:
    """Return (factor to the base unit, base unit). Time's base is ns, a rate's is per second.

    `msecond` -> (1e6, "ns"); `Gbyte/s` -> (1e9, "byte/s"); `cycle/nsecond` -> (1e9, "cycle/s").
    A unit that is not known keeps its name and factor 1.
    """
    text = unit.strip()
    above, slash, below = text.partition("/")
    factor, base = _simple(above)
    if base == "hz":
        return factor, "cycle/s"
    if not slash:
        return factor, base
    divisor, base_below = _simple(below)
    if base_below == "ns":
        return factor * (1e9 / divisor), f"{base}/s"
    return factor / divisor, f"{base}/{base_below}"


def _simple(unit: str) -> tuple[float, str]:
    if unit in _TIME_NS:
        return _TIME_NS[unit], "ns"
    lower = unit.lower().removesuffix("s") if unit.lower() != "s" else unit
    for name in _SCALED:
        if lower == name:
            return 1.0, name
        if lower[1:] == name and unit[0] in _PREFIX:
            return _PREFIX[unit[0]], name
    return 1.0, unit


_KEPT_METRICS = 1 << 14
_INTEGERS = ("device__attribute_", "launch__grid_", "launch__block_", "launch__thread_count")
_INTEGER_NAMES = frozenset({"Grid Size", "Block Size", "Threads", "Stack Size", "# SMs", "# TPCs"})
_PERCENTAGES = ("throughput.avg.pct", "warps_active.avg.pct", "Throughput", "Occupancy")


class Metric(NamedTuple):
    """What a metric's name and unit say of its values."""

    key: tuple[str, str]
    "Its name and base unit."
    factor: float
    "From the unit printed to the base unit."
    is_integer: bool
    is_percentage: bool
    "Of a peak: far over 100 is wrong."


@lru_cache(maxsize=_KEPT_METRICS)
def metric_of(name: str, unit: str) -> Metric:
    """Return the metric of a name and printed unit; cached, since every launch repeats them."""
    factor, base = unit_scale(unit)
    return Metric(
        key=(name, base),
        factor=factor,
        is_integer=name.startswith(_INTEGERS) or (name in _INTEGER_NAMES and not unit),
        is_percentage=base == "%" and any(p in name for p in _PERCENTAGES),
    )


_IDENTITY = frozenset(
    {"ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context"}
    | {"Stream", "Block Size", "Grid Size", "Device", "CC", "API Call ID", "Invocations"}
)
_SAME = frozenset({"ID", "Process ID", "Kernel Name", "Grid Size", "Block Size", "Device", "CC"})
"""Columns that all rows of one launch share, beside its NVTX ranges."""
_NVTX = "Push/Pop_Range"
_NEEDED = ("Metric Unit", "Metric Value")
_REMEDY = "Export it again with `ncu --import FILE --csv --page raw`"
NO_KERNELS = "No kernels were profiled"
_MAX_RECORD_LINES = 2000
_DIMS = re.compile(r"\(?\s*(\d+)\s*[,;]\s*(\d+)\s*[,;]\s*(\d+)\s*\)?")
"""`12.5 (12; 13)`: a value with those of its instances (--print-metric-instances)."""
_MAX_RANGES_CHARS = 1 << 13
_RANGE = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(slots=True, kw_only=True)
class NcuRule:
    rule: str
    kind: str
    message: str
    speedup: str


@dataclass(slots=True, kw_only=True)
class NcuLaunch:
    """One profiled launch. `tokens`: (metric name, unit) -> text as printed."""

    id: str
    process: str
    line: int
    kernel: str
    grid: str | None
    block: str | None
    device: str
    compute_capability: str | None
    path: str | None
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)
    by_section: dict[tuple[str, str, str], str] = field(default_factory=dict)
    rules: list[NcuRule] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class NcuTable:
    """All launches of a file in order, and the lines outside the table."""

    launches: list[NcuLaunch] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    is_raw: bool = False
    num_repeated_rows: int = 0


@dataclass(slots=True)
class _Part:
    """The rows below one header."""

    header: list[str]
    has_units: bool = False
    launches: dict[tuple[str, str], NcuLaunch] = field(default_factory=dict)
    by_cells: dict[tuple[str | None, ...], NcuLaunch] = field(default_factory=dict)
    "Launches by what their rows share: the details page has about 80 rows of each."
    shared: tuple[str, ...] = field(init=False)
    metrics: list[tuple[int, tuple[str, str]]] = field(init=False)
    "Columns of the raw page that hold metrics, with (metric name, unit)."

    def __post_init__(self) -> None:
        self.shared = tuple(c for c in self.header if c in _SAME or _NVTX in c)
        self._find_metrics([""] * len(self.header))

    def set_units(self, units: list[str]) -> None:
        """Take the units of the raw page, whose row follows the header."""
        self.has_units = True
        self._find_metrics(units)

    def _find_metrics(self, units: list[str]) -> None:
        pairs = enumerate(zip(self.header, units, strict=True))
        self.metrics = [
            (i, (name, unit.strip()))
            for i, (name, unit) in pairs
            if name not in _IDENTITY and ":" not in name
        ]


def parse_ncu_table(text: str, path: Path) -> NcuTable:
    """Return the launches in the text; CaptureError names the line of a row that is damaged."""
    table = NcuTable()
    part = _Part([])
    for line, cells in _records(text, table.log, path):
        if _is_header(cells):
            part = _Part([c.strip() for c in cells])
            _check_header(part.header, path, line)
            table.is_raw = "Metric Name" not in part.header
            continue
        if not part.header:
            raise CaptureError(path, f"line {line}: the header has no kernel column", _REMEDY)
        row = dict(zip(part.header, cells, strict=False))
        if not table.is_raw:
            _add_details(table, part, row, cells, line, path)
            continue
        if len(cells) != len(part.header):
            raise _ragged(path, line, len(cells), len(part.header))
        if not part.has_units and not row["ID"].strip():
            part.set_units(cells)
        else:
            _add_raw(table, part, row, cells, line, path)
    if not table.launches and not any(NO_KERNELS in line for line in table.log):
        raise CaptureError(path, "the table has no profiled launch", _REMEDY)
    return table


def _ragged(path: Path, line: int, num_cells: int, wanted: int) -> CaptureError:
    where = f"line {line} has {num_cells} columns where the header has {wanted}"
    return CaptureError(path, where, f"The file is damaged or cut off. {_REMEDY}")


def _is_header(cells: list[str]) -> bool:
    if not any("Kernel Name" in c for c in cells):
        return False
    names = [c.strip().lstrip("\ufeff") for c in cells]
    return "Kernel Name" in names and ("ID" in names or "Process ID" in names)


def _check_header(header: list[str], path: Path, line: int) -> None:
    if "ID" not in header:
        raise CaptureError(
            path,
            "this is a summary over launches (--print-summary)",
            "Export each launch; " + _REMEDY,
        )
    needed = [*_NEEDED] if "Metric Name" in header else []
    needed += ["Rule Description"] if "Rule Name" in header else []
    is_torn = "Metric Value" in header and not needed
    if len(set(header)) != len(header) or is_torn or not set(needed) <= set(header):
        raise CaptureError(path, f"line {line}: the header is damaged", _REMEDY)


def _records(text: str, log: list[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each row, the header included; other lines go to `log`."""
    delimiter, is_quoted, num_columns = ",", True, 0
    pending: list[str] = []
    first, is_open = 0, False
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        if pending:
            pending.append(line)
        elif not num_columns or _HEADER_LINE.match(line):
            header = _HEADER_LINE.match(line)
            if not header:
                log.append(line)
                continue
            delimiter, is_quoted = header[2], bool(header[1])
            pending, first = [line], number
        elif line.startswith("==") or not line.strip():
            log.append(line)
            continue
        elif line.startswith('"') or (not is_quoted and line.count(delimiter) >= num_columns // 3):
            pending, first = [line], number
        else:
            log.append(line)
            continue
        is_open ^= line.count('"') % 2 == 1
        if is_open:
            if len(pending) > _MAX_RECORD_LINES:
                raise CaptureError(path, f"line {first}: a quote is never closed", _REMEDY)
            continue
        cells = _cells(pending, delimiter, path, first)
        pending = []
        num_columns = num_columns or len(cells)
        yield first, cells
    if pending:
        raise CaptureError(path, f"line {first}: the file ends within a row", _REMEDY)


_HEADER_LINE = re.compile(
    r'^\ufeff?("?)(?:ID|Process ID)"?([,;\t])"?(?:Process (?:ID|Name)|Kernel)'
)


def _cells(lines: list[str], delimiter: str, path: Path, first: int) -> list[str]:
    try:
        rows = list(csv.reader([li + "\n" for li in lines], delimiter=delimiter, strict=True))
    except csv.Error as exc:
        raise CaptureError(path, f"line {first}: {exc}", _REMEDY) from exc
    if len(rows) != 1:
        raise CaptureError(path, f"line {first}: the row's quotes do not match", _REMEDY)
    return rows[0]


def _launch(
    table: NcuTable,
    part: _Part,
    row: dict[str, str],
    line: int,
    path: Path,
) -> NcuLaunch:
    """Return the launch that the row belongs to; rows of one launch must name the same kernel."""
    cells = tuple(map(row.get, part.shared))
    if (same_cells := part.by_cells.get(cells)) is not None:
        return same_cells
    key = row["ID"].strip()
    if not re.fullmatch(r"[0-9]{1,9}", key) or not row.get("Kernel Name"):
        raise CaptureError(path, f"line {line}: the row has no launch ID or kernel name", _REMEDY)
    launch = NcuLaunch(
        id=key,
        process=row.get("Process ID", "").strip(),
        line=line,
        kernel=row["Kernel Name"],
        grid=_dims(row.get("Grid Size")),
        block=_dims(row.get("Block Size")),
        device=row.get("Device", ""),
        compute_capability=row.get("CC") or None,
        path=_nvtx_path(row, part.shared),
    )
    # Two processes profiled at once can both count from 0.
    known = part.launches.get((launch.process, key))
    if known is None:
        part.launches[launch.process, key] = part.by_cells[cells] = launch
        table.launches.append(launch)
        return launch
    same = ("kernel", "grid", "block", "device", "compute_capability", "path")
    if any(getattr(known, name) != getattr(launch, name) for name in same):
        where = f"line {line}: launch {key} is another kernel than in line {known.line}"
        raise CaptureError(path, where, f"The file is damaged. {_REMEDY}")
    part.by_cells[cells] = known
    return known


def _add_raw(
    table: NcuTable,
    part: _Part,
    row: dict[str, str],
    cells: list[str],
    line: int,
    path: Path,
) -> None:
    num_before = len(table.launches)
    launch = _launch(table, part, row, line, path)
    if len(table.launches) == num_before:
        where = f"line {line}: launch {launch.id} occurs twice"
        raise CaptureError(path, where, f"The file is damaged. {_REMEDY}")
    launch.tokens = {key: _total(cells[i]) for i, key in part.metrics if cells[i] != ""}


def _add_details(
    table: NcuTable,
    part: _Part,
    row: dict[str, str],
    cells: list[str],
    line: int,
    path: Path,
) -> None:
    header = part.header
    needed = "Rule Description" if row.get("Rule Name") else "Metric Value"
    if len(cells) <= header.index(needed) or len(cells) > len(header) + 1:
        raise _ragged(path, line, len(cells), len(header))
    launch = _launch(table, part, row, line, path)
    if row.get("Rule Name"):
        launch.rules.append(
            NcuRule(
                rule=row["Rule Name"],
                kind=row.get("Rule Type", ""),
                message=row["Rule Description"],
                speedup=row.get("Estimated Speedup", ""),
            )
        )
        return
    if not row["Metric Name"]:
        raise CaptureError(path, f"line {line}: the row has no metric and no rule", _REMEDY)
    key = (row["Metric Name"].strip(), row["Metric Unit"].strip())
    launch.tokens.setdefault(key, _total(row["Metric Value"]))
    # Sections may share a metric; one section cannot name it twice with different values.
    before = launch.by_section.setdefault((row.get("Section Name", ""), *key), row["Metric Value"])
    if before is not row["Metric Value"]:
        table.num_repeated_rows += 1
    if before != row["Metric Value"]:
        where = (
            f"line {line}: {key[0]} of launch {launch.id} is {before!r} and {row['Metric Value']!r}"
        )
        raise CaptureError(path, where, f"The file is damaged. {_REMEDY}")


def _total(token: str) -> str:
    """Strip the values of instances that follow a metric's own; other text is unchanged."""
    if not token.endswith(")"):
        return token
    value, _, _ = token.partition("(")
    return value.rstrip() if value[-1:].isspace() and looks_numeric(value) else token


def _dims(text: str | None) -> str | None:
    """Return "x,y,z" of "(x, y, z)", None where the column is missing or otherwise filled."""
    match = _DIMS.fullmatch((text or "").strip())
    return ",".join(match.groups()) if match else None


def _nvtx_path(row: dict[str, str], columns: Iterable[str]) -> str | None:
    """Return the push/pop ranges around the launch, outermost first, joined with "/"."""
    for column in columns:
        if _NVTX in column and (text := row.get(column)):
            names = []
            for entry in _RANGE.findall(text[:_MAX_RANGES_CHARS]):
                fields = entry.split(":")
                domain, name = fields[0], ":".join(fields[1:-6] or fields[1:])
                names.append(name if domain == "<default domain>" else f"{domain}:{name}")
            return "/".join(names) or None
    return None
