"""A memory curve of fewer points that still shows every peak: the one rule for what is left out."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

STORED_POINTS = 5_000
"""Points of a curve that are kept of one capture and device."""


def rows_to_keep(columns: Sequence[Any], most: int) -> np.ndarray:
    """Return the rows of a curve to keep, in order: all, or at most `most` of them.

    First and last, and of each stretch the lowest and the highest of every column. `columns`:
    equally long numbers; NaN where unknown.
    """
    size = len(columns[0])
    if size <= most:
        return np.arange(size)
    num_stretches = max((most - 2) // (2 * len(columns)), 1)
    edges = np.linspace(0, size, num_stretches + 1).astype(int)
    kept = {0, size - 1}
    for column in columns:
        values = np.asarray(column, np.float64)
        low, high = np.nan_to_num(values, nan=np.inf), np.nan_to_num(values, nan=-np.inf)
        for start, end in pairwise(edges.tolist()):
            kept |= {start + int(low[start:end].argmin()), start + int(high[start:end].argmax())}
    return np.array(sorted(kept))
