"""What the turns of a loop launch, and how alike they are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.trace.launches import LaunchSequence
from analysis.trace.model import Int64s

MIN_ALIKE = 0.9
"""Share of their launches that two turns of one loop have in common."""
MAX_COMPARED = 20_000
"""Turns that differ from the usual one and are still compared with it."""
NUM_BUCKETS = 128
"""Number of buckets into which names are hashed to compare the contents of turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Running totals over the sequence, each with a 0 before."""

    buckets: Int64s
    "The group of names of each entry; no total."
    digest: Int64s
    "A random weight of each group: equal contents have equal differences."
    gpu_ns: Int64s

    @classmethod
    def of(cls, work: LaunchSequence) -> "Marks":
        buckets = (work.code % NUM_BUCKETS).astype(np.int64)
        weights = np.random.default_rng(3).integers(1, 1 << 40, NUM_BUCKETS)
        return cls(
            buckets=buckets,
            digest=np.append(0, np.cumsum(weights[buckets])),
            gpu_ns=np.append(0, np.cumsum(work.gpu_ns)),
        )


def contents_of(buckets: Int64s, bounds: Int64s) -> NDArray[np.float32]:
    """Return how many launches of each bucket lie between each two bounds."""
    if len(bounds) < 2:
        return np.zeros((0, NUM_BUCKETS), np.float32)
    turn = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    key = turn * NUM_BUCKETS + buckets[bounds[0] : bounds[-1]]
    flat = np.bincount(key, minlength=(len(bounds) - 1) * NUM_BUCKETS)
    return flat.reshape(-1, NUM_BUCKETS).astype(np.float32)


def contents_of_some(buckets: Int64s, bounds: Int64s, turns: Int64s) -> NDArray[np.float32]:
    """Return the contents of some of the turns between bounds."""
    if len(turns) == len(bounds) - 1:
        return contents_of(buckets, bounds)
    length = bounds[turns + 1] - bounds[turns]
    offset = np.append(0, np.cumsum(length))
    place = np.arange(offset[-1]) - np.repeat(offset[:-1] - bounds[turns], length)
    return contents_of(buckets[place], offset)


def usual_content(
    buckets: Int64s, bounds: Int64s, digest: Int64s
) -> tuple[NDArray[np.float32], int | None]:
    """Return the most frequent content of turns and its digest.

    The median content, without a digest, where no two turns are equal.
    """
    values, row, count = np.unique(digest, return_index=True, return_counts=True)
    if count.max() < 2 and len(digest) > 2:
        some = np.arange(len(digest))[:MAX_COMPARED]
        content = contents_of_some(buckets, bounds, some)
        return np.median(content, axis=0).astype(np.float32), None
    size = np.diff(bounds)[row]
    best = int(np.lexsort((size, -count))[0])
    return contents_of_some(buckets, bounds, row[[best]])[0], int(values[best])


def likeness(content: NDArray[np.float32], usual: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the share of launches that each turn has in common with the usual one."""
    total = content.sum(axis=1) + usual.sum()
    apart = np.abs(content - usual).sum(axis=1)
    return 1 - apart / np.maximum(total, 1)


def matches(buckets: Int64s, window: Int64s, usual: NDArray[np.float32]) -> bool:
    if window[1] <= window[0]:
        return False
    return bool(likeness(contents_of(buckets, window), usual)[0] >= MIN_ALIKE)
