"""The check that a CI job runs: is this a real regression above the limit?"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from analysis.compare.records import Comparison, Pair
from core.numbers import decimal

UNDECIDED = frozenset({"not_enough_samples", "not_comparable"})


class GateAnswer(StrEnum):
    PASSED = "passed"
    REGRESSION = "regression"
    UNDECIDED = "undecided"
    "Too few or too noisy samples, or sides that are not comparable."

    @classmethod
    def worst(cls, answers: "Iterable[GateAnswer]") -> "GateAnswer":
        """Return the answer that counts of several."""
        return max(answers, key=[cls.PASSED, cls.UNDECIDED, cls.REGRESSION].index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What the check found, and why."""

    answer: GateAnswer
    reason: str


def gate(comparison: Comparison, fail_above_pct: float) -> Gate:
    """Return whether B is really worse than A by more than the limit.

    fail_above_pct: allowed worsening of the metric in percent; for a metric where higher is
    better, the worsening of 1 / ratio. Where a side holds several measurements, one of them that
    got worse is enough; else one that cannot be decided leaves the check undecided.
    """
    checked: list[tuple[str, Comparison | Pair]] = [(comparison.metric, comparison)]
    if comparison.pairs:
        checked = [(f"{comparison.metric} of {pair.b.label}", pair) for pair in comparison.pairs]
    answers = [
        _check(name, measured, fail_above_pct, higher_is_better=comparison.higher_is_better)
        for name, measured in checked
    ]
    worst = GateAnswer.worst(a.answer for a in answers)
    return Gate(answer=worst, reason="\n".join(a.reason for a in answers if a.answer == worst))


def _check(
    name: str, measured: Comparison | Pair, limit_pct: float, *, higher_is_better: bool
) -> Gate:
    shown = f"{name}: {measured.verdict}"
    if measured.verdict in UNDECIDED:
        reason = f"could not decide: {shown}. {measured.reason}"
        return Gate(answer=GateAnswer.UNDECIDED, reason=reason)
    if measured.verdict != "slower" or measured.ratio is None:
        return Gate(answer=GateAnswer.PASSED, reason=f"{shown}. {measured.reason}")
    ratio = 1 / measured.ratio if higher_is_better else measured.ratio
    worse_pct = 100 * (ratio - 1)
    by = f"{shown} by {worse_pct:.2f} %"
    if worse_pct <= limit_pct:
        reason = f"{by}, within the limit of {decimal(limit_pct, 6)} %"
        return Gate(answer=GateAnswer.PASSED, reason=reason)
    reason = f"{by}, above the limit of {decimal(limit_pct, 6)} %. {measured.reason}"
    return Gate(answer=GateAnswer.REGRESSION, reason=reason)
