"""From groups of samples to a verdict, its reason and the next step.

The rule. A difference is called when

* the 95 % interval of the ratio lies wholly beyond the measured noise floor, from 2 processes a
  side on; or
* the test of `statistics` calls it at its level (about 1 %) and the ratio lies beyond the floor,
  from 4 processes per side on. Where no floor was measured, ASSUMED_FLOOR_FRAC stands for it;
* without a measured floor, the interval is wholly beyond FEW_FLOOR_FRAC, from 2 processes per side
  on: processes of one build differ by that much on machines with several states.

One process per side is never a verdict. So more of the same data never weakens one.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis.compare.records import IntervalBasis, Verdict
from analysis.compare.statistics import (
    MIN_PROCESSES,
    Estimate,
    Groups,
    Order,
    centre,
    estimate,
    interval_within_processes,
)
from core.numbers import decimal

ASSUMED_FLOOR_FRAC = 0.015
"""Smallest change that is called while the GPU's own noise floor is not measured.

A spread from few processes is at times far too small by chance; most false alarms of the test are
such small, seemingly steady changes. Peers call a spread under 2 % stable and report 4 % from day
to day, so little is lost, and halving the false alarms pays for the power at 5 processes.
"""
FEW_FLOOR_FRAC = 1.0
"""What the interval must lie beyond without a measured floor: a factor of 2.

So far apart were equal processes of one launch-bound build. And on a machine with two states two
equal pairs fall apart, each pair within a hair, once in nine times: no test sees that from so few.
"""
FEW_MARGIN = 1.1
"""With 2 or 3 processes per side, by this much more than the floor, which is itself the range of
six processes, and two states of a machine lie just as far apart as that says."""
WIDE_FRAC = 0.05
"""With an interval wider than this to either side, "no difference" would promise too much."""
INTERLEAVE = "run {n} more process pairs interleaved (A B A B)"


def pairs_asked(next_step: str | None) -> int | None:
    """Return how many pairs a judgement's next step asks for; None where it is another step."""
    head, tail = INTERLEAVE.split("{n}")
    text = next_step or ""
    number = text.removeprefix(head).removesuffix(tail)
    return int(number) if text.startswith(head) and number.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on B against A with its numbers."""

    verdict: Verdict
    reason: str
    next_step: str | None
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    ci95_basis: IntervalBasis | None = None
    p_value: float | None = None


def judge(
    a: Groups,
    b: Groups,
    *,
    order: Order = "unknown",
    lead: float = 1.0,
    noise_floor_frac: float | None = None,
    assumed_floor_frac: float = ASSUMED_FLOOR_FRAC,
    higher_is_better: bool = False,
    device: str = "GPU",
) -> Judgement:
    """Judge B against A; each array holds the positive samples of one independent process.

    Ratio, interval and p come from one estimate (see `statistics`); with one process on a side the
    interval is that of the samples inside it, and never the base of a verdict. order and lead: see
    `statistics.estimate`. assumed_floor_frac counts where no floor is known; 0 for a metric without
    timing noise. device: what reasons call the machine.
    """
    estimated = estimate(a, b, order, lead) if min(len(a), len(b)) >= 2 else None
    ratio = math.exp(estimated.log_ratio) if estimated else centre(b) / centre(a)
    ci95 = estimated.interval() if estimated else interval_within_processes(a, b)
    case = _Case(
        n_a=len(a),
        n_b=len(b),
        ratio=ratio,
        floor=noise_floor_frac,
        assumed_floor=assumed_floor_frac,
        estimate=estimated,
        spread_frac=_spread(a, b) if estimated else None,
        device=device,
    )
    word, reason, next_step = _decide(case)
    if word == "changed":
        word = "slower" if (ratio > 1) != higher_is_better else "faster"
    return Judgement(
        verdict=word,  # type: ignore[arg-type]
        reason=reason,
        next_step=next_step,
        ratio=ratio,
        ci95=ci95,
        ci95_basis=("processes" if estimated else "samples") if ci95 else None,
        p_value=estimated.p_value if estimated else None,
    )


def _largest_ratio(floor_frac: float) -> float:
    """Return how far apart equal processes may lie, as a ratio, by a measured floor.

    The floor is a range over a median, which may be its upper end: (max - min) / max = floor is
    max / min = 1 / (1 - floor).
    """
    share = FEW_MARGIN * floor_frac
    return 1 / (1 - share) if share < 1 else math.inf


def _spread(a: Groups, b: Groups) -> float:
    """Return the standard deviation between the processes of a side, as a fraction."""
    variances = [np.log([np.median(g) for g in side]).var(ddof=1) for side in (a, b)]
    return math.sqrt(float(np.mean(variances)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    n_a: int
    n_b: int
    ratio: float
    floor: float | None
    assumed_floor: float
    estimate: Estimate | None
    spread_frac: float | None
    device: str

    @property
    def is_few(self) -> bool:
        return min(self.n_a, self.n_b) < MIN_PROCESSES

    @property
    def least(self) -> float:
        """The smallest change that counts: the measured noise floor, else the default."""
        return self.assumed_floor if self.floor is None else self.floor

    @property
    def sure(self) -> float:
        """The interval alone decides beyond this."""
        if self.floor is not None:
            return _largest_ratio(self.floor) - 1 if self.is_few else self.floor
        return FEW_FLOOR_FRAC if self.assumed_floor else 0.0

    def is_within(self, frac: float) -> bool:
        return abs(math.log(self.ratio)) <= math.log1p(frac)

    @property
    def is_interval_beyond(self) -> bool:
        """The whole 95 % interval lies beyond `sure`, on one side of it."""
        assert self.estimate is not None
        low, high = self.estimate.interval()
        return low > 1 + self.sure or high < 1 / (1 + self.sure)

    @property
    def is_called(self) -> bool:
        """The rule of this module."""
        assert self.estimate is not None
        if self.estimate.may_be_drift:
            return False
        is_tested = not self.is_few and self.estimate.is_significant
        return self.is_interval_beyond or (is_tested and not self.is_within(self.least))


def _decide(case: _Case) -> tuple[str, str, str | None]:
    if case.floor is not None and case.is_within(case.floor):
        return (
            "no_difference",
            f"{_change(case.ratio)} is within the noise floor of this {case.device} "
            f"({case.floor:.1%}: the same build against itself)",
            None,
        )
    if case.estimate is None:
        return _decide_single(case)
    if case.is_called:
        return "changed", _reason_called(case), None
    if case.estimate.may_be_drift and case.estimate.p_value < case.estimate.level:
        return (
            "not_enough_samples",
            f"{_change(case.ratio)}, but all of one side ran before the other, and a drift of the "
            "machine over the session would explain it",
            INTERLEAVE.format(n=max(5, case.n_a)),
        )
    if case.estimate.is_significant and case.is_within(case.assumed_floor):
        return (
            "no_difference",
            f"{_change(case.ratio)} is steady but under {case.assumed_floor:.1%}, the least that "
            f"is called on a {case.device} whose noise floor has not been measured",
            f"measure the noise floor of this {case.device} to call smaller changes",
        )
    return _decide_unclear(case)


def _decide_single(case: _Case) -> tuple[str, str, str | None]:
    """Say why one process on a side is not a verdict: noise between processes is not in it."""
    count = f"{case.n_a} against {case.n_b} process{'es' if max(case.n_a, case.n_b) > 1 else ''}"
    floor = f"the noise floor of this {case.device} is not known"
    if case.floor is not None:
        floor = f"the change is {_floors(case)} the noise floor of this {case.device}"
    return (
        "not_enough_samples",
        f"not enough repeats: {count}, and one does not show how much processes of one build "
        f"differ; {floor}",
        INTERLEAVE.format(n=5),
    )


def _floors(case: _Case) -> str:
    assert case.floor is not None
    if not case.floor:
        return "beyond"
    return f"{abs(math.log(case.ratio)) / math.log1p(case.floor):.1f} times"


def _decide_unclear(case: _Case) -> tuple[str, str, str | None]:
    """Tell "no difference" from "cannot tell" by what the interval rules out."""
    assert case.estimate is not None
    low, high = case.estimate.interval()
    seen = max(high - 1, 1 - low)
    holds_one = low <= 1 <= high
    if seen <= max(WIDE_FRAC, 2 * (case.floor or 0.0)) and (holds_one or case.floor is None):
        why = (
            "is no more than processes of one build differ"
            if holds_one
            else f"is not called where the noise floor of this {case.device} is not known"
        )
        return (
            "no_difference",
            f"{_change(case.ratio)} {why} (p {_p(case)}); a change beyond {seen:.1%} is ruled out "
            "at 95 %",
            None,
        )
    return "not_enough_samples", _reason_unclear(case), INTERLEAVE.format(n=_needed_pairs(case))


def _reason_unclear(case: _Case) -> str:
    """Return the reason that kept a difference from being called, the true one."""
    assert case.estimate is not None
    head = f"{_change(case.ratio)}, 95 % interval {_interval(case)}"
    counts = f"{case.n_a} and {case.n_b} processes"
    low, high = case.estimate.interval()
    if low <= 1 <= high:
        return (
            f"too noisy: {head} over {counts} holds 1; processes differ by {case.spread_frac:.1%}"
        )
    if case.floor is not None:
        return f"{head} over {counts} reaches into the noise floor ({case.floor:.1%})"
    unknown = f"the noise floor of this {case.device} is not known"
    if case.is_few:
        least = f"a change beyond a factor of {decimal(1 + FEW_FLOOR_FRAC, 6)}"
        return (
            f"not enough repeats: {head} over {counts}, and {unknown}: from fewer than "
            f"{MIN_PROCESSES} a side only {least} is called"
        )
    if not case.estimate.is_separated:
        return f"{head}, but processes of the two sides lie among each other, and {unknown}"
    return f"{head}, p {_p(case)}: a call needs {decimal(case.estimate.level, 6)} where {unknown}"


def _reason_called(case: _Case) -> str:
    floor = ""
    if case.floor is not None and case.is_interval_beyond:
        floor = f", wholly beyond the noise floor of this {case.device} ({case.floor:.1%})"
    return (
        f"{_change(case.ratio)}, 95 % interval {_interval(case)} over {case.n_a} and {case.n_b} "
        f"processes (p {_p(case)}){floor}"
    )


def _needed_pairs(case: _Case) -> int:
    """Pairs that would show the present difference (at least 3 %) with 90 % power, at most 50."""
    if not case.spread_frac:
        return 5
    effect = max(abs(math.log(case.ratio)), math.log(1.03))
    wanted = math.ceil(2 * (3.9 * case.spread_frac / effect) ** 2) + 2
    return max(5, min(50, wanted) - min(case.n_a, case.n_b))


def _change(ratio: float) -> str:
    return f"B / A = {ratio:.3f} ({ratio - 1:+.1%})"


def _interval(case: _Case) -> str:
    assert case.estimate is not None
    low, high = case.estimate.interval()
    return f"{low:.3f} to {high:.3f}"


def _p(case: _Case) -> str:
    assert case.estimate is not None
    return f"{case.estimate.p_value:.3f}" if case.estimate.p_value >= 0.001 else "< 0.001"
