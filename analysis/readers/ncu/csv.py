"""Read Nsight Compute's CSV, raw page or details page, of any version and locale."""

import math
from collections import Counter as Tally
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.classify.names import short_name
from analysis.numbers import NumberStyle, parse_number
from analysis.readers.ncu.counters import NAN, any_unit, by_name, counters_of
from analysis.readers.ncu.details import details_of
from analysis.readers.ncu.log import log_warnings
from analysis.readers.ncu.style import Numbers, contradictions, numbers_of, table_style
from analysis.readers.ncu.table import NcuLaunch, NcuTable, parse_ncu_table
from analysis.readers.ncu.units import metric_of
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

_NO_NUMBER = frozenset({"launch", "name", "short_name", "grid", "block", "registers", "path"})
_MAX_SHOWN = 3
_LIMITS = {"duration_ns": 366 * 86_400e9, "registers": 1e6}


def read_ncu_csv(path: Path) -> CaptureTables:
    """Return counters (one row a launch) and rules; CaptureError names a damaged row's line."""
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
    found: dict[tuple[str, str], float] = {}
    for (name, unit), token in launch.tokens.items():
        if token not in numbers:
            continue
        number = numbers[token]
        if isinstance(number, str):
            where = f"launch {launch.id} (line {launch.line}): {name}: {number}"
            raise CaptureError(path, where, "Export it again with LC_ALL=C, or import the .ncu-rep")
        metric = metric_of(name, unit)
        found.setdefault(metric.key, number * metric.factor)
    return found


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
    """Warn where a launch contradicts itself, or rows are there twice."""
    bad = [
        f"launch {launch.id}: {text}"
        for launch in table.launches
        for text in contradictions(launch, numbers)[:1]
    ]
    found = []
    if bad:
        text = f"{len(bad)} launches contradict themselves: {'; '.join(bad[:_MAX_SHOWN])}."
        found.append(CaptureWarning(code="inconsistent_counters", message=text))
    if table.num_repeated_rows:
        text = f"{table.num_repeated_rows} rows are there twice; each was counted once."
        found.append(CaptureWarning(code="repeated_rows", message=text))
    return found


def _coverage(counters: pd.DataFrame, table: NcuTable) -> list[CaptureWarning]:
    """Warn of counters that some launches lack, and of launches that the numbering skips."""
    found = []
    numeric = [c for c in COUNTER_COLUMNS if c not in _NO_NUMBER]
    have = counters[numeric].notna().sum()
    uneven = [f"{c} ({n} of {len(counters)})" for c, n in have.items() if 0 < n < len(counters)]
    if uneven:
        text = f"Some launches lack counters that others have: {', '.join(uneven)}."
        found.append(CaptureWarning(code="uneven_counters", message=text))
    if len(counters) and not have["duration_ns"]:
        text = "No duration was collected: add the metric gpu__time_duration.sum."
        found.append(CaptureWarning(code="no_durations", message=text))
    if len({launch.id for launch in table.launches}) < len(table.launches):
        processes = len({launch.process for launch in table.launches})
        why = (
            f"{processes} processes count their own" if processes > 1 else "it holds several tables"
        )
        text = f"Launch numbers repeat: {why}; all are listed."
        found.append(CaptureWarning(code="several_processes", message=text))
    sizes = Tally(len(launch.tokens) for launch in table.launches)
    ids = [int(launch.id) for launch in table.launches]
    skipped = sum(max(0, b - a - 1) for a, b in pairwise(ids) if b > a)
    if skipped or (len(sizes) > 1 and not table.is_raw and not uneven):
        text = (
            f"{skipped} launch numbers are skipped"
            if skipped
            else (f"launches hold {min(sizes)} to {max(sizes)} metrics each")
        )
        found.append(
            CaptureWarning(code="incomplete_table", message=f"The table is uneven: {text}.")
        )
    return found
