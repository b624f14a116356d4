"""Read a latency table written by a user's own script: one sample per row, one configuration.

A table of summaries (mean, p95, ...) or a sweep has rows that do not sample one thing; it is
refused, and the columns that show it are named.
"""

import csv
import io
import math
import re
from pathlib import Path

from analysis.numbers import (
    PLAIN,
    AmbiguousNumberError,
    NumberStyle,
    candidate_styles,
    parse_number,
)
from analysis.tables import SAMPLE_COLUMNS, CaptureKind, CaptureTables, CaptureWarning
from captures.opening import read_text, reading
from core.errors import CaptureError
from core.plain_text import some_of

_SCALE_NS = {"ns": 1, "us": 1e3, "\u00b5s": 1e3, "\u03bcs": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
_COLUMN = re.compile(
    r"^(?:\w*_)?latency[ _]*[\[(]?(ns|us|\u00b5s|\u03bcs|ms|s|sec)[\])]?$", re.IGNORECASE
)
_SUMMARY = re.compile(
    r"(?:^|_)(?:std(?:dev|ev)?|sd|sem|var(?:iance)?|ci\d*|iqr|mad|cv|min(?:imum)?|max(?:imum)?"
    r"|p\d{1,3}(?:_\d+)?|q\d{1,2}|pct\d+|percentile\w*|quantile\w*)(?:_|$)",
    re.IGNORECASE,
)
"""Statistics that are never one sample; a mean may be the measurement of a loop."""
_CENTRE = re.compile(r"(?:^|_)(?:mean|avg|average|median|med)(?:_|$)", re.IGNORECASE)
_MEASURED = re.compile(
    r"(?:^|_)(?:time(?:stamp)?|date(?:time)?|start|end|begin|elapsed|clocks?|mhz|ghz|temp(?:erature)?"
    r"|power|watts?|energy|joules?|util\w*|loss|acc(?:uracy)?|grad\w*|throughput|tps|qps|fps|per_s(?:ec)?"
    r"|tflops?|gflops?|mfu|bandwidth|gbps|memory|mem|bytes|allocated|reserved|rss|speedup|ratio|error"
    r"|warning|status|note|comment|token_?id|loops?|host|hostname|node)(?:_|$)",
    re.IGNORECASE,
)
"""Columns that may differ from sample to sample of one configuration."""
_NUMBERING = (
    *("run", "run_id", "trial", "rep", "sample", "call", "request", "request_id", "id", "i", "n"),
    *("epoch", "token", "position", "", "unnamed: 0"),
)
"""Sample numbers, if no value repeats."""
_PROCESS = ("process", "process_id", "proc", "pid", "repeat")
_RANK = ("rank", "local_rank", "global_rank")
"""Ranks of one job run in lockstep: their samples are those of one process, the job."""
_ITERATION = ("iteration", "iter", "step", "index")
MAX_HEADER_CHARS = 5000
_TIME = re.compile(
    r"[_ (\[](?:ns|us|\u00b5s|\u03bcs|ms)[\])]?$|^(?:time|latency|duration|elapsed)(?:_s|_sec)?$",
    re.IGNORECASE,
)
_MAX_NS = 366 * 86_400 * 10**9
_MAX_SHOWN = 5


def latency_column(text: str) -> tuple[int, str, float, str] | None:
    """Return the latency column: line number (from 0), delimiter, ns per unit and name."""
    for number, line in enumerate(text.split("\n", 50)[:50]):
        for delimiter in ",;\t":
            for cell in line.split(delimiter):
                name = cell.strip().strip('"').lstrip("\ufeff")
                match = _COLUMN.match(name)
                if match:
                    return number, delimiter, _SCALE_NS[match[1].lower()], name
    return None


def time_columns(text: str) -> list[str]:
    """Return the header's columns that look like times; none of them is called a latency."""
    first = next((line for line in text.split("\n", 50) if line.strip(" \r,;\t")), "")
    if first.lstrip()[:1] in "#<" or len(first) > MAX_HEADER_CHARS:
        return []
    delimiter = max(",;\t", key=first.count)
    cells = [cell.strip().strip('"').lstrip("\ufeff") for cell in first.split(delimiter)]
    return [cell for cell in cells if _TIME.search(cell)]


def read_latency_csv(path: Path) -> CaptureTables:
    """Return samples (SAMPLE_COLUMNS); rows that cannot be read are left out and named.

    Raises CaptureError if no row is left or the number format is ambiguous.
    """
    with reading(path):
        text = read_text(path)
    place = latency_column(text)
    if place is None:
        raise CaptureError(path, "no column is named latency_ms, _us, _s or _ns", "Name it so")
    skip, delimiter, _, name = place
    body = "\n".join(text.split("\n")[skip:])
    reader = csv.reader(io.StringIO(body), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num + skip, row) for row in reader if any(c.strip() for c in row)]
    except csv.Error as exc:
        where = f"line {reader.line_num + skip}: {exc}"
        raise CaptureError(path, where, "Close its quotes or write the file again") from exc
    header = [c.strip().lstrip("\ufeff") for c in lines[0][1]]
    if len({h.lower() for h in header}) != len(header):
        raise CaptureError(path, "two columns have the same name", "Rename one of them")
    return _samples(path, header, lines[1:], name)


def _samples(
    path: Path, header: list[str], lines: list[tuple[int, list[str]]], name: str
) -> CaptureTables:
    lower = [h.lower() for h in header]
    name = _only_latency(path, header, name)
    column, scale = header.index(name), _scale_of(name)
    process = next((lower.index(p) for p in _PROCESS if p in lower), None)
    iteration = next((lower.index(i) for i in _ITERATION if i in lower), None)
    rank = next((lower.index(r) for r in _RANK if r in lower), None)
    whole = [row for _, row in lines if len(row) == len(header)]
    style = _style(path, [row[column] for row in whole])
    known = {column, process, iteration, rank}
    _check_one_configuration(path, header, whole, known)
    rows: list[tuple[int, int, int]] = []
    bad: list[str] = []
    counts: dict[str, int] = {}
    for number, row in lines:
        if len(row) != len(header):
            bad.append(f"line {number} has {len(row)} columns, the header {len(header)}")
            continue
        try:
            latency_ns = _latency_ns(row[column], style, scale)
        except ValueError as exc:
            bad.append(f"line {number}: {name} is {exc}")
            continue
        key = row[process].strip() if process is not None else ""
        index = counts.setdefault(key, 0)
        counts[key] += 1
        stated = row[iteration].strip() if iteration is not None else ""
        position = int(stated) if re.fullmatch(r"\d{1,9}", stated) else index
        rows.append((list(counts).index(key), position, latency_ns))
    if not rows:
        why = bad[0] if bad else "the table has no rows"
        raise CaptureError(path, why, f"Write one number in each row of {name}")
    import pandas as pd  # here: telling formats apart needs none

    samples = pd.DataFrame(rows, columns=list(SAMPLE_COLUMNS)).astype("int64")
    ranks = {row[rank].strip() for row in whole} if rank is not None else set()
    if samples.duplicated(["process", "iteration"]).any():
        samples["iteration"] = samples.groupby("process").cumcount()
    return CaptureTables(
        kind=CaptureKind.LATENCY_CSV,
        path=path,
        tool="csv",
        samples=samples,
        warnings=_warnings(bad, rows, len(ranks)),
    )


def _scale_of(name: str) -> float:
    match = _COLUMN.match(name)
    assert match is not None
    return _SCALE_NS[match[1].lower()]


def _only_latency(path: Path, header: list[str], first: str) -> str:
    """Return the sample column; CaptureError for summaries or several candidate columns."""
    columns = [h for h in header if _COLUMN.match(h)]
    spread = [h for h in header if _SUMMARY.search(h.replace(" ", "_"))]
    centres = [h for h in columns if _CENTRE.search(h.replace(" ", "_"))]
    in_summary = [h for h in header if h in spread or (h in centres and len(columns) > 1)]
    if first in spread or (in_summary and len(columns) + len(spread) > 1):
        raise CaptureError(
            path,
            f"a table of summaries, not of samples (columns {_shown(in_summary)})",
            "Write one row per sample, with one column latency_ms",
        )
    plain = [h for h in columns if h.lower().startswith("latency")]
    if len(columns) > 1 and len(plain) != 1:
        raise CaptureError(
            path,
            f"{len(columns)} columns contain latencies ({_shown(columns)})",
            "Keep the right one, or rename it to latency_ms and the others to something else",
        )
    return plain[0] if plain else first


def _check_one_configuration(
    path: Path, header: list[str], rows: list[list[str]], known: set[int | None]
) -> None:
    """Reject a sweep: rows that differ in a column which is not a measurement."""
    varying = []
    for place, title in enumerate(header):
        values = [row[place].strip() for row in rows]
        is_number = title.lower() in _NUMBERING and len(set(values)) == len(values)
        is_measured = _MEASURED.search(re.sub(r"[^\w]+", "_", title.strip()))
        if place not in known and len(set(values)) > 1 and not is_number and not is_measured:
            varying.append(title or f"column {place + 1}")
    if varying:
        raise CaptureError(
            path,
            f"rows of several configurations: {_shown(varying)} "
            f"{'varies' if len(varying) == 1 else 'vary'}",
            "Import the rows of one configuration at a time, without that column if it is a "
            "measurement",
        )


def _shown(names: list[str]) -> str:
    return some_of([name[:40] for name in names], _MAX_SHOWN)


def _warnings(
    bad: list[str], rows: list[tuple[int, int, int]], num_ranks: int
) -> tuple[CaptureWarning, ...]:
    warnings = []
    if bad:
        text = f"{len(bad)} rows were left out: {some_of(bad, _MAX_SHOWN, '; ')}."
        warnings.append(CaptureWarning(code="rejected_rows", message=text))
    if num_ranks > 1:
        text = (
            f"{num_ranks} ranks run in lockstep: the samples of all ranks of a "
            "job count as one process. To compare launches, add a column "
            "`process` that numbers the launches of the job."
        )
        warnings.append(CaptureWarning(code="ranks_of_one_job", message=text))
    elif len({row[:2] for row in rows}) != len(rows):
        text = "Some iterations occur twice in one process: all are numbered in file order."
        warnings.append(CaptureWarning(code="repeated_iterations", message=text))
    return tuple(warnings)


def _style(path: Path, tokens: list[str]) -> NumberStyle:
    """Assume decimals without thousands separators unless a token proves otherwise."""
    try:
        styles = candidate_styles(tokens)
    except AmbiguousNumberError as exc:
        raise CaptureError(path, str(exc), "Write all numbers in one style") from exc
    if len(styles) == 1:
        return styles[0]
    if PLAIN in styles:
        return PLAIN
    raise CaptureError(
        path, "a comma could be a decimal or a thousands separator", "Write decimals with a point"
    )


def _latency_ns(token: str, style: NumberStyle, scale: float) -> int:
    try:
        value = parse_number(token, style)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{token.strip()[:40]!r}, not a number")
    latency_ns = value * scale
    if not 0.5 < latency_ns < _MAX_NS:
        raise ValueError(f"{token.strip()[:40]!r}, which is impossible for an iteration")
    return round(latency_ns)
