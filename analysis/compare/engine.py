"""Put the parts of a comparison together."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from analysis.compare import fields, metrics, order
from analysis.compare.kernels import match_kernels
from analysis.compare.memory import compare_memory
from analysis.compare.quality import find_marks
from analysis.compare.records import Comparison, KernelPair, Mark, MemoryGrowth, Side, Waterfall
from analysis.compare.scoreboard import make_scoreboard
from analysis.compare.stats import Order
from analysis.compare.verdict import ASSUMED_FLOOR_FRAC, Judgement, judge
from analysis.compare.waterfall import make_waterfall, representative
from analysis.runview import RunView
from core.errors import UserError


class Explanation(TypedDict):
    """The parts of a comparison that come from captures."""

    waterfall: Waterfall | None
    kernel_waterfall: Waterfall | None
    kernels: tuple[KernelPair, ...]
    memory: tuple[MemoryGrowth, ...]


LOST = ("oom", "failed", "cancelled", "interrupted")


def compare(a: Sequence[RunView], b: Sequence[RunView], *, metric: str = "latency") -> Comparison:
    """Compare side B with side A; each side is one run or several runs of the same job.

    UserError for an empty side or a metric that neither side has (the message lists those that
    both have). Nothing is read but the views, and the span files they name for kernel matching.
    """
    if not a or not b:
        raise UserError(f"compare: side {'A' if not a else 'B'} names no run")
    chosen = metrics.resolve(metric, a, b)
    differs = fields.find_differences(a, b, chosen)
    counts = {metrics.num_iterations(v) for v in (*a, *b)}
    per_iteration = len(counts) > 1 and None not in counts
    groups_a, unit_a = metrics.side_groups(a, chosen, per_iteration=per_iteration)
    groups_b, unit_b = metrics.side_groups(b, chosen, per_iteration=per_iteration)
    side_a = _side("A", a, groups_a, unit_a, chosen, per_iteration)
    side_b = _side("B", b, groups_b, unit_b, chosen, per_iteration)
    floor = _noise_floor(a, b) if chosen.name == "latency" else None
    when = order.find_order(a, b, len(groups_a), len(groups_b))
    found = _judge(a, b, groups_a, groups_b, when, floor, chosen)
    is_comparable = fields.is_comparable(differs)
    banner = fields.make_banner(differs)
    return Comparison(
        metric=chosen.name,
        unit=chosen.unit,
        higher_is_better=chosen.higher_is_better,
        comparable=is_comparable,
        intended=fields.intended_variable(differs),
        differs=differs,
        banner=banner,
        verdict=found.verdict if is_comparable else "not_comparable",
        reason=found.reason if is_comparable else (banner or ""),
        next_step=found.next_step if is_comparable else "compare runs that differ in one variable",
        ratio=found.ratio,
        ci95=found.ci95,
        p_value=found.p_value,
        noise_floor_frac=floor,
        a=side_a,
        b=side_b,
        marks=_marks(groups_a, groups_b, when),
        **_explain(a, b, chosen),
        scoreboard=make_scoreboard((*a, *b)),
    )


def _explain(a: Sequence[RunView], b: Sequence[RunView], metric: metrics.Metric) -> Explanation:
    """Say where time and memory went, from one run a side: the newest that has the capture."""
    found = Explanation(waterfall=None, kernel_waterfall=None, kernels=(), memory=())
    one_a, one_b = representative(a), representative(b)
    if one_a and one_b:
        found["kernel_waterfall"] = make_waterfall(one_a, one_b, "kernel_time")
        span = make_waterfall(one_a, one_b, "span") if metric.name != "kernel_time" else None
        found["waterfall"] = span or found["kernel_waterfall"]
        found["kernels"] = match_kernels(one_a, one_b)
    with_memory = [[v for v in side if len(v.memory_at_peak)] for side in (a, b)]
    if all(with_memory):
        found["memory"] = compare_memory(with_memory[0][-1], with_memory[1][-1])
    return found


def _side(
    label: str,
    views: Sequence[RunView],
    groups: list[np.ndarray],
    unit: str,
    metric: metrics.Metric,
    per_iteration: bool,
) -> Side:
    raw = [metrics.groups(v, metric, per_iteration=per_iteration) for v in views]
    num_samples = sum(len(process) for run in raw for process in run)
    names = sorted({v.run.name for v in views})
    shown = names[0] if len(names) == 1 else f"{len(views)} runs"
    return metrics.describe_side(shown or label, views, groups, unit, num_samples)


def _judge(
    a: Sequence[RunView],
    b: Sequence[RunView],
    groups_a: list[np.ndarray],
    groups_b: list[np.ndarray],
    when: Order,
    floor: float | None,
    metric: metrics.Metric,
) -> Judgement:
    for label, views, groups in (("A", a, groups_a), ("B", b, groups_b)):
        if not groups:
            return _missing(_why_missing(label, views, metric))
        if min(float(np.median(g)) for g in groups) <= 0:
            return _missing(f"{metric.name} is zero on side {label}: no ratio")
    if when == "block" and order.ran_first(a, b) == "b":
        groups_a, groups_b = groups_a[::-1], groups_b[::-1]  # A then B, with time running backwards
    return judge(
        groups_a,
        groups_b,
        order=when,
        lead=order.find_lead(a, b) if when == "paired" else 1.0,
        noise_floor_frac=floor,
        assumed_floor_frac=ASSUMED_FLOOR_FRAC if metric.unit == "ms" else 0.0,
        higher_is_better=metric.higher_is_better,
    )


def _missing(reason: str) -> Judgement:
    return Judgement(
        verdict="not_enough_samples",
        reason=reason,
        next_step="run the side that lacks it, with 5 repeats",
        ratio=None,
        ci95=None,
        p_value=None,
        median_a=None,
        median_b=None,
    )


def _why_missing(label: str, views: Sequence[RunView], metric: metrics.Metric) -> str:
    for view in views:
        if view.run.status == "oom":
            return f"side {label} ran out of memory: no {metric.name}"
        if view.run.status in LOST:
            return f"side {label} {view.run.status}: no {metric.name}"
    return f"side {label} has no {metric.name} (for latency: no clean pass)"


def _noise_floor(a: Sequence[RunView], b: Sequence[RunView]) -> float | None:
    """Return the largest known floor of the GPUs involved: the noisier one decides."""
    known = [v.noise_floor_frac for v in (*a, *b) if v.noise_floor_frac is not None]
    return max(known) if known else None


def _marks(a: list[np.ndarray], b: list[np.ndarray], when: Order) -> tuple[Mark, ...]:
    marks = (*find_marks(a, "A"), *find_marks(b, "B"))
    if when == "block" and min(len(a), len(b)) > 1:
        text = (
            "all of one side ran before the other: drift of the machine is part of the difference"
        )
        marks = (*marks, Mark(code="block_order", side="A, B", message=text, count=1))
    return marks
