"""The check that a CI job runs: is this a real regression above the limit?"""

from analysis.compare.records import Comparison


def gate(comparison: Comparison, fail_above_pct: float) -> tuple[bool, str]:
    """Return (is_regression, reason). Only a significant change for the worse above the limit.

    fail_above_pct: allowed worsening of the metric in percent; for a metric where higher is
    better, the worsening of 1 / ratio. Not comparable or too few samples is never a regression.
    """
    shown = f"{comparison.metric}: {comparison.verdict}"
    if comparison.verdict != "slower" or comparison.ratio is None:
        return False, f"{shown}. {comparison.reason}"
    ratio = 1 / comparison.ratio if comparison.higher_is_better else comparison.ratio
    worse_pct = 100 * (ratio - 1)
    if worse_pct <= fail_above_pct:
        return False, f"{shown} by {worse_pct:.2f} %, within the limit of {fail_above_pct:g} %"
    excess = f"{shown} by {worse_pct:.2f} %, above the limit of {fail_above_pct:g} %"
    return True, f"{excess}. {comparison.reason}"
