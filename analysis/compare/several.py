"""More than two runs: each measurement is held against the first, or against its own partner.

A side may hold runs of several measurements (other sizes, other compile modes). As one set they
have no median worth a ratio; measurement by measurement they do.
"""

from collections.abc import Sequence

from analysis.compare import fields
from analysis.compare.held import Held, hold
from analysis.compare.metrics import Metric
from analysis.compare.records import Difference, Pair
from analysis.runview import RunView
from core.spec import canonical_json

Measurement = tuple[RunView, ...]
MAX_TOLD = 3


def make_pairs(a: Sequence[RunView], b: Sequence[RunView], metric: Metric) -> tuple[Pair, ...]:
    """Return one row a measurement of side B, in the order given; () with one on each side.

    With one measurement on side A all of B is held against it; with several, each of B against
    the one of A that it can be compared with and differs least from. A filter for B may name A's
    runs too: nothing is held against itself.
    """
    of_a, of_b = measurements(a), measurements(b)
    if len(of_a) == len(of_b) == 1:
        return ()
    partners = [(_partner(one, of_a, metric), one) for one in of_b]
    return tuple(_pair(x, y, metric) for x, y in partners if _ids(x) != _ids(y))


def measurements(views: Sequence[RunView]) -> list[Measurement]:
    """Return the runs grouped by what they measured: workload, params that matter, and GPU.

    Files without a workload are repeats of one measurement when they have one name.
    """
    found: dict[str, list[RunView]] = {}
    for view in views:
        run = view.run
        params = {k: v for k, v in run.params.items() if k not in fields.NO_EFFECT}
        name = "" if run.workload or params else run.name
        key = canonical_json([run.workload, params, run.gpu_model, name])
        found.setdefault(key, []).append(view)
    return [tuple(group) for group in found.values()]


def _ids(one: Measurement) -> set[str]:
    return {view.run.id for view in one}


def _partner(one: Measurement, of_a: Sequence[Measurement], metric: Metric) -> Measurement:
    def distance(other: Measurement) -> tuple[bool, int, int]:
        differs = fields.find_differences(other, one, metric)
        return (not fields.is_comparable(differs), len(_weighty(differs)), len(differs))

    return min(of_a, key=distance)


def _pair(a: Measurement, b: Measurement, metric: Metric) -> Pair:
    held = hold(a, b, metric)
    return Pair(
        a=held.a,
        b=held.b,
        what=_what(held),
        verdict=held.verdict,
        reason=held.reason,
        ratio=held.found.ratio,
        ci95=held.found.ci95,
        ci95_basis=held.found.ci95_basis,
    )


def _what(held: Held) -> str:
    """Return what differs, the variable first; equal jobs have nothing to tell."""
    weighty = _weighty(held.differs)
    shown = [_told(d) for d in weighty[:MAX_TOLD]]
    more = len(weighty) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _weighty(differs: Sequence[Difference]) -> list[Difference]:
    return [d for d in differs if d.effect in ("intended", "breaks")]


def _told(d: Difference) -> str:
    a, b = (v if v is not None else "unknown" for v in (d.a, d.b))
    return f"{d.field} {a} -> {b}"
