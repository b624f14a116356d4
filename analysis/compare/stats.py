"""Is B different from A? A test and an interval in which a process, not a sample, is the unit.

Samples of one process share its memory layout, clocks and neighbours, so they are not independent:
on our own H100 the medians of six processes of one job differed by up to 2.2 times, with a spread
inside a process of 4 to 23 %. A sample-by-sample test calls almost every such pair different.
Kalibera and Jones ("Rigorous benchmarking in reasonable time", ISMM 2013) show that the highest
level that was repeated is the one whose variance decides, and that lower levels enter through
their mean alone. So each process is reduced to the median of its samples (robust against a slow
start and single hiccups, which are marked elsewhere, not dropped), in logarithms because effects
are ratios; what follows works on those n_a + n_b numbers only.

Which test. A permutation or rank test assumes least, but from 5 v 5 processes it has only 252
arrangements: the 1 % level is met by complete separation alone (p = 2 / 252), which finds a 3 %
change under 1 % noise in about 72 % of cases. Resampling five processes (bootstrap, also the
hierarchical one) gives intervals that are too short: `bench/verdicts.py` prints the coverage of
both. The t test on log medians reaches the wanted power and keeps its level under heavy tails
(it then errs on the safe side). It is exposed to two things, and each has a guard:

* spreads that differ between the sides: Welch's form is used beside the pooled one when the
  numbers of processes differ, with 4 a side, where one side took many more samples a process, or
  where an F test at 5 % sees different variances (the larger p counts);
* machines with two states (a slow and a fast process): a rank condition (Mann-Whitney p at most
  3.5 %) must hold too, and below 4 processes a side, where even complete separation happens by
  chance in 3 % of cases, no verdict is given without a known noise floor.

Pairs. When at least 8 A/B pairs ran in turn, the paired form removes slow drift of the machine,
and the one step of drift between the two of a pair, estimated from the pair means, is taken off;
with fewer pairs, the lost degrees of freedom cost more than drift does, and the unpaired form only
becomes cautious under drift. When all of A ran before all of B, drift and change cannot be told
apart by a t test: the change must then survive a straight-line trend fitted to both blocks. Files
do not say in which order they were made; where both sides drift the same way, the change must
survive the trend of either order.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

ALPHA = 0.0095
"""Level with 5 to 7 processes a side, just under 1 %: there, power is what is scarce."""
STRICT_ALPHA = 0.005
"""Level with fewer processes (a guess at the spread from few is easily too small) or more."""
NOISY_FRAC = 0.03
RANK_ALPHA = 0.035
VARIANCE_ALPHA = 0.05
TREND_ALPHA, FEW_TREND_ALPHA = 0.02, 0.004
"""From which p a drift inside the sides is suspected: power is scarce below MIN_PAIRS."""
MIN_PROCESSES = 4
MIN_PAIRS = 8

Order = Literal["unknown", "paired", "block"]
Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """Result on logarithms: `log_ratio` is mean log B - mean log A."""

    log_ratio: float
    ci95_log: tuple[float, float]
    p_value: float
    is_significant: bool
    kind: str
    "pooled, welch or paired."
    blocked_by: str | None
    "Why a small p was not believed: `rank`, `trend`; None otherwise."


def compare_groups(
    log_a: Array,
    log_b: Array,
    order: Order = "unknown",
    lead: float = 1.0,
    *,
    may_spread_alike: bool = True,
) -> Test:
    """Test two sets of log process medians, each in the order in which they ran.

    `paired`: log_a[i] and log_b[i] ran next to each other; `lead` is the share of pairs in which A
    ran first minus the share in which B did. `block`: all of A ran before all of B (both reversed
    where B was first: the trend fit only needs time to run one way). `may_spread_alike`: False
    where medians of one side are known to be more precise. ValueError under two values a side.
    """
    if min(len(log_a), len(log_b)) < 2:
        raise ValueError("a test needs at least two processes a side")
    if order == "paired" and len(log_a) == len(log_b) >= MIN_PAIRS:
        return _paired(log_a, log_b, lead)
    difference = float(log_b.mean() - log_a.mean())
    candidates = _candidates(log_a, log_b, may_spread_alike=may_spread_alike)
    kind, error, freedom = max(candidates, key=lambda c: _p(difference, c[1], c[2]))
    p_value = _p(difference, error, freedom)
    blocked = None
    alpha = level(log_a, log_b) if may_spread_alike else STRICT_ALPHA
    if p_value < alpha:
        if rank_p_value(log_a, log_b) > RANK_ALPHA:
            blocked = "rank"
        elif _may_be_drift(log_a, log_b, order):
            blocked = "trend"
    half = t_quantile(freedom, 0.975) * error
    return Test(
        log_ratio=difference,
        ci95_log=(difference - half, difference + half),
        p_value=p_value,
        is_significant=p_value < alpha and blocked is None,
        kind=kind,
        blocked_by=blocked,
    )


def level(log_a: Array, log_b: Array) -> float:
    """Return the level of the test for these processes; strict on a noisy machine.

    Levels that spread by over 3 % come from machines with states rather than from normal noise.
    """
    n_a, n_b = len(log_a), len(log_b)
    spread = math.sqrt((float(log_a.var(ddof=1)) + float(log_b.var(ddof=1))) / 2)
    is_plain = min(n_a, n_b) >= 5 and max(n_a, n_b) <= 7 and spread <= NOISY_FRAC
    return ALPHA if is_plain else STRICT_ALPHA


def _candidates(
    log_a: Array, log_b: Array, *, may_spread_alike: bool
) -> list[tuple[str, float, float]]:
    """Return (kind, standard error, degrees of freedom) of the forms that apply."""
    n_a, n_b = len(log_a), len(log_b)
    var_a, var_b = float(log_a.var(ddof=1)), float(log_b.var(ddof=1))
    pooled_var = ((n_a - 1) * var_a + (n_b - 1) * var_b) / (n_a + n_b - 2)
    pooled = ("pooled", math.sqrt(pooled_var * (1 / n_a + 1 / n_b)), float(n_a + n_b - 2))
    mean_a, mean_b = var_a / n_a, var_b / n_b
    total = mean_a + mean_b
    is_alike = may_spread_alike and n_a == n_b > MIN_PROCESSES
    is_alike = is_alike and _f_p_value(var_a, var_b, n_a, n_b) >= VARIANCE_ALPHA
    if total == 0.0 or is_alike:
        return [pooled]
    freedom = total**2 / (mean_a**2 / (n_a - 1) + mean_b**2 / (n_b - 1))
    return [pooled, ("welch", math.sqrt(total), freedom)]


def _paired(log_a: Array, log_b: Array, lead: float) -> Test:
    n = len(log_a)
    step, step_error = _drift_step((log_a + log_b) / 2)
    differences = log_b - log_a - lead * step
    mean = float(differences.mean())
    error = math.hypot(float(differences.std(ddof=1)) / math.sqrt(n), lead * step_error)
    p_value = _p(mean, error, n - 1)
    num_against = int((np.sign(differences) == -np.sign(mean)).sum())
    blocked = "rank" if p_value < STRICT_ALPHA and num_against > n // 5 else None
    half = t_quantile(n - 1, 0.975) * error
    return Test(
        log_ratio=mean,
        ci95_log=(mean - half, mean + half),
        p_value=p_value,
        is_significant=p_value < STRICT_ALPHA and blocked is None,
        kind="paired",
        blocked_by=blocked,
    )


def _drift_step(pair_means: Array) -> tuple[float, float]:
    """Return the drift from one process to the next (half a pair) and its standard error."""
    n = len(pair_means)
    position = np.arange(n) - (n - 1) / 2
    norm = float(position @ position)
    slope = float(position @ pair_means) / norm
    residual = pair_means - pair_means.mean() - slope * position
    error = math.sqrt(float(residual @ residual) / (n - 2) / norm)
    return slope / 2, error / 2


def _may_be_drift(log_a: Array, log_b: Array, order: Order) -> bool:
    """True when one side ran before the other, or may have, and a steady drift would explain it.

    Where the order is not known, only sides that do drift, both the same way, are suspected.
    """
    if order == "block":
        return not _survives_trend(log_a, log_b)
    suspect = TREND_ALPHA if min(len(log_a), len(log_b)) >= MIN_PAIRS else FEW_TREND_ALPHA
    if order == "paired" or _trend_p_value(log_a, log_b) >= suspect:
        return False
    backwards = _survives_trend(log_a[::-1], log_b[::-1])
    return not (_survives_trend(log_a, log_b) and backwards)


def _trend_p_value(log_a: Array, log_b: Array) -> float:
    """Return the p of one slope over the place in its side, common to both sides."""
    place = np.concatenate([np.arange(len(s)) - (len(s) - 1) / 2 for s in (log_a, log_b)])
    level = np.concatenate([s - s.mean() for s in (log_a, log_b)])
    norm = float(place @ place)
    slope = float(place @ level) / norm
    residual = level - slope * place
    freedom = len(level) - 3
    error = math.sqrt(float(residual @ residual) / freedom / norm)
    return _p(slope, error, freedom)


def _survives_trend(log_a: Array, log_b: Array) -> bool:
    """Fit level + side + position in time by least squares: is `side` still significant?"""
    y = np.concatenate([log_a, log_b])
    side = np.concatenate([np.zeros(len(log_a)), np.ones(len(log_b))])
    design = np.column_stack([np.ones(len(y)), side, np.arange(len(y), dtype=float)])
    beta, _, _, _ = np.linalg.lstsq(design, y, rcond=None)
    freedom = len(y) - 3
    residual = y - design @ beta
    variance = float(residual @ residual) / freedom
    error = math.sqrt(variance * float(np.linalg.inv(design.T @ design)[1, 1]))
    agrees = beta[1] * (log_b.mean() - log_a.mean()) > 0
    return bool(agrees) and _p(float(beta[1]), error, freedom) < ALPHA


def rank_p_value(a: Array, b: Array) -> float:
    """Return the exact two-sided Mann-Whitney p (ties count half, rounded against a finding)."""
    n_a, n_b = len(a), len(b)
    wins = float((b[:, None] > a[None, :]).sum() + 0.5 * (b[:, None] == a[None, :]).sum())
    smaller = math.ceil(min(wins, n_a * n_b - wins))
    counts = _rank_counts(n_a, n_b)
    return min(1.0, 2.0 * sum(counts[: smaller + 1]) / math.comb(n_a + n_b, n_a))


def _rank_counts(n_a: int, n_b: int) -> list[int]:
    """Count arrangements for each U: coefficients of the Gaussian binomial (n_a + n_b over n_a)."""
    size = n_a * n_b + 1
    counts = [1] + [0] * (size - 1)
    for k in range(1, n_a + 1):
        for i in range(size - 1, n_b + k - 1, -1):
            counts[i] -= counts[i - n_b - k]
        for i in range(k, size):
            counts[i] += counts[i - k]
    return counts


def _p(difference: float, error: float, freedom: float) -> float:
    from scipy import special

    if error == 0.0:
        return 1.0 if difference == 0.0 else 0.0
    return float(2.0 * special.stdtr(freedom, -abs(difference) / error))


def t_quantile(freedom: float, probability: float) -> float:
    """Return the quantile of Student's t distribution."""
    from scipy import special

    return float(special.stdtrit(freedom, probability))


def _f_p_value(var_a: float, var_b: float, n_a: int, n_b: int) -> float:
    from scipy import special

    if var_a == 0.0 or var_b == 0.0:
        return 0.0
    below = float(special.fdtr(n_a - 1, n_b - 1, var_a / var_b))
    return 2.0 * min(below, 1.0 - below)
