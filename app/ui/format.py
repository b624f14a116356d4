"""Numbers as text: SI prefixes, three significant digits, and an em dash for what is not known."""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

UNKNOWN = "\u2014"
_NBSP = "\u00a0"
_MICRO = re.compile(r"(?<=\d )us\b")
_PERCENT = re.compile(r"(?<=\d)%")
_LONG = 1e5
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def is_known(value: object) -> bool:
    """Say whether there is a number: None, NaN and pandas' NA are not."""
    if value is None:
        return False
    try:
        return not math.isnan(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def significant(value: float, digits: int = 3) -> str:
    """Return `value` with that many significant digits, integers beyond them kept whole."""
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if decimals <= 0:
        return f"{value:,.0f}".replace(",", "\u202f")
    text = f"{value:.{decimals}f}"
    rounded = float(text)
    if rounded and digits - 1 - math.floor(math.log10(abs(rounded))) < decimals:
        text = f"{value:.{max(decimals - 1, 0)}f}"
    return text


def fixed_format(values: Iterable[object], *, most: int = 3, signed: bool = False) -> str:
    """Return one printf format for a column: decimals line up, about three digits are kept.

    The smallest value keeps two significant digits and the largest three, with at most `most`
    decimals.
    """
    sizes = [abs(float(v)) for v in values if is_known(v) and float(v)]  # type: ignore[arg-type]
    decimals = 0
    if sizes:
        small, large = (math.floor(math.log10(s)) for s in (min(sizes), max(sizes)))
        decimals = min(most, max(0, 1 - small, 2 - large))
    return f"%{'+' if signed else ''}.{decimals}f"


def count_format(values: Iterable[object]) -> str:
    """Return one printf format for a column of counts: with a decimal only where one has a part."""
    known = [float(v) for v in values if is_known(v)]  # type: ignore[arg-type]
    return "%.0f" if all(v.is_integer() for v in known) else "%.1f"


def with_micro(text: str) -> str:
    """Return a sentence with `us` and `%` after a number written as pages write them."""
    return _PERCENT.sub(f"{_NBSP}%", _MICRO.sub("\u00b5s", text))


def duration(ns: float | None) -> str:
    """Return nanoseconds as ns, us, ms or s."""
    if not is_known(ns):
        return UNKNOWN
    value = float(ns)  # type: ignore[arg-type]
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "\u00b5s")):
        if abs(value) >= scale * 0.9995:
            return f"{significant(value / scale)}{_NBSP}{unit}"
    return f"{significant(value)}{_NBSP}ns"


def time_unit(values_ns: Iterable[object], least: str = "ns") -> tuple[str, float]:
    """Return one unit for a column of times, and its ns: the largest has at most five digits."""
    known = [abs(float(v)) for v in values_ns if is_known(v)]  # type: ignore[arg-type]
    units = (("ns", 1.0), ("\u00b5s", 1e3), ("ms", 1e6), ("s", 1e9))
    allowed = units[[name for name, _ in units].index(least) :]
    most = max(known, default=0.0)
    return next((u for u in allowed if most < _LONG * u[1]), allowed[-1])


def scaled(value: float | None, unit: str) -> str:
    """Return a number with an SI prefix: `2.88 GB`, `312 TFLOP/s`."""
    if not is_known(value):
        return UNKNOWN
    number = float(value)  # type: ignore[arg-type]
    for scale, prefix in _PREFIXES:
        if abs(number) >= scale * 0.9995:
            return f"{significant(number / scale)}{_NBSP}{prefix}{unit}"
    return f"{significant(number)}{_NBSP}{unit}".rstrip()


def bytes_(value: float | None) -> str:
    """Return bytes in decimal units (1 GB is 10^9 B)."""
    return scaled(value, "B")


def percent(frac: float | None) -> str:
    """Return a fraction (0-1) as a percentage."""
    return UNKNOWN if not is_known(frac) else pct(float(frac) * 100)  # type: ignore[arg-type]


def switch(value: str) -> str:
    """Return what a value is called: a switch is on or off."""
    return {"false": "off", "true": "on"}.get(value.lower(), value)


def noise_floor(frac: float | None, kinds: Mapping[str, float | None]) -> str:
    """Return a GPU's noise floor in words, of each kind of work where both were measured."""
    both = [kinds.get(kind) for kind in ("gpu_bound", "launch_bound")]
    if all(is_known(k) for k in both):
        return f"noise floor {percent(both[0])} GPU-bound, {percent(both[1])} launch-bound"
    return f"noise floor {percent(frac)}" if is_known(frac) else "noise floor not measured"


def pct(value: float | None) -> str:
    """Return a percentage (0-100) with one decimal, or two below one per cent.

    What is not nothing does not read as nothing, and what is not all not as all.
    """
    if not is_known(value):
        return UNKNOWN
    number = float(value)  # type: ignore[arg-type]
    if 0 < number < 0.005:
        return f"< 0.01{_NBSP}%"
    if 99.95 <= number < 100:
        return f"> 99.9{_NBSP}%"
    digits = 2 if 0 < abs(number) < 1 else 1
    return f"{number:.{digits}f}{_NBSP}%"


def count(value: float | None) -> str:
    """Return a whole number with thin spaces between thousands."""
    return UNKNOWN if not is_known(value) else f"{int(value):,}".replace(",", "\u202f")  # type: ignore[arg-type]


def many(value: float, noun: str) -> str:
    """Return a count with its noun: `1 run`, `12 runs`, `2 launches`."""
    ending = "" if value == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{count(value)} {noun}{ending}"


def ratio(value: float | None) -> str:
    """Return a ratio with three decimals at most and a multiplication sign."""
    return UNKNOWN if not is_known(value) else f"{significant(float(value))}{_NBSP}\u00d7"  # type: ignore[arg-type]


def _moment(stamp: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def when(stamp: str | None) -> str:
    """Return a stored UTC timestamp as `27 Nov 2026, 22:10`; an unreadable text unchanged."""
    if not stamp:
        return UNKNOWN
    moment = _moment(stamp)
    return (
        stamp if moment is None else moment.astimezone(UTC).strftime("%d %b %Y, %H:%M").lstrip("0")
    )


def ago(stamp: str | None, now: datetime | None = None) -> str:
    """Return how long ago a stored UTC timestamp was, in the largest whole unit."""
    moment = _moment(stamp or "")
    if moment is None:
        return stamp or UNKNOWN
    seconds = max(0, int(((now or datetime.now(UTC)) - moment).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size}{_NBSP}{unit} ago"
    return "just now" if seconds < 10 else f"{seconds}{_NBSP}s ago"


def gpu_name(model: object) -> str:
    """Return a GPU model without its maker's name, which all of them share; a dash for none."""
    if model == "cpu":
        return "CPU"
    return str(model).removeprefix("NVIDIA ") if model and model == model else UNKNOWN
