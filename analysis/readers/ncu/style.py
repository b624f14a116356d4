"""Find the number style of an ncu table, with what ncu says twice where the marks alone leave it
open.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from analysis.numbers import (
    AmbiguousNumberError,
    NumberStyle,
    candidate_styles,
    looks_numeric,
    parsed,
)
from analysis.readers.ncu.table import NcuLaunch, NcuTable
from analysis.readers.ncu.units import metric_of
from core.errors import CaptureError

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
    """Return the style of every number in the table; CaptureError where two are possible."""
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
    where = f"{shown!r} can be read with a decimal or a thousands mark, and nothing else decides"
    raise CaptureError(path, where, _REMEDY)


def _tokens(table: NcuTable) -> Iterator[str]:
    return (t for launch in table.launches for t in launch.tokens.values())


def numbers_of(table: NcuTable, style: NumberStyle) -> Numbers:
    """Return the value of every token of the table that is a number or a missing one."""
    return parsed(_tokens(table), style)


def contradictions(launch: NcuLaunch, numbers: Numbers) -> list[str]:
    """Return what the launch says twice and differently when its tokens mean these numbers."""
    found = []
    values: dict[str, float] = {}
    for (name, unit), token in launch.tokens.items():
        number = numbers.get(token, math.nan)
        if isinstance(number, str):
            found.append(f"{name} is {token!r}")
            continue
        if math.isnan(number):
            continue
        metric = metric_of(name, unit)
        value = number * metric.factor
        values.setdefault(name, value)
        if metric.is_integer and value != math.floor(value):
            found.append(f"{name} is {token!r}, not a whole number")
        if metric.is_percentage and value > 1000:
            found.append(f"{name} is {token!r} %")
    return found + list(_sizes(launch, values)) + list(_clock(values))


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
