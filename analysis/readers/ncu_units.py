"""Units as Nsight Compute of any version prints them: `nsecond`, `ns`, `Kbyte/block`, `Ghz`."""

from functools import cache

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
