"""Is B different from A? One estimator gives the ratio, its interval and the test.

Samples of one process share its memory layout, clocks and neighbours, so they are not independent:
on our own H100 the medians of six processes of one job differed by up to 2.2 times, with a spread
inside a process of 4 to 23 %. A sample-by-sample test calls almost every such pair different.
Kalibera and Jones ("Rigorous benchmarking in reasonable time", ISMM 2013) show that the highest
level that was repeated is the one whose variance decides. So the process is the unit.

The estimate. The latency of a side is the median of all its samples, the same that a run's page
and the list of runs show; the ratio is that of the two. Its error is that of the difference of the
process medians in logarithms (effects are ratios): Student's t, with Welch's degrees of freedom
where spreads may differ. Where the two kinds of centre disagree by more than half that error (a
machine with two states, one far process), the rest of their distance is added to it: what one of
them claims the other does not bear out; so is the step of the timer. The interval lies around the
ratio itself, on a logarithmic scale. `bench/verdicts.py` prints its coverage beside that of a
hierarchical bootstrap, which is too short for few processes.

The test is the same t. A permutation or rank test assumes least, but from 5 v 5 processes it has
only 252 arrangements: the 1 % level is met by complete separation alone (p = 2 / 252), which finds
a 3 % change under 1 % noise in about 72 % of cases. The t test reaches the wanted power and keeps
its level under heavy tails (it then errs on the safe side). It is exposed to two things, and each
has a guard:

* spreads that differ between the sides: Welch's form is used beside the pooled one when the
  numbers of processes differ, with up to 4 per side, where one side took many more samples a
  process, or where an F test at 5 % sees different variances (the larger p counts);
* machines with two states (a slow and a fast process): a rank condition (Mann-Whitney p at most
  3.5 %) must hold too, where no measured noise floor says how far such states lie apart.

Pairs. When at least 8 A/B pairs ran in turn, ratio and interval are those of the mean over pairs
(log process medians): that removes slow drift of the machine, and the one step of drift between the
two of a pair, estimated from the pair means, is taken off. With fewer pairs, the lost degrees of
freedom cost more than drift does, and the unpaired form only becomes cautious under drift. When all
of A ran before all of B, drift and change cannot be told apart by a t test: the change must then
survive a straight-line trend fitted to both blocks, or be larger than any drift. Files do not say
in which order they were made; where both sides drift the same way, the change must survive the
trend of either order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

ALPHA = 0.009
"""Level with 5 to 7 processes per side, just under 1 %: there, power is what is scarce."""
STRICT_ALPHA = 0.004
"""Level with fewer processes (a guess at the spread from few is easily too small) or more."""
NOISY_FRAC = 0.03
WANDERING = 0.3
"""Correlation of neighbouring samples from which a process wanders or switches between states: its
median then depends on a few moves, and medians fall into groups like those of a noisy machine."""
RANK_ALPHA = 0.035
VARIANCE_ALPHA = 0.05
TREND_ALPHA, FEW_TREND_ALPHA = 0.02, 0.004
"""From which p a drift inside the sides is suspected: power is scarce below MIN_PAIRS."""
MIN_PROCESSES = 4
MIN_PAIRS = 8
MAX_DRIFT_FRAC = 0.02
"""The most that a machine drifts from one process to the next; what is larger is not a drift."""
UNLIKE_SAMPLES = 2.0
"""With this many times the samples, medians of one side are clearly more precise."""
NUM_RESAMPLES = 1000

Order = Literal["unknown", "paired", "block"]
Array = np.ndarray
Groups = Sequence[Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The ratio of two sides in logarithms, with its error and the test of ratio 1."""

    log_ratio: float
    error: float
    freedom: float
    "Degrees of freedom of the error."
    p_value: float
    level: float
    "p below which a difference is called, for these processes."
    kind: str
    "pooled, welch or paired."
    is_separated: bool
    "The rank condition: hardly any process of one side lies among those of the other."
    may_be_drift: bool
    "A steady drift of the machine would explain the difference as well."

    @property
    def is_significant(self) -> bool:
        return self.p_value < self.level and self.is_separated and not self.may_be_drift

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval of the ratio (not its logarithm)."""
        from scipy import special

        half = float(special.stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return math.exp(self.log_ratio - half), math.exp(self.log_ratio + half)


def centre(groups: Groups) -> float:
    """Return the latency of a side: the median of all samples of its processes."""
    return float(np.median(np.concatenate(list(groups))))


def estimate(a: Groups, b: Groups, order: Order = "unknown", lead: float = 1.0) -> Estimate:
    """Estimate B / A from the positive samples of each process, in the order in which they ran.

    `paired`: a[i] and b[i] ran next to each other; `lead` is the share of pairs in which A ran
    first minus the share in which B did. `block`: all of A ran before all of B (both reversed where
    B was first: the trend fit only needs time to run one way). ValueError under two processes a
    side.
    """
    if min(len(a), len(b)) < 2:
        raise ValueError("a test needs at least two processes per side")
    log_a, log_b = (np.log([np.median(group) for group in side]) for side in (a, b))
    log_ratio = math.log(centre(b) / centre(a))
    gap = abs(log_ratio - float(log_b.mean() - log_a.mean()))
    step = _timer_step(a, b) / math.sqrt(12) * math.sqrt(1 / len(a) + 1 / len(b))
    if order == "paired" and len(a) == len(b) >= MIN_PAIRS:
        return _paired(log_a, log_b, lead)
    sizes = sorted(float(np.median([len(g) for g in side])) for side in (a, b))
    is_alike = sizes[1] < UNLIKE_SAMPLES * sizes[0]
    candidates = [
        (kind, math.hypot(error, max(0.0, gap - error / 2), step), freedom)
        for kind, error, freedom in _candidates(log_a, log_b, may_spread_alike=is_alike)
    ]
    kind, error, freedom = max(candidates, key=lambda c: _p(log_ratio, c[1], c[2]))
    p_value = _p(log_ratio, error, freedom)
    is_small = p_value < 0.05  # else neither guard is asked
    return Estimate(
        log_ratio=log_ratio,
        error=error,
        freedom=freedom,
        p_value=p_value,
        level=_level(log_a, log_b) if is_alike and not _wander(a, b) else STRICT_ALPHA,
        kind=kind,
        is_separated=not is_small or rank_p_value(log_a, log_b) <= RANK_ALPHA,
        may_be_drift=is_small and _may_be_drift(log_a, log_b, log_ratio, order),
    )


def _timer_step(a: Groups, b: Groups) -> float:
    """Return the step of the timer as a fraction of the time; 0 where no process shows one.

    The smallest distance between two samples of one process. Medians that snap to a coarse step
    are equal without being exact.
    """
    steps = [np.diff(np.unique(group)).min(initial=np.inf) for group in (*a, *b)]
    known = [step for step in steps if np.isfinite(step)]
    return float(min(known)) / min(centre(a), centre(b)) if known else 0.0


def _level(log_a: Array, log_b: Array) -> float:
    """Return the level of the test for these processes; strict on a noisy machine.

    Levels that spread by over 3 % come from machines with states rather than from normal noise.
    """
    n_a, n_b = len(log_a), len(log_b)
    spread = math.sqrt((float(log_a.var(ddof=1)) + float(log_b.var(ddof=1))) / 2)
    is_plain = min(n_a, n_b) >= 5 and max(n_a, n_b) <= 7 and spread <= NOISY_FRAC
    return ALPHA if is_plain else STRICT_ALPHA


def _wander(a: Groups, b: Groups) -> bool:
    """True where neighbouring samples of a process are correlated, over all processes."""
    logs = [np.log(group) for group in (*a, *b)]
    off = [log - log.mean() for log in logs]
    power = sum(float(x @ x) for x in off)
    return power > 0 and sum(float(x[1:] @ x[:-1]) for x in off) > WANDERING * power


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


def _paired(log_a: Array, log_b: Array, lead: float) -> Estimate:
    """Estimate the mean over pairs of the ratio of process medians, the drift step taken off."""
    n = len(log_a)
    step, step_error = _drift_step((log_a + log_b) / 2)
    differences = log_b - log_a - lead * step
    spread = float(differences.std(ddof=1)) / math.sqrt(n)
    error = math.hypot(spread, lead * step_error)
    mean = float(differences.mean())
    num_against = int((np.sign(differences) == -np.sign(mean)).sum())
    return Estimate(
        log_ratio=mean,
        error=error,
        freedom=n - 1,
        p_value=_p(mean, error, n - 1),
        level=STRICT_ALPHA,
        kind="paired",
        is_separated=num_against <= n // 5,
        may_be_drift=False,
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


def _may_be_drift(log_a: Array, log_b: Array, log_ratio: float, order: Order) -> bool:
    """True when one side ran before the other, or may have, and a steady drift would explain it.

    Where the order is not known, only sides that do drift, both the same way, are suspected. A
    difference beyond MAX_DRIFT_FRAC a process is not drift.
    """
    if abs(log_ratio) > MAX_DRIFT_FRAC * (len(log_a) + len(log_b)) / 2:
        return False
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
    """Return the exact two-sided Mann-Whitney p; ties count against a difference."""
    towards_a = -1e-12 if np.median(b) > np.median(a) else 1e-12
    num_won = int((a[:, None] > b + towards_a * (1 + np.abs(b))).sum())
    ways = _ways_to_win(len(a), len(b))
    return min(1.0, 2 * sum(ways[max(num_won, len(a) * len(b) - num_won) :]) / sum(ways))


@cache
def _ways_to_win(num_a: int, num_b: int) -> list[int]:
    """Return for each number of won pairs (0 first) how many orders of all values win so many.

    Mann and Whitney 1947: coefficients of a Gaussian binomial. `scipy.stats` loads for a second.
    """
    ways = [1] + [0] * (num_a * num_b)
    for i in range(1, num_b + 1):
        for won in range(num_a * num_b, num_a + i - 1, -1):
            ways[won] -= ways[won - num_a - i]
        for won in range(i, num_a * num_b + 1):
            ways[won] += ways[won - i]
    return ways


def _p(difference: float, error: float, freedom: float) -> float:
    from scipy import special

    if error == 0.0:
        return 1.0 if difference == 0.0 else 0.0
    return float(2.0 * special.stdtr(freedom, -abs(difference) / error))


def _f_p_value(var_a: float, var_b: float, n_a: int, n_b: int) -> float:
    from scipy import special

    if var_a == 0.0 or var_b == 0.0:
        return 0.0
    below = float(special.fdtr(n_a - 1, n_b - 1, var_a / var_b))
    return 2.0 * min(below, 1.0 - below)


def interval_within_processes(a: Groups, b: Groups) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap of the ratio, resampling inside processes alone.

    It holds the noise inside a process only, so it is too narrow for a verdict: it is what can be
    said when a side has one process. None when a process has fewer than 2 samples. Seeded.
    """
    if min(len(samples) for samples in (*a, *b)) < 2:
        return None
    rng = np.random.default_rng(0)
    ratios = _resampled_centres(b, rng) / _resampled_centres(a, rng)
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


def _resampled_centres(side: Groups, rng: np.random.Generator) -> Array:
    drawn = [rng.choice(samples, size=(NUM_RESAMPLES, len(samples))) for samples in side]
    return np.asarray(np.median(np.concatenate(drawn, axis=1), axis=1))
