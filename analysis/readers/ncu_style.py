"""Find the number style of an ncu table, with what ncu says twice where the marks alone leave it
open.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from analysis.numbers import (
    AmbiguousNumberError,
    NumberStyle,
    candidate_styles,
    looks_numeric,
    parse_number,
)
from analysis.readers.ncu_table import NcuLaunch, NcuTable
from analysis.readers.ncu_units import unit_scale
from core.errors import CaptureError

_REMEDY = "Export it again with LC_ALL=C, or import the .ncu-rep"
_INTEGERS = ("device__attribute_", "launch__grid_", "launch__block_", "launch__thread_count")
_INTEGER_NAMES = frozenset({"Grid Size", "Block Size", "Threads", "Stack Size", "# SMs", "# TPCs"})
_PERCENTAGES = ("throughput.avg.pct", "warps_active.avg.pct", "Throughput", "Occupancy")
_CYCLES = ("gpc__cycles_elapsed.max", "Elapsed Cycles")
_CLOCK = (
    "gpc__cycles_elapsed.max.per_second",
    "gpc__cycles_elapsed.avg.per_second",
    "SM Frequency",
)
_DURATION = ("gpu__time_duration.sum", "Duration")
CLOCK_TOLERANCE = 0.1


def table_style(table: NcuTable, path: Path) -> NumberStyle:
    """Return the style of every number in the table; CaptureError where two are possible."""
    tokens = (t for launch in table.launches for t in launch.tokens.values())
    try:
        styles = candidate_styles(tokens)
    except AmbiguousNumberError as exc:
        raise CaptureError(path, str(exc), _REMEDY) from exc
    if len(styles) == 1:
        return styles[0]
    judged = [(any(contradictions(launch, s) for launch in table.launches), s) for s in styles]
    good = [style for is_wrong, style in judged if not is_wrong]
    if len(good) == 1:
        return good[0]
    shown = next(
        t
        for launch in table.launches
        for t in launch.tokens.values()
        if looks_numeric(t) and ("," in t or "." in t)
    )
    where = f"{shown!r} can be read with a decimal or a thousands mark, and nothing else decides"
    raise CaptureError(path, where, _REMEDY)


def contradictions(launch: NcuLaunch, style: NumberStyle) -> list[str]:
    """Return what the launch says twice and differently when read in this style."""
    found = []
    values: dict[str, float] = {}
    for (name, unit), token in launch.tokens.items():
        if not looks_numeric(token):
            continue
        try:
            factor, base = unit_scale(unit)
            value = parse_number(token, style) * factor
        except ValueError:
            found.append(f"{name} is {token!r}")
            continue
        values.setdefault(name, value)
        is_integer = name.startswith(_INTEGERS) or (name in _INTEGER_NAMES and not unit)
        if is_integer and value != math.floor(value):
            found.append(f"{name} is {token!r}, not a whole number")
        if base == "%" and any(p in name for p in _PERCENTAGES) and value > 1000:
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
