"""Units as Nsight Compute of any version prints them: `nsecond`, `ns`, `Kbyte/block`, `Ghz`."""

from functools import cache, lru_cache
from typing import NamedTuple

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
    """Return what the name and the unit as printed mean: a report repeats them in each launch."""
    factor, base = unit_scale(unit)
    return Metric(
        key=(name, base),
        factor=factor,
        is_integer=name.startswith(_INTEGERS) or (name in _INTEGER_NAMES and not unit),
        is_percentage=base == "%" and any(p in name for p in _PERCENTAGES),
    )
