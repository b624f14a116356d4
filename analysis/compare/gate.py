"""The check that a CI job runs: is this a real regression above the limit?"""

from analysis.compare.records import Comparison, Pair


def gate(comparison: Comparison, fail_above_pct: float) -> tuple[bool, str]:
    """Return (is_regression, reason). Only a significant change for the worse above the limit.

    fail_above_pct: allowed worsening of the metric in percent; for a metric where higher is
    better, the worsening of 1 / ratio. Not comparable or too few samples is never a regression.
    Where a side holds several measurements, one of them that got worse is enough.
    """
    checked: list[tuple[str, Comparison | Pair]] = [(comparison.metric, comparison)]
    if comparison.pairs:
        checked = [(f"{comparison.metric} of {pair.b.label}", pair) for pair in comparison.pairs]
    found = [
        _check(name, what, fail_above_pct, higher_is_better=comparison.higher_is_better)
        for name, what in checked
    ]
    worse = [reason for is_regression, reason in found if is_regression]
    return bool(worse), "\n".join(worse or [reason for _, reason in found])


def _check(
    name: str, what: Comparison | Pair, limit_pct: float, *, higher_is_better: bool
) -> tuple[bool, str]:
    shown = f"{name}: {what.verdict}"
    if what.verdict != "slower" or what.ratio is None:
        return False, f"{shown}. {what.reason}"
    ratio = 1 / what.ratio if higher_is_better else what.ratio
    worse_pct = 100 * (ratio - 1)
    if worse_pct <= limit_pct:
        return False, f"{shown} by {worse_pct:.2f} %, within the limit of {limit_pct:g} %"
    return True, f"{shown} by {worse_pct:.2f} %, above the limit of {limit_pct:g} %. {what.reason}"
