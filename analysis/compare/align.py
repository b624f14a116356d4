"""Align two sequences of kernels whose names may differ.

Needleman and Wunsch's alignment (J. Mol. Biol. 48, 1970), row by row in numpy. There is no gap
cost: order is kept, a kernel without partner costs nothing, and a senseless pair is never made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.compare.launches import Launch

MAX_CELLS = 6_000_000
"""Longest pair of sequences aligned, in cells of a table of 8 bytes each (2 400 by 2 400)."""
SAME_NAME, SAME_SHAPE, SAME_CATEGORY, SAME_FAMILY, UNKNOWN_CLASS = 8.0, 1.0, 4.0, 3.0, 2.0
LEAST_SIMILAR = 0.3
"""Kernels of unlike names pair up only if their shares of the time are within this factor."""
FAMILIES = {
    "gemm": "product",
    "gemv": "product",
    "attention": "attention",
    "conv": "product",
    "collective": "collective",
    "optimizer": "optimizer",
    "moe": "moe",
    "norm": "reduce",
    "softmax": "reduce",
    "reduction": "reduce",
    "loss": "reduce",
    "embedding": "index",
    "index": "index",
    "elementwise": "pointwise",
    "copy": "pointwise",
    "fill": "pointwise",
    "random": "pointwise",
}
HEAVY = frozenset({"product", "attention", "collective"})


@dataclass(frozen=True)
class Unit:
    """A kernel, or a product with the split-K reduction that belongs to it."""

    launches: tuple[Launch, ...]
    positions: tuple[int, ...]
    path: str
    "The deepest path that both runs have."

    @cached_property
    def dur_ns(self) -> int:
        return sum(x.dur_ns for x in self.launches)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(x.name for x in self.launches)

    @property
    def family(self) -> str:
        return FAMILIES.get(self.launches[0].category, "unknown")

    @property
    def fuses(self) -> bool:
        """True for code that a compiler made out of several operations."""
        first = self.launches[0]
        return first.origin == "inductor" or "fused" in first.name.lower()


def align(a: Sequence[Unit], b: Sequence[Unit]) -> list[tuple[int, int]] | None:
    """Return the index pairs of the best alignment, in order; None when too long to align."""
    if not a or not b:
        return []
    head = 0
    while head < min(len(a), len(b)) and a[head].names == b[head].names:
        head += 1
    pairs = [(i, i) for i in range(head)]
    rest_a, rest_b = a[head:], b[head:]
    if not rest_a or not rest_b:
        return pairs
    if len(rest_a) * len(rest_b) > MAX_CELLS:
        return None
    scores = score_pairs(rest_a, rest_b)
    return pairs + [(head + i, head + j) for i, j in _best_path(scores)]


def _best_path(scores: np.ndarray) -> list[tuple[int, int]]:
    rows, columns = scores.shape
    best = np.zeros((rows + 1, columns + 1))
    for i in range(rows):
        taken = np.maximum(best[i, 1:], best[i, :-1] + scores[i])
        best[i + 1, 1:] = np.maximum.accumulate(taken)
    pairs, i, j = [], rows, columns
    while i and j:
        here = best[i, j]
        if here == best[i - 1, j - 1] + scores[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif here == best[i, j - 1]:
            j -= 1
        else:
            i -= 1
    return pairs[::-1]


def score_pairs(a: Sequence[Unit], b: Sequence[Unit]) -> np.ndarray:
    """Return the score of every pair; -1 where a pair makes no sense."""
    kinds_a, codes_a = _kinds(a)
    kinds_b, codes_b = _kinds(b)
    table = np.array([[_kind_score(x, y) for y in kinds_b] for x in kinds_a])
    scores = table[np.ix_(codes_a, codes_b)]
    share_a = np.array([u.dur_ns for u in a], dtype=float)
    share_b = np.array([u.dur_ns for u in b], dtype=float)
    share_a /= max(1.0, share_a.sum())
    share_b /= max(1.0, share_b.sum())
    larger = np.maximum(share_a[:, None], share_b[None, :])
    similar = np.minimum(share_a[:, None], share_b[None, :]) / np.where(larger > 0, larger, 1.0)
    unlike = scores < SAME_NAME
    scores = np.where(unlike & (similar < LEAST_SIMILAR), -1.0, scores + 2 * similar * (scores > 0))
    return scores


def _kinds(units: Sequence[Unit]) -> tuple[list[Unit], list[int]]:
    """Return units that differ in names, path or shape, and for each unit the index of its kind."""
    seen: dict[tuple[object, ...], int] = {}
    kinds: list[Unit] = []
    codes: list[int] = []
    for unit in units:
        key = (unit.names, unit.path, unit.launches[0].shape)
        if key not in seen:
            seen[key] = len(kinds)
            kinds.append(unit)
        codes.append(seen[key])
    return kinds, codes


def _kind_score(a: Unit, b: Unit) -> float:
    if a.path != b.path:
        return -1.0
    shape = SAME_SHAPE * (a.launches[0].shape == b.launches[0].shape)
    if a.names == b.names:
        return SAME_NAME + shape
    heavy = 2.0 if a.family in HEAVY else 1.0
    if a.launches[0].category == b.launches[0].category and a.family != "unknown":
        return heavy * SAME_CATEGORY / 2 + shape
    if a.family == b.family:
        return heavy * SAME_FAMILY / 2 + shape
    if "unknown" in (a.family, b.family):
        return UNKNOWN_CLASS / 2 + shape
    return -1.0
