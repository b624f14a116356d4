"""Read Nsight Compute's CSV, raw page or details page, of any version and locale.

The number style is found first: by the marks in the numbers, and by what ncu prints twice where
the marks alone leave it open.
"""

import math
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.classify.names import short_name
from analysis.numbers import (
    AmbiguousNumberError,
    NumberStyle,
    candidate_styles,
    looks_numeric,
    parse_number,
    parsed,
)
from analysis.readers.ncu.counters import NAN, any_unit, by_name, counters_of
from analysis.readers.ncu.details import details_of
from analysis.readers.ncu.log import log_warnings
from analysis.readers.ncu.table import NcuLaunch, NcuTable, metric_of, parse_ncu_table
from analysis.tables import (
    COUNTER_COLUMNS,
    COUNTER_DETAIL_COLUMNS,
    RULE_COLUMNS,
    CaptureKind,
    CaptureTables,
    CaptureWarning,
)
from captures.opening import read_text, reading
from core.errors import CaptureError
from core.numbers import decimal

_REMEDY = "Export it again with LC_ALL=C, or import the .ncu-rep"
_CYCLES = ("gpc__cycles_elapsed.max", "Elapsed Cycles")
_CLOCK = (
    "gpc__cycles_elapsed.max.per_second",
    "gpc__cycles_elapsed.avg.per_second",
    "SM Frequency",
)
_DURATION = ("gpu__time_duration.sum", "Duration")
CLOCK_TOLERANCE = 0.1
Numbers = Mapping[str, float | str]
"""The value of each token, or why it has none; see `analysis.numbers.parsed`."""


def table_style(table: NcuTable, path: Path) -> NumberStyle:
    """Return the number format of the table; CaptureError if it is ambiguous."""
    try:
        styles = candidate_styles(_tokens(table))
    except AmbiguousNumberError as exc:
        raise CaptureError(path, str(exc), _REMEDY) from exc
    if len(styles) == 1:
        return styles[0]
    judged = []
    for style in styles:
        numbers = numbers_of(table, style)
        judged.append((any(contradictions(la, numbers) for la in table.launches), style))
    good = [style for is_wrong, style in judged if not is_wrong]
    if len(good) == 1:
        return good[0]
    shown = next(t for t in _tokens(table) if looks_numeric(t) and ("," in t or "." in t))
    where = (
        f"{shown!r} can be read with a decimal or a thousands separator, "
        "and the file does not decide which"
    )
    raise CaptureError(path, where, _REMEDY)


def _tokens(table: NcuTable) -> Iterator[str]:
    return (t for launch in table.launches for t in launch.tokens.values())


def numbers_of(table: NcuTable, style: NumberStyle) -> Numbers:
    """Return the value of every token of the table that is a number or a missing one."""
    return parsed(_tokens(table), style)


def contradictions(launch: NcuLaunch, numbers: Numbers) -> list[str]:
    """Return the contradictions of a launch under this reading of its numbers."""
    odd = []
    values: dict[str, float] = {}
    for (name, unit), token in launch.tokens.items():
        number = numbers.get(token, math.nan)
        if isinstance(number, str):
            odd.append(f"{name} is {token!r}")
            continue
        if math.isnan(number):
            continue
        metric = metric_of(name, unit)
        value = number * metric.factor
        values.setdefault(name, value)
        if metric.is_integer and value != math.floor(value):
            odd.append(f"{name} is {token!r}, not a whole number")
        if metric.is_percentage and value > 1000:
            odd.append(f"{name} is {token!r} %")
    return odd + list(_sizes(launch, values)) + list(_clock(values))


def _sizes(launch: NcuLaunch, values: dict[str, float]) -> Iterator[str]:
    for text, names in (
        (launch.grid, ("launch__grid_size", "Grid Size")),
        (launch.block, ("launch__block_size", "Block Size")),
    ):
        stated = next((values[n] for n in names if n in values), None)
        if text and stated is not None and math.prod(map(int, text.split(","))) != stated:
            yield f"{names[1]} is ({text}) and {stated:.0f}"


def _clock(values: dict[str, float]) -> Iterator[str]:
    """Elapsed cycles are duration times clock, up to the clock's rounding."""
    cycles, clock, duration_ns = (
        next((values[n] for n in names if n in values), None)
        for names in (_CYCLES, _CLOCK, _DURATION)
    )
    if cycles and clock and duration_ns and clock > 0:
        expected = cycles / clock * 1e9
        if abs(duration_ns - expected) > CLOCK_TOLERANCE * expected + 100:
            yield f"duration is {duration_ns:.0f} ns, but its cycles take {expected:.0f} ns"


_NO_NUMBER = frozenset({"launch", "name", "short_name", "grid", "block", "registers", "path"})
_MAX_SHOWN = 3
_LIMITS = {"duration_ns": 366 * 86_400e9, "registers": 1e6}


def read_ncu_csv(path: Path) -> CaptureTables:
    """Return counters (one row per launch) and rules; CaptureError names a damaged row's line."""
    with reading(path):
        return read_ncu_text(path, read_text(path), CaptureKind.NCU_CSV)


def read_ncu_text(
    path: Path, text: str, kind: CaptureKind, notes: tuple[CaptureWarning, ...] = ()
) -> CaptureTables:
    """Return the tables in ncu's CSV output; `path` is the file that errors name."""
    table = parse_ncu_table(text, path)
    style = table_style(table, path)
    numbers = numbers_of(table, style)
    values = [_values(launch, numbers, path) for launch in table.launches]
    return tables_of(path, kind, table, values, [*notes, *_checks(table, numbers)])


def tables_of(
    path: Path,
    kind: CaptureKind,
    table: NcuTable,
    values: list[dict[tuple[str, str], float]],
    checks: list[CaptureWarning],
) -> CaptureTables:
    """Return the capture's tables from launches and their metrics in base units."""
    rows = [
        _row(i, la, v, path) for i, (la, v) in enumerate(zip(table.launches, values, strict=True))
    ]
    counters = pd.DataFrame(rows, columns=list(COUNTER_COLUMNS))
    counters["registers"] = counters["registers"].astype("Int64")
    numeric = [c for c in COUNTER_COLUMNS if c not in _NO_NUMBER]
    counters[numeric] = counters[numeric].astype("float64")
    rules = [
        (i, launch.kernel, r.rule, r.kind, r.message, _speedup(r.speedup))
        for i, launch in enumerate(table.launches)
        for r in launch.rules
    ]
    details = [(i, *detail) for i, v in enumerate(values) for detail in details_of(v)]
    return CaptureTables(
        kind=kind,
        path=path,
        tool="ncu",
        gpu=_gpu(table.launches, values),
        counters=counters,
        rules=pd.DataFrame(rules, columns=list(RULE_COLUMNS)),
        counter_details=pd.DataFrame(details, columns=list(COUNTER_DETAIL_COLUMNS)),
        warnings=(*log_warnings(table.log), *checks, *_coverage(counters, table)),
    )


def _values(launch: NcuLaunch, numbers: Numbers, path: Path) -> dict[tuple[str, str], float]:
    """Return the launch's metrics in base units; text values are left out, missing ones NaN."""
    by_metric: dict[tuple[str, str], float] = {}
    for (name, unit), token in launch.tokens.items():
        if token not in numbers:
            continue
        number = numbers[token]
        if isinstance(number, str):
            where = f"launch {launch.id} (line {launch.line}): {name}: {number}"
            raise CaptureError(path, where, "Export it again with LC_ALL=C, or import the .ncu-rep")
        metric = metric_of(name, unit)
        by_metric.setdefault(metric.key, number * metric.factor)
    return by_metric


def _row(
    index: int, launch: NcuLaunch, values: dict[tuple[str, str], float], path: Path
) -> dict[str, Any]:
    numbers = counters_of(values)
    registers = numbers["registers"]
    for name, value in numbers.items():
        limit = _LIMITS.get(name, 1e30)
        if not math.isnan(value) and not 0 <= value < limit:
            where = f"launch {launch.id} (line {launch.line}): {name} would be {decimal(value, 6)}"
            raise CaptureError(path, where, "The file is damaged: export it again")
    return numbers | {
        "launch": index,
        "name": launch.kernel,
        "short_name": short_name(launch.kernel),
        "grid": launch.grid,
        "block": launch.block,
        "registers": pd.NA if math.isnan(registers) else int(registers),
        "path": launch.path,
    }


def _speedup(token: str) -> float:
    """Estimated speed-up in per cent. It is below 1000, so its one mark is always the decimal."""
    try:
        return parse_number(token, NumberStyle(decimal="," if "," in token else "."))
    except ValueError:
        return NAN


def _gpu(launches: list[NcuLaunch], values: list[dict[tuple[str, str], float]]) -> dict[str, Any]:
    gpu: dict[str, Any] = {}
    for launch, metrics in zip(launches[:1], values[:1], strict=True):
        if launch.compute_capability:
            gpu["compute_capability"] = launch.compute_capability
        num_sms = any_unit(
            by_name(metrics),
            ("device__attribute_multiprocessor_count", "launch__sm_count", "# SMs"),
        )
        if 0 < num_sms < 1e6:
            gpu["num_sms"] = int(num_sms)
        name = launch.tokens.get(("device__attribute_display_name", ""))
        if name:
            gpu["name"] = name
    return gpu


def _checks(table: NcuTable, numbers: Numbers) -> list[CaptureWarning]:
    """Warn of launches with contradictory values and of repeated rows."""
    bad = [
        f"launch {launch.id}: {text}"
        for launch in table.launches
        for text in contradictions(launch, numbers)[:1]
    ]
    warnings = []
    if bad:
        text = f"{len(bad)} launches are inconsistent: {'; '.join(bad[:_MAX_SHOWN])}."
        warnings.append(CaptureWarning(code="inconsistent_counters", message=text))
    if table.num_repeated_rows:
        text = f"{table.num_repeated_rows} rows occur twice; each was counted once."
        warnings.append(CaptureWarning(code="repeated_rows", message=text))
    return warnings


def _coverage(counters: pd.DataFrame, table: NcuTable) -> list[CaptureWarning]:
    """Warn of counters that some launches lack, and of launches that the numbering skips."""
    warnings = []
    numeric = [c for c in COUNTER_COLUMNS if c not in _NO_NUMBER]
    have = counters[numeric].notna().sum()
    uneven = [f"{c} ({n} of {len(counters)})" for c, n in have.items() if 0 < n < len(counters)]
    if uneven:
        text = f"Some launches lack counters that others have: {', '.join(uneven)}."
        warnings.append(CaptureWarning(code="uneven_counters", message=text))
    if len(counters) and not have["duration_ns"]:
        text = "No duration was collected: add the metric gpu__time_duration.sum."
        warnings.append(CaptureWarning(code="no_durations", message=text))
    if len({launch.id for launch in table.launches}) < len(table.launches):
        processes = len({launch.process for launch in table.launches})
        why = (
            f"{processes} processes number their own launches"
            if processes > 1
            else "it contains several tables"
        )
        text = f"Launch numbers repeat: {why}; all are listed."
        warnings.append(CaptureWarning(code="several_processes", message=text))
    sizes = Tally(len(launch.tokens) for launch in table.launches)
    ids = [int(launch.id) for launch in table.launches]
    skipped = sum(max(0, b - a - 1) for a, b in pairwise(ids) if b > a)
    if skipped or (len(sizes) > 1 and not table.is_raw and not uneven):
        text = (
            f"{skipped} launch numbers are skipped"
            if skipped
            else (f"launches have {min(sizes)} to {max(sizes)} metrics each")
        )
        warnings.append(
            CaptureWarning(code="incomplete_table", message=f"The table is uneven: {text}.")
        )
    return warnings
