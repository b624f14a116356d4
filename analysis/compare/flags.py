"""What is odd about the samples: marked with a count, never dropped."""

import numpy as np

from analysis.compare.records import Mark
from analysis.compare.statistics import Groups

MIN_FOR_DRIFT = 12
DRIFT_FRAC = 0.03
OUTLIER_SIGMAS = 5.0
SPREAD_FACTOR = 3.0
LEVEL_FRAC = 0.05
SIGMA_PER_MAD = 1.4826  # normal distribution


def find_flags(groups: Groups, side: str) -> tuple[Mark, ...]:
    """Return drift, outliers, noisy_process and trend marks of one side's processes.

    A group is the samples of one process in the order they were taken. Drift: the first and the
    last quarter's medians differ by over 3 % and over three standard errors. Outlier: over five
    robust standard deviations from its process's median. Noisy: a spread three times the others',
    or a level over five robust deviations and 5 % from theirs.
    """
    marks: list[Mark] = []
    if drifts := [d for d in map(_drift_frac, groups) if d is not None]:
        text = (
            f"{len(drifts)} of {len(groups)} processes drift from their first to their last "
            f"quarter, at most {max(drifts, key=abs):+.1%}"
        )
        marks.append(Mark(code="drift", side=side, count=len(drifts), message=text))
    if num_outliers := sum(int(_outliers(g).sum()) for g in groups):
        text = (
            f"{num_outliers} of {sum(map(len, groups))} samples lie over {OUTLIER_SIGMAS:.0f} "
            "robust standard deviations from their process's median; they are kept"
        )
        marks.append(Mark(code="outliers", side=side, count=num_outliers, message=text))
    if noisy := _noisy_processes(groups):
        named = ", ".join(map(str, noisy))
        text = f"process {named} of {len(groups)} differs in level or spread"
        marks.append(Mark(code="noisy_process", side=side, count=len(noisy), message=text))
    return tuple(marks)


def _drift_frac(samples: np.ndarray) -> float | None:
    if len(samples) < MIN_FOR_DRIFT:
        return None
    quarter = len(samples) // 4
    first, last = samples[:quarter], samples[-quarter:]
    level = float(np.median(first))
    change = float(np.median(last)) - level
    sigma = max(_sigma(first), _sigma(last))
    error = 1.2533 * sigma * np.sqrt(2.0 / quarter)  # standard error of two medians
    if level <= 0 or abs(change) <= DRIFT_FRAC * level or abs(change) <= 3 * error:
        return None
    return change / level


def _sigma(samples: np.ndarray) -> float:
    return SIGMA_PER_MAD * float(np.median(np.abs(samples - np.median(samples))))


def _outliers(samples: np.ndarray) -> np.ndarray:
    centre = float(np.median(samples))
    sigma = max(_sigma(samples), 1e-3 * abs(centre))
    return np.abs(samples - centre) > OUTLIER_SIGMAS * sigma


def _noisy_processes(groups: Groups) -> list[int]:
    if len(groups) < 3:
        return []
    medians = np.array([np.median(g) for g in groups])
    spreads = np.array([_sigma(g) / abs(np.median(g)) if np.median(g) else 0.0 for g in groups])
    level, sigma = float(np.median(medians)), _sigma(medians)
    far = np.abs(medians - level) > max(OUTLIER_SIGMAS * sigma, LEVEL_FRAC * abs(level))
    typical = float(np.median(spreads))
    wide = (spreads > SPREAD_FACTOR * typical) & (spreads > 0.02)
    return [int(i) for i in np.flatnonzero(far | wide)]
