"""The text of an ncu CSV, raw or details page, as one record a launch; values are still tokens.

ncu writes its own messages and the program's output into the same stream, before and between the
rows. Rows of the details page are ragged. All columns are found by their header's name.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from analysis.numbers import looks_numeric
from core.errors import CaptureError

_IDENTITY = frozenset(
    {"ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context"}
    | {"Stream", "Block Size", "Grid Size", "Device", "CC", "API Call ID", "Invocations"}
)
_NEEDED = ("Metric Unit", "Metric Value")
_REMEDY = "Export it again with `ncu --import FILE --csv --page raw`"
NO_KERNELS = "No kernels were profiled"
_MAX_RECORD_LINES = 2000
_DIMS = re.compile(r"\(?\s*(\d+)\s*[,;]\s*(\d+)\s*[,;]\s*(\d+)\s*\)?")
_INSTANCES = re.compile(r"([^(\s][^(]*?)\s+\(.*\)")
"""`12.5 (12; 13)`: a value with those of its instances (--print-metric-instances)."""
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
    """All launches of one file in order, and the lines that are not the table's."""

    launches: list[NcuLaunch] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    is_raw: bool = False
    num_repeated_rows: int = 0


def parse_ncu_table(text: str, path: Path) -> NcuTable:
    """Return the launches in the text; CaptureError names the line of a row that is damaged."""
    table = NcuTable()
    header: list[str] = []
    units: list[str] | None = None
    part: dict[tuple[str, str], NcuLaunch] = {}
    for line, cells in _records(text, table.log, path):
        if _is_header(cells):
            header, units, part = [c.strip() for c in cells], None, {}
            _check_header(header, path, line)
            table.is_raw = "Metric Name" not in header
            continue
        if not header:
            raise CaptureError(path, f"line {line}: the header names no kernel column", _REMEDY)
        row = dict(zip(header, cells, strict=False))
        if table.is_raw:
            if len(cells) != len(header):
                raise _ragged(path, line, len(cells), len(header))
            if units is None and not row["ID"].strip():
                units = cells
                continue
            _add_raw(table, part, header, units or [""] * len(header), cells, line, path)
        else:
            _add_details(table, part, header, row, cells, line, path)
    if not table.launches and not any(NO_KERNELS in line for line in table.log):
        raise CaptureError(path, "the table has no profiled launch in it", _REMEDY)
    return table


def _ragged(path: Path, line: int, found: int, wanted: int) -> CaptureError:
    where = f"line {line} has {found} columns where the header has {wanted}"
    return CaptureError(path, where, f"The file is damaged or cut off. {_REMEDY}")


def _is_header(cells: list[str]) -> bool:
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
            found = _HEADER_LINE.match(line)
            if not found:
                log.append(line)
                continue
            delimiter, is_quoted = found[2], bool(found[1])
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
    part: dict[tuple[str, str], NcuLaunch],
    row: dict[str, str],
    line: int,
    path: Path,
) -> NcuLaunch:
    """Return the launch that the row belongs to; rows of one launch must name the same kernel."""
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
        path=_nvtx_path(row),
    )
    # Two processes profiled at once can both count from 0.
    known = part.get((launch.process, key))
    if known is None:
        part[launch.process, key] = launch
        table.launches.append(launch)
        return launch
    same = ("kernel", "grid", "block", "device", "compute_capability", "path")
    if any(getattr(known, name) != getattr(launch, name) for name in same):
        where = f"line {line}: launch {key} is another kernel than in line {known.line}"
        raise CaptureError(path, where, f"The file is damaged. {_REMEDY}")
    return known


def _add_raw(
    table: NcuTable,
    part: dict[tuple[str, str], NcuLaunch],
    header: list[str],
    units: list[str],
    cells: list[str],
    line: int,
    path: Path,
) -> None:
    num_before = len(table.launches)
    launch = _launch(table, part, dict(zip(header, cells, strict=True)), line, path)
    if len(table.launches) == num_before:
        where = f"line {line}: launch {launch.id} is there twice"
        raise CaptureError(path, where, f"The file is damaged. {_REMEDY}")
    for name, unit, token in zip(header, units, cells, strict=True):
        if name not in _IDENTITY and ":" not in name and token != "":
            launch.tokens[name, unit.strip()] = _total(token)


def _add_details(
    table: NcuTable,
    part: dict[tuple[str, str], NcuLaunch],
    header: list[str],
    row: dict[str, str],
    cells: list[str],
    line: int,
    path: Path,
) -> None:
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
        raise CaptureError(path, f"line {line}: the row names no metric and no rule", _REMEDY)
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
    """Return the value alone where those of its instances follow it; texts stay as they are."""
    found = _INSTANCES.fullmatch(token) if token.endswith(")") else None
    return found[1] if found and looks_numeric(found[1]) else token


def _dims(text: str | None) -> str | None:
    """Return "x,y,z" of "(x, y, z)", None where the column is missing or otherwise filled."""
    found = _DIMS.fullmatch((text or "").strip())
    return ",".join(found.groups()) if found else None


def _nvtx_path(row: dict[str, str]) -> str | None:
    """Return the push/pop ranges around the launch, outermost first, joined with "/"."""
    for column, text in row.items():
        if "Push/Pop_Range" in column and text:
            names = []
            for entry in _RANGE.findall(text):
                fields = entry.split(":")
                domain, name = fields[0], ":".join(fields[1:-6] or fields[1:])
                names.append(name if domain == "<default domain>" else f"{domain}:{name}")
            return "/".join(names) or None
    return None
