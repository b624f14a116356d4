"""Put the parts of a comparison together."""

from collections.abc import Sequence

from analysis.compare import fields, metrics
from analysis.compare.explain import explain, make_reason
from analysis.compare.held import hold
from analysis.compare.records import Comparison
from analysis.compare.scoreboard import make_scoreboard
from analysis.compare.several import make_pairs
from analysis.compare.words import device_of
from analysis.runview import RunView
from core.errors import UserError


def compare(a: Sequence[RunView], b: Sequence[RunView], *, metric: str = "latency") -> Comparison:
    """Compare side B with side A; each side is one run or several runs of the same job.

    Where a side holds several measurements, `pairs` has each of B's against its partner of A.
    UserError for an empty side or a metric that neither side has (the message lists those that
    both have). Nothing is read but the views, and the span files they name for kernel matching.
    """
    if not a or not b:
        raise UserError(f"compare: side {'A' if not a else 'B'} names no run")
    chosen = metrics.resolve(metric, a, b)
    held = hold(a, b, chosen)
    explained = explain(a, b, chosen)
    pairs = make_pairs(a, b, chosen)
    return Comparison(
        metric=chosen.name,
        unit=chosen.unit,
        higher_is_better=chosen.higher_is_better,
        device=device_of((*a, *b)),
        comparable=held.comparable,
        intended=fields.intended_variable(held.differs),
        differs=held.differs,
        banner=held.banner,
        verdict=held.verdict,
        reason=make_reason(held, explained, chosen, device_of((*a, *b))),
        next_step="see each measurement against its partner" if pairs else held.next_step,
        ratio=held.found.ratio,
        ci95=held.found.ci95,
        ci95_basis=held.found.ci95_basis,
        p_value=held.found.p_value,
        noise_floor_frac=held.noise_floor_frac,
        a=held.a,
        b=held.b,
        marks=held.marks,
        **explained,
        scoreboard=make_scoreboard((*a, *b)),
        pairs=pairs,
    )
