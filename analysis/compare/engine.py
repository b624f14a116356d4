"""Put the parts of a comparison together: the sides, each measurement and its partner, and why.

A side may hold runs of several measurements (other sizes, other compile modes). As one set they
have no median worth a ratio; measurement by measurement they do.
"""

from collections.abc import Sequence
from typing import TypedDict

import pandas as pd

from analysis.compare import fields, metrics
from analysis.compare.evaluate import PairResult, evaluate_pair
from analysis.compare.gpus import make_scoreboard, scaling_of
from analysis.compare.kernels import match_kernels
from analysis.compare.labels import WORDS, RanOn, device_of
from analysis.compare.metrics import Metric
from analysis.compare.records import (
    Comparison,
    Difference,
    KernelPair,
    MemoryGrowth,
    Pair,
    Waterfall,
)
from analysis.compare.waterfall import make_waterfall, operator_waterfall, representative
from analysis.per_step import common_basis
from analysis.runview import RunView
from core.errors import UserError
from core.numbers import decimal
from core.plain_text import some_of
from core.spec import NO_EFFECT, comparable_hash


class Explanation(TypedDict):
    """The parts of a comparison that come from captures."""

    waterfall: Waterfall | None
    kernel_waterfall: Waterfall | None
    operator_waterfall: Waterfall | None
    kernels: tuple[KernelPair, ...]
    memory: tuple[MemoryGrowth, ...]


def make_reason(result: PairResult, explained: Explanation, metric: Metric, device: RanOn) -> str:
    """Return the verdict's reason; without a ratio, what the captures do say."""
    fall = explained["kernel_waterfall"]
    if (
        not result.comparable
        or result.judgement.ratio is not None
        or fall is None
        or not fall.total_a_ns
    ):
        return result.reason
    if metric.name == "kernel_time":
        return result.reason  # opaque graphs: time of kernels that were not recorded
    change = fall.total_b_ns / fall.total_a_ns - 1
    totals = f"{decimal(fall.total_a_ns / 1e6)} -> {decimal(fall.total_b_ns / 1e6)} ms"
    return f"{result.reason}; {WORDS[device].time} {totals} ({change:+.1%}) per {fall.per}"


def explain(a: Sequence[RunView], b: Sequence[RunView], metric: Metric) -> Explanation:
    """Attribute the difference in time and memory, from the newest run per side with a capture."""
    explanation = Explanation(
        waterfall=None, kernel_waterfall=None, operator_waterfall=None, kernels=(), memory=()
    )
    one_a, one_b = representative(a), representative(b)
    if one_a and one_b:
        explanation["kernel_waterfall"] = make_waterfall(one_a, one_b, "kernel_time")
        span = make_waterfall(one_a, one_b, "span") if metric.name != "kernel_time" else None
        explanation["waterfall"] = span or explanation["kernel_waterfall"]
        explanation["operator_waterfall"] = operator_waterfall(one_a, one_b)
        explanation["kernels"] = match_kernels(one_a, one_b)
    with_memory = [[v for v in side if len(v.memory_at_peak)] for side in (a, b)]
    if all(with_memory):
        explanation["memory"] = compare_memory(with_memory[0][-1], with_memory[1][-1])
    return explanation


Measurement = tuple[RunView, ...]
MAX_TOLD = 3


def make_pairs(a: Sequence[RunView], b: Sequence[RunView], metric: Metric) -> tuple[Pair, ...]:
    """Return one row per measurement of side B, in the given order; () if each side has one.

    With one measurement on side A all of B is compared with it; with several, each of B against
    the one of A that it can be compared with and differs least from. A filter for B may name A's
    runs too: nothing is compared with itself.
    """
    of_a, of_b = measurements(a), measurements(b)
    if len(of_a) == len(of_b) == 1:
        return ()
    partners = [(_partner(measurement, of_a, metric), measurement) for measurement in of_b]
    return tuple(_pair(x, y, metric) for x, y in partners if _ids(x) != _ids(y))


def measurements(views: Sequence[RunView]) -> list[Measurement]:
    """Return the runs grouped by what they measured: workload, params that matter, and GPU.

    Files without a workload are repeats of one measurement when they have one name.
    """
    groups: dict[str, list[RunView]] = {}
    for view in views:
        run = view.run
        name = "" if run.workload or set(run.params) - NO_EFFECT else run.name
        key = f"{comparable_hash(run.workload, run.params)} {run.gpu_model} {name}"
        groups.setdefault(key, []).append(view)
    return [tuple(group) for group in groups.values()]


def _ids(measurement: Measurement) -> set[str]:
    return {view.run.id for view in measurement}


def _partner(measurement: Measurement, of_a: Sequence[Measurement], metric: Metric) -> Measurement:
    def distance(other: Measurement) -> tuple[bool, int, int]:
        differs = fields.find_differences(other, measurement, metric)
        return (not fields.is_comparable(differs), len(_weighty(differs)), len(differs))

    return min(of_a, key=distance)


def _pair(a: Measurement, b: Measurement, metric: Metric) -> Pair:
    result = evaluate_pair(a, b, metric)
    return Pair(
        a=result.a,
        b=result.b,
        what=_what(result),
        verdict=result.verdict,
        reason=result.reason,
        ratio=result.judgement.ratio,
        ci95=result.judgement.ci95,
        ci95_basis=result.judgement.ci95_basis,
    )


def _what(result: PairResult) -> str:
    """Return what differs, the variable first; equal jobs have nothing to tell."""
    return some_of([d.change for d in _weighty(result.differs)], MAX_TOLD)


def _weighty(differs: Sequence[Difference]) -> list[Difference]:
    return [d for d in differs if d.effect in ("intended", "breaks")]


def compare(a: Sequence[RunView], b: Sequence[RunView], *, metric: str = "latency") -> Comparison:
    """Compare side B with side A; each side is one run or several runs of the same job.

    Where a side holds several measurements, `pairs` has each of B's against its partner of A.
    UserError for an empty side or a metric that neither side has (the message lists those that
    both have). Nothing is read but the views, and the span files they name for kernel matching.
    """
    if not a or not b:
        raise UserError(f"compare: side {'A' if not a else 'B'} names no run")
    chosen = metrics.resolve(metric, a, b)
    result = evaluate_pair(a, b, chosen)
    explained = explain(a, b, chosen)
    pairs = make_pairs(a, b, chosen)
    return Comparison(
        metric=chosen.name,
        unit=chosen.unit,
        higher_is_better=chosen.higher_is_better,
        device=device_of((*a, *b)),
        comparable=result.comparable,
        intended=fields.intended_variable(result.differs),
        differs=result.differs,
        banner=result.banner,
        verdict=result.verdict,
        reason=make_reason(result, explained, chosen, device_of((*a, *b))),
        next_step="see each measurement against its partner" if pairs else result.next_step,
        ratio=result.judgement.ratio,
        ci95=result.judgement.ci95,
        ci95_basis=result.judgement.ci95_basis,
        p_value=result.judgement.p_value,
        noise_floor_frac=result.noise_floor_frac,
        a=result.a,
        b=result.b,
        marks=result.marks,
        **explained,
        scoreboard=make_scoreboard((*a, *b)),
        metric_per=common_basis((*a, *b)) if chosen.name in metrics.OF_STEP else "capture",
        pairs=pairs,
        scaling=scaling_of(
            a,
            b,
            chosen.name,
            result.judgement.ratio if result.comparable else None,
            result.judgement.ci95,
            result.judgement.ci95_basis,
        ),
    )


def compare_memory(a: RunView, b: RunView) -> tuple[MemoryGrowth, ...]:
    """Return every site alive at either peak, the largest change first; () without snapshots.

    Bytes of all devices together, as the snapshot counts them (requested sizes).
    """
    if not len(a.memory_at_peak) or not len(b.memory_at_peak):
        return ()
    at_a, at_b = _by_site(a.memory_at_peak), _by_site(b.memory_at_peak)
    rows = [
        MemoryGrowth(
            site=site,
            a_bytes=at_a.get(site, (0, 0))[0],
            b_bytes=at_b.get(site, (0, 0))[0],
            a_count=at_a.get(site, (0, 0))[1],
            b_count=at_b.get(site, (0, 0))[1],
        )
        for site in {**at_a, **at_b}
    ]
    return tuple(sorted(rows, key=lambda r: (-abs(r.delta_bytes), r.site)))


def _by_site(frame: pd.DataFrame) -> dict[str, tuple[int, int]]:
    sums = frame.groupby("site", sort=True)[["bytes", "count"]].sum()
    return {str(site): (int(size), int(count)) for site, size, count in sums.itertuples()}
