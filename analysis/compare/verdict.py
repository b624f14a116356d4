"""From groups of samples to a word, a reason and what to do next."""

import math
from dataclasses import dataclass

import numpy as np

from analysis.compare.inside import interval_inside
from analysis.compare.records import IntervalBasis, Verdict
from analysis.compare.stats import (
    MIN_PROCESSES,
    STRICT_ALPHA,
    Order,
    Test,
    compare_groups,
)

ASSUMED_FLOOR_FRAC = 0.015
"""Smallest change that is called while the GPU's own noise floor is not measured.

A spread from few processes is at times far too small by chance; most false alarms of the test are
such small, seemingly steady changes. Peers call a spread under 2 % stable and report 4 % from day
to day, so little is lost, and halving the false alarms pays for the power at 5 processes.
"""
WIDE_FRAC = 0.05
"""With an interval wider than this to either side, "no difference" would promise too much."""
SINGLE_FACTOR = 3.0
"""With one process a side, this many noise floors are needed; with 2 or 3, FEW_FACTOR."""
FEW_FACTOR = 2.0
UNLIKE_SAMPLES = 2.0
"""With so many times the samples, medians of one side are clearly more precise."""
INTERLEAVE = "run {n} more process pairs interleaved (A B A B)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict on B against A with its numbers."""

    verdict: Verdict
    reason: str
    next_step: str | None
    ratio: float | None
    ci95: tuple[float, float] | None
    ci95_basis: IntervalBasis | None
    p_value: float | None
    median_a: float | None
    median_b: float | None


def judge(
    a: list[np.ndarray],
    b: list[np.ndarray],
    *,
    order: Order = "unknown",
    lead: float = 1.0,
    noise_floor_frac: float | None = None,
    assumed_floor_frac: float = ASSUMED_FLOOR_FRAC,
    higher_is_better: bool = False,
    device: str = "GPU",
) -> Judgement:
    """Judge B against A; each array holds the positive samples of one independent process.

    The ratio is that of the medians over processes of process medians. The 95 % interval is the
    t interval of the mean log ratio (see `stats`), widened where it would not hold that ratio;
    with one process on a side, that of the samples inside it, and never the base of a verdict.
    order and lead: see `stats.compare_groups`. assumed_floor_frac counts where no floor is known;
    0 for a metric without timing noise. device: what reasons call the machine.
    """
    medians_a, medians_b = (np.array([np.median(g) for g in side]) for side in (a, b))
    test = None
    if min(len(a), len(b)) >= 2:
        sizes = sorted(float(np.median([len(g) for g in side])) for side in (a, b))
        test = compare_groups(
            np.log(medians_a),
            np.log(medians_b),
            order,
            lead,
            may_spread_alike=sizes[1] < UNLIKE_SAMPLES * sizes[0],
        )
    numbers = _Numbers.of(medians_a, medians_b, test, noise_floor_frac, assumed_floor_frac, device)
    word, reason, next_step = _decide(numbers)
    ci95, basis = numbers.ci95, "processes"
    if ci95 is None:
        ci95, basis = interval_inside(a, b), "samples"
    if word == "changed":
        worse = (numbers.ratio > 1) != higher_is_better
        word = "slower" if worse else "faster"
    return Judgement(
        verdict=word,  # type: ignore[arg-type]
        reason=reason,
        next_step=next_step,
        ratio=numbers.ratio,
        ci95=ci95,
        ci95_basis=basis if ci95 else None,  # type: ignore[arg-type]
        p_value=numbers.test.p_value if numbers.test else None,
        median_a=float(np.median(medians_a)),
        median_b=float(np.median(medians_b)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    n_a: int
    n_b: int
    ratio: float
    floor: float | None
    assumed_floor: float
    test: Test | None
    ci95: tuple[float, float] | None
    spread_frac: float | None
    device: str

    @classmethod
    def of(
        cls,
        a: np.ndarray,
        b: np.ndarray,
        test: Test | None,
        floor: float | None,
        assumed_floor: float,
        device: str,
    ) -> "_Numbers":
        ratio = float(np.median(b) / np.median(a))
        ci95 = spread = None
        if test:
            low, high = (math.exp(x) for x in test.ci95_log)
            ci95 = (min(low, ratio), max(high, ratio))
            spread = math.sqrt((np.log(a).var(ddof=1) + np.log(b).var(ddof=1)) / 2)
        return cls(
            n_a=len(a),
            n_b=len(b),
            ratio=ratio,
            floor=floor,
            assumed_floor=assumed_floor,
            test=test,
            ci95=ci95,
            spread_frac=spread,
            device=device,
        )

    @property
    def effect(self) -> float:
        return abs(math.log(self.ratio))

    @property
    def is_within_assumed_floor(self) -> bool:
        if self.floor is not None or self.test is None:
            return False
        return abs(self.test.log_ratio) <= math.log1p(self.assumed_floor)

    @property
    def is_within_floor(self) -> bool:
        return self.floor is not None and self.effect <= math.log1p(self.floor)


def _decide(n: _Numbers) -> tuple[str, str, str | None]:
    if n.is_within_floor:
        return (
            "no_difference",
            f"{_change(n.ratio)} is within the noise floor of this {n.device} ({n.floor:.1%}: "
            "the same build against itself)",
            None,
        )
    if min(n.n_a, n.n_b) < MIN_PROCESSES:
        return _decide_few(n)
    assert n.test is not None
    if n.test.is_significant and n.is_within_assumed_floor:
        return (
            "no_difference",
            f"{_change(n.ratio)} is steady but under {n.assumed_floor:.1%}, the least that is "
            f"called on a {n.device} whose noise floor has not been measured",
            f"measure the noise floor of this {n.device} to call smaller changes",
        )
    if n.test.is_significant and (n.test.log_ratio > 0) == (n.ratio > 1):
        return "changed", _significant_reason(n), None
    if n.test.blocked_by == "trend":
        return (
            "not_enough_samples",
            f"{_change(n.ratio)}, but all of one side ran before the other, and a drift of the "
            "machine over the session would explain it",
            INTERLEAVE.format(n=max(5, n.n_a)),
        )
    return _decide_unclear(n)


def _decide_unclear(n: _Numbers) -> tuple[str, str, str | None]:
    """Tell "no difference" from "cannot tell" by what the interval rules out."""
    assert n.ci95 is not None
    seen = max(n.ci95[1] - 1, 1 - n.ci95[0])
    if seen <= max(WIDE_FRAC, 2 * (n.floor or 0.0)):
        return (
            "no_difference",
            f"{_change(n.ratio)} is no more than processes of one build differ (p {_p(n)}); "
            f"a change beyond {seen:.1%} is ruled out at 95 %",
            None,
        )
    return (
        "not_enough_samples",
        f"too noisy: processes differ by {n.spread_frac:.1%}, so the interval "
        f"{_interval(n)} decides nothing",
        INTERLEAVE.format(n=_needed_pairs(n)),
    )


def _decide_few(n: _Numbers) -> tuple[str, str, str | None]:
    """One to three processes on a side: only a known noise floor can carry a verdict."""
    fewest = min(n.n_a, n.n_b)
    count = f"{n.n_a} against {n.n_b} process{'es' if max(n.n_a, n.n_b) > 1 else ''}"
    more = INTERLEAVE.format(n=5)
    if n.floor is None:
        return (
            "not_enough_samples",
            f"not enough repeats: {count}, and the noise floor of this {n.device} is not known",
            more,
        )
    factor = SINGLE_FACTOR if fewest == 1 else FEW_FACTOR
    is_far = n.effect > factor * math.log1p(n.floor)
    if is_far and (n.test is None or n.test.p_value < STRICT_ALPHA):
        return (
            "changed",
            f"{_change(n.ratio)} is over {factor:.0f} times the noise floor of this {n.device} "
            f"({n.floor:.1%}), from {count}",
            None,
        )
    return (
        "not_enough_samples",
        f"not enough repeats: {_change(n.ratio)} from {count} is above the noise floor "
        f"({n.floor:.1%}) but not far enough to be sure",
        more,
    )


def _significant_reason(n: _Numbers) -> str:
    return (
        f"{_change(n.ratio)}, 95 % interval {_interval(n)} over {n.n_a} and {n.n_b} processes "
        f"(p {_p(n)})"
    )


def _needed_pairs(n: _Numbers) -> int:
    """Pairs that would show the present difference (at least 3 %) with 90 % power, at most 50."""
    if not n.spread_frac:
        return 5
    effect = max(n.effect, math.log(1.03))
    wanted = math.ceil(2 * (3.9 * n.spread_frac / effect) ** 2) + 2
    return max(5, min(50, wanted) - min(n.n_a, n.n_b))


def _change(ratio: float) -> str:
    return f"B / A = {ratio:.3f} ({ratio - 1:+.1%})"


def _interval(n: _Numbers) -> str:
    assert n.ci95 is not None
    return f"{n.ci95[0]:.3f} to {n.ci95[1]:.3f}"


def _p(n: _Numbers) -> str:
    assert n.test is not None
    return f"{n.test.p_value:.3f}" if n.test.p_value >= 0.001 else "< 0.001"
