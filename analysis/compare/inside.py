"""What one process a side can say: an interval of the noise inside it, and no verdict."""

import numpy as np

NUM_RESAMPLES = 1000
Array = np.ndarray


def interval_inside(a: list[Array], b: list[Array]) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap of the ratio of medians, resampling inside processes.

    It holds the noise inside a process only, so it is too narrow for a verdict: it is what can be
    said when a side has one process. None when a process has fewer than 2 samples. Seeded.
    """
    if min(len(samples) for samples in (*a, *b)) < 2:
        return None
    rng = np.random.default_rng(0)
    ratios = _resampled_medians(b, rng) / _resampled_medians(a, rng)
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


def _resampled_medians(side: list[Array], rng: np.random.Generator) -> Array:
    medians = [
        np.median(rng.choice(samples, size=(NUM_RESAMPLES, len(samples))), axis=1)
        for samples in side
    ]
    return np.asarray(np.median(np.stack(medians), axis=0))
