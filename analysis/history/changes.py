"""Where the level of a series of measurements moved: change points.

The method is the windowed likelihood-ratio test for a step of unknown size (Willsky and Jones,
1976; Basseville and Nikiforov, "Detection of Abrupt Changes", 1993, chapter 2): after each
measurement, are the last k of them out of line with those before, for any k up to WINDOW? It looks
back only, so what the page shows is what a nightly check said that night.

Everything is in logarithms, since effects are ratios. The level before is the median. The noise is
measured on the history itself: the spread of measurements around the level of their own stretch,
those beyond OUTLIER spreads left out. A step is called when

* Student's t of its mean against that spread is beyond LEVEL, which pays for looking every night
  and at every k;
* it is larger than the noise floor (see `least_frac`): the product's rule that a difference below
  the floor is no difference;
* all k measurements lie on the same side of the level, and outliers as frequent as this history
  has them do not explain it: as many of the k as outliers may well be (BY_OUTLIERS) count only as
  the next one does, CLIP spreads beyond it at most. A few slow nights among ordinary ones are no
  change.

Neighbouring nights that are alike (a positive autocorrelation) make means less certain than their
number says: the error is widened accordingly.

Where nothing can be called, `smallest_seen` gives the step that would be.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from analysis.compare.verdict import ASSUMED_FLOOR_FRAC

Array = np.ndarray

LEVEL = 1e-4
"""Two-sided level of one test. Neighbouring tests share most of their data, so the rate of false
alarms a night is about three times this; `bench.trend` measures it."""
WINDOW = 20
"""Most measurements after a step that are looked at together: a slower drift is not a step."""
MIN_BEFORE = 5
"""Measurements that the first level needs before it can be left."""
MIN_BETWEEN = 2
"""The same of later levels, whose noise is known: a change that is mended soon is two."""
MIN_OWN = 8
"""From this many measurements on, the history's own spread replaces the noise floor."""
NOISE_WINDOW = 60
"""Newest measurements that the spread is taken from."""
OUTLIER = 3.5
BY_OUTLIERS = 2e-3
"""Outliers that are as many among k measurements at most this often are not what moved them."""
MIN_TELLING = 3
"""Fewer measurements far out are never a change of a number with noise."""
CLIP = 2.0
SEEN_WITHIN = 3
"""Measurements after a step within which it should be called."""
ONE_IN_20 = 1.645
"""Standard deviations that a normal value falls short by once in twenty."""
RANGE_OF_SIX = 2.534
"""Expected range of six normal values in standard deviations: a noise floor is such a range."""
_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The level moved between two neighbouring measurements."""

    index: int
    "First measurement at the new level."
    found_index: int
    "Measurement after which it was called."
    ratio: float
    "Level after the step, up to the next one, over the level before."
    spread_frac: float
    "Standard deviation of single measurements around their level."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """What is known before a split: level, spread, and how likely outliers are."""

    level: float
    spread: float
    num_known: int
    "Measurements that the spread is from."
    outlier_frac: float
    "Share of measurements that are outliers, never 0: a short history may not have met one yet."
    widening: float


def find_steps(
    values: Sequence[float], floor_frac: float | None, *, exact: bool = False
) -> list[Step]:
    """Return the steps of a series of positive values in the order of time.

    floor_frac: noise floor of single processes of this kind of work on that GPU; None if it was
    never measured. `exact`: a count or a size without timing noise, of which any change counts.
    """
    logs = np.log(np.asarray(values, dtype=float))
    steps: list[tuple[int, int, float]] = []
    start, noise = 0, np.empty(0)
    stretches: dict[int, _Stretch] = {}
    for last in range(MIN_BEFORE, len(logs)):
        split = _split(logs, start, last, stretches, noise, floor_frac, exact=exact)
        if split is None:
            continue
        split = _place(logs, start, split, last)
        before = _stretch(logs[start:split], noise, exact=exact)
        steps.append((split, last, before.spread))
        noise = np.concatenate([noise, _deviations(logs[start:split])])[-NOISE_WINDOW:]
        start, stretches = split, {}
    return _with_ratios(logs, steps)


def smallest_seen(
    values: Sequence[float],
    steps: Sequence[Step],
    floor_frac: float | None,
    *,
    exact: bool = False,
) -> float | None:
    """Return the smallest step from now on that is called within SEEN_WITHIN measurements.

    In 95 % of cases, by the spread so far. 0 for an exact number; None in too short a history.
    """
    logs = np.log(np.asarray(values, dtype=float))
    edges = [0, *(step.index for step in steps), len(logs)]
    *earlier, present = [logs[a:b] for a, b in pairwise(edges)]
    if len(present) < (MIN_BETWEEN if earlier else MIN_BEFORE):
        return None
    noise = np.concatenate([np.empty(0), *map(_deviations, earlier)])[-NOISE_WINDOW:]
    known = _stretch(present, noise, exact=exact)
    if exact and known.spread == 0.0:
        return 0.0
    least = math.log1p(least_frac(known.spread, known.num_known, floor_frac, exact=exact))
    error = _error(known, len(present), SEEN_WITHIN)
    called = max(least, error * _critical(known.num_known - 1))
    return math.exp(called + ONE_IN_20 * known.spread / math.sqrt(SEEN_WITHIN)) - 1


def least_frac(
    spread: float, num_known: int, floor_frac: float | None, *, exact: bool = False
) -> float:
    """Return the smallest change that is called.

    A GPU's noise floor says how far single processes of a job lie apart. A history of MIN_OWN and
    more measurements, each the median of its processes, shows how far those lie apart, of this
    very job: where that is less, it takes the floor's place, down to ASSUMED_FLOOR_FRAC.
    """
    if exact:
        return 0.0
    own = max(RANGE_OF_SIX * spread, ASSUMED_FLOOR_FRAC)
    if floor_frac is None:
        return own
    return min(own, floor_frac) if num_known >= MIN_OWN else floor_frac


def _split(
    logs: Array,
    start: int,
    last: int,
    stretches: dict[int, _Stretch],
    noise: Array,
    floor_frac: float | None,
    *,
    exact: bool,
) -> int | None:
    """Return where the level moved, as seen after measurement `last`; None where it did not."""
    best, best_score = None, 0.0
    for split in range(last - 1, _first_split(start, last) - 1, -1):
        if split not in stretches:
            stretches[split] = _stretch(logs[start:split], noise, exact=exact)
        before = stretches[split]
        moved = logs[split : last + 1] - before.level
        if moved.min() < 0 < moved.max():
            break  # more measurements would lie on both sides of the level as well
        rank = _telling_rank(len(moved), before.outlier_frac)
        if rank > len(moved):
            continue
        shift = _shift(np.abs(moved), rank, before.spread)
        least = least_frac(before.spread, before.num_known, floor_frac, exact=exact)
        if shift <= math.log1p(least):
            continue
        score = _score(before, split - start, shift, len(moved))
        if score > best_score:
            best, best_score = split, score
    return best


def _first_split(start: int, last: int) -> int:
    return max(start + (MIN_BETWEEN if start else MIN_BEFORE), last + 2 - WINDOW)


def _place(logs: Array, start: int, split: int, last: int) -> int:
    """Return where two levels fit best, near the split that was called."""

    def distance(place: int) -> float:
        before, after = logs[start:place], logs[place : last + 1]
        return float(np.abs(_deviations(before)).sum() + np.abs(_deviations(after)).sum())

    first = _first_split(start, last)
    return min(range(first, last), key=lambda place: (distance(place), abs(place - split)))


@lru_cache(maxsize=4096)
def _telling_rank(count: int, outlier_frac: float) -> int:
    """Return how many of `count` measurements must be far out to be more than outliers.

    count + 1 where even all of them may be. Where there are none (0), all of them are.
    """
    if not outlier_frac:
        return count
    reached = 1.0
    for rank in range(count + 1):
        if reached <= BY_OUTLIERS:
            return max(MIN_TELLING, rank)
        reached -= (
            math.comb(count, rank) * outlier_frac**rank * (1 - outlier_frac) ** (count - rank)
        )
    return count + 1


def _shift(moved: Array, rank: int, spread: float) -> float:
    """Return the mean of distances from the level, those far beyond the rank-th largest clipped."""
    place = len(moved) - rank
    quantile = float(np.partition(moved, place)[place])
    return float(np.minimum(moved, quantile + CLIP * spread).mean())


def _error(before: _Stretch, num_before: int, num_after: int) -> float:
    """Return the standard error of a step between a median before and a mean after it."""
    return before.spread * math.sqrt(1 / num_after + math.pi / 2 / num_before) * before.widening


def _score(before: _Stretch, num_before: int, shift: float, num_after: int) -> float:
    """Return how far Student's t of a step lies beyond what is called; 0 or less is not called."""
    error = _error(before, num_before, num_after)
    if error == 0.0:
        return math.inf
    return shift / error - _critical(before.num_known - 1)


_CRITICAL: dict[int, float] = {}


def _critical(freedom: int) -> float:
    if freedom not in _CRITICAL:
        from scipy import special

        _CRITICAL[freedom] = float(special.stdtrit(freedom, 1 - LEVEL / 2))
    return _CRITICAL[freedom]


def _stretch(logs: Array, noise: Array, *, exact: bool) -> _Stretch:
    deviations = np.concatenate([noise, _deviations(logs)])[-NOISE_WINDOW:]
    scale = _MAD_TO_SIGMA * float(np.median(np.abs(deviations)))
    is_near = np.abs(deviations) <= OUTLIER * scale + 1e-12
    near = deviations[is_near]
    spread = float(np.sqrt((near**2).sum() / max(1, len(near) - 1)))
    num_outliers = int((~is_near).sum())
    is_sure = exact and not num_outliers
    return _Stretch(
        level=float(np.median(logs)),
        spread=spread,
        num_known=len(near),
        outlier_frac=0.0 if is_sure else (num_outliers + 1) / (len(deviations) + 2),
        widening=_widening(deviations),
    )


def _deviations(logs: Array) -> Array:
    return logs - np.median(logs)


def _widening(deviations: Array) -> float:
    """Return the factor by which autocorrelation widens the error of a mean; at least 1."""
    count = len(deviations)
    power = float(deviations @ deviations)
    if count < MIN_OWN or power == 0.0:
        return 1.0
    factor = float(deviations[1:] @ deviations[:-1]) / power
    factor = min(factor + 1 / count, 0.95)  # subtracting the sample's mean biases it down
    return math.sqrt((1 + factor) / (1 - factor)) if factor > 0 else 1.0


def _with_ratios(logs: Array, steps: Sequence[tuple[int, int, float]]) -> list[Step]:
    if not steps:
        return []
    edges = [0, *(split for split, *_ in steps), len(logs)]
    levels = [float(np.median(logs[a:b])) for a, b in pairwise(edges)]
    return [
        Step(
            index=split,
            found_index=last,
            ratio=math.exp(levels[i + 1] - levels[i]),
            spread_frac=spread,
        )
        for i, (split, last, spread) in enumerate(steps)
    ]
