"""Kernels that ran in another order on the other side, which an alignment in order cannot pair.

Two steps on the outcome of an alignment: units of one name that were left alone or paired with
another name find each other; and two pairs under new names exchange partners where launch shape,
category and time say so clearly. Order is evidence too, so a small gain changes nothing.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from analysis.compare.align import Unit, score_pairs

Pairs = list[tuple[int, int]]
MIN_GAIN = 1.5
"""Score that an exchange must win: more than times that vary by a fifth can make up."""
MAX_WEAK = 1500


def take_moved(a: Sequence[Unit], b: Sequence[Unit], pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Return (pairs in order, pairs out of order); every unit is in one of them at most."""
    by_name = _same_names(a, b, pairs)
    taken_a, taken_b = {i for i, _ in by_name}, {j for _, j in by_name}
    kept = [(i, j) for i, j in pairs if i not in taken_a and j not in taken_b]
    exchanged = _exchanged(a, b, [p for p in kept if a[p[0]].names != b[p[1]].names])
    taken_a = {i for i, _ in exchanged}
    return [p for p in kept if p[0] not in taken_a], by_name + exchanged


def _same_names(a: Sequence[Unit], b: Sequence[Unit], pairs: Pairs) -> Pairs:
    strong = [(i, j) for i, j in pairs if a[i].names == b[j].names]
    firm_a, firm_b = {i for i, _ in strong}, {j for _, j in strong}
    waiting: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for j, unit in enumerate(b):
        if j not in firm_b:
            waiting[unit.names].append(j)
    found = []
    for i, unit in enumerate(a):
        if i not in firm_a and (places := waiting.get(unit.names)):
            nearest = min(places, key=lambda j: abs(j - i))
            places.remove(nearest)
            found.append((i, nearest))
    return found


def _exchanged(a: Sequence[Unit], b: Sequence[Unit], weak: Pairs) -> Pairs:
    """Return the pairs that are better off with each other's partner, the largest gain first."""
    if not 2 <= len(weak) <= MAX_WEAK:
        return []
    scores = score_pairs([a[i] for i, _ in weak], [b[j] for _, j in weak])
    partner = np.arange(len(weak))
    for _ in range(len(weak)):
        now = scores[np.arange(len(weak)), partner]
        swapped = scores[:, partner]
        gain = swapped + swapped.T - now[:, None] - now[None, :]
        gain[(swapped < 0) | (swapped.T < 0)] = 0.0
        p, q = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[p, q] < MIN_GAIN:
            break
        partner[[p, q]] = partner[[q, p]]
    places = np.flatnonzero(partner != np.arange(len(weak)))
    return [(weak[k][0], weak[partner[k]][1]) for k in places]
