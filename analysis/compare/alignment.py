"""Align two sequences of kernels whose names may differ.

Needleman and Wunsch's alignment (J. Mol. Biol. 48, 1970), row by row in numpy. There is no gap
cost: order is kept, a kernel without partner costs nothing, and a senseless pair is never made.

Then units that ran in another order find each other, and what a fused kernel took in is put beside
it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

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

    @cached_property
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
    """Return the score of every pair; -1 where two kernels cannot be a pair."""
    kinds_a, codes_a = _kinds(a)
    kinds_b, codes_b = _kinds(b)
    table = np.array([[_kind_score(x, y) for y in kinds_b] for x in kinds_a])
    scores = table[np.ix_(codes_a, codes_b)]
    share_a = np.array([u.dur_ns for u in a], dtype=float)
    share_b = np.array([u.dur_ns for u in b], dtype=float)
    share_a /= max(1.0, share_a.sum())
    share_b /= max(1.0, share_b.sum())
    larger = np.maximum(share_a[:, None], share_b[None, :])
    larger[larger <= 0] = 1.0
    similar = np.minimum(share_a[:, None], share_b[None, :])
    similar /= larger
    is_no_pair = (scores < SAME_NAME) & (similar < LEAST_SIMILAR)
    similar *= 2
    similar *= scores > 0
    scores += similar
    scores[is_no_pair] = -1.0
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


Pairs = list[tuple[int, int]]
MIN_GAIN = 1.5
"""Score that an exchange must win: more than times that vary by a fifth can make up."""
MAX_WEAK = 1500


def take_reordered(a: Sequence[Unit], b: Sequence[Unit], pairs: Pairs) -> tuple[Pairs, Pairs]:
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
    matched = []
    for i, unit in enumerate(a):
        if i not in firm_a and (places := waiting.get(unit.names)):
            nearest = min(places, key=lambda j: abs(j - i))
            places.remove(nearest)
            matched.append((i, nearest))
    return matched


def _exchanged(a: Sequence[Unit], b: Sequence[Unit], weak: Pairs) -> Pairs:
    """Return the pairs that are better off with each other's partner, the largest gain first."""
    if not 2 <= len(weak) <= MAX_WEAK:
        return []
    swapped = score_pairs([a[i] for i, _ in weak], [b[j] for _, j in weak])
    partner = np.arange(len(weak))
    gain = _gains(swapped, partner)
    for _ in range(len(weak)):
        p, q = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[p, q] < MIN_GAIN:
            break
        partner[[p, q]] = partner[[q, p]]
        swapped[:, [p, q]] = swapped[:, [q, p]]
        both = np.array([p, q])
        gain[both] = _gains(swapped, both)
        gain[:, both] = gain[both].T
    places = np.flatnonzero(partner != np.arange(len(weak)))
    return [(weak[k][0], weak[partner[k]][1]) for k in places]


def _gains(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return what each of these pairs and any other would win by an exchange; 0 where it cannot be.

    `scores`: of each pair's A with each pair's B, so that what stays stands on the diagonal.
    """
    now = scores.diagonal()
    forth, back = scores[rows], scores[:, rows].T
    won = forth + back - now[rows, None] - now[None, :]
    won[(forth < 0) | (back < 0)] = 0.0
    return won


@dataclass(slots=True)
class Group:
    """Units of A and of B that do the same work."""

    a: list[Unit] = field(default_factory=list)
    b: list[Unit] = field(default_factory=list)

    @property
    def a_ns(self) -> int:
        return sum(u.dur_ns for u in self.a)

    @property
    def b_ns(self) -> int:
        return sum(u.dur_ns for u in self.b)

    def side(self, name: str) -> list[Unit]:
        return self.a if name == "a" else self.b


def make_groups(
    a: Sequence[Unit], b: Sequence[Unit], pairs: Sequence[tuple[int, int]], scale: float
) -> list[Group]:
    """Return groups that hold every unit once; a group with an empty side has no partner.

    Between two aligned pairs lie units without partner. A unit joins the neighbour of its kind
    whose partner took longer than it should (two kernels became one, or one two). Other units join
    what the other side has in the same gap; else the neighbouring unit of a compiler that fuses,
    products last. scale: B's total time over A's, so that times can be compared across GPUs.
    """
    anchors = [Group(a=[a[i]], b=[b[j]]) for i, j in pairs]
    groups: list[Group] = []
    edges = [(-1, -1), *pairs, (len(a), len(b))]
    for k, ((i0, j0), (i1, j1)) in enumerate(pairwise(edges)):
        before = anchors[k - 1] if k else None
        after = anchors[k] if k < len(anchors) else None
        left_a, left_b = list(a[i0 + 1 : i1]), list(b[j0 + 1 : j1])
        left_a = _join_parts(left_a, "a", before, after, scale)
        left_b = _join_parts(left_b, "b", before, after, scale)
        groups += _settle(left_a, left_b, before, after)
    return anchors + groups


def _join_parts(
    units: list[Unit], side: str, before: Group | None, after: Group | None, scale: float
) -> list[Unit]:
    """Put units into the neighbour with room for them; return those that stay.

    A product joins wherever there is room; other kernels, which are many and short, only where
    they fill it: a kernel that became two.
    """
    staying = []
    for unit in units:
        own_ns = unit.dur_ns * (scale if side == "a" else 1.0)
        needed_ns = 0.0 if unit.family in HEAVY else own_ns / 2
        fitting = [
            g
            for g in (before, after)
            if g is not None and _takes(g, unit, side) and _room_ns(g, side, scale) > needed_ns
        ]
        if not fitting:
            staying.append(unit)
            continue
        best = max(fitting, key=lambda g: _room_ns(g, side, scale))
        if fitting[0] is before and _room_ns(fitting[0], side, scale) >= own_ns / 2:
            best = fitting[0]  # a reduction belongs to the product it follows
        best.side(side).append(unit)
    return staying


def _room_ns(group: Group, side: str, scale: float) -> float:
    """Return by how much the other side of the group took longer than this side explains."""
    excess = group.b_ns - scale * group.a_ns
    return excess if side == "a" else -excess


def _takes(group: Group, unit: Unit, side: str) -> bool:
    """True when the group holds such work of the other side, on the same path, under a new name."""
    partner = group.b[0] if side == "a" else group.a[0]
    same_name = group.a[0].names == group.b[0].names
    return (
        unit.family != "unknown"
        and partner.family == unit.family
        and partner.path == unit.path
        and not same_name
    )


def _settle(
    left_a: list[Unit], left_b: list[Unit], before: Group | None, after: Group | None
) -> list[Group]:
    """Return new groups of what is left in one gap, after joining fusing neighbours."""
    if left_a and left_b:
        return _by_path(left_a, left_b)
    alone = []
    for side, units in (("a", left_a), ("b", left_b)):
        for unit in units:
            home = _fusing_neighbour(unit, side, before, after)
            if home is None:
                alone.append(Group(a=[unit]) if side == "a" else Group(b=[unit]))
            else:
                home.side(side).append(unit)
    return alone


def _by_path(left_a: list[Unit], left_b: list[Unit]) -> list[Group]:
    groups: dict[str, Group] = {}
    for unit in left_a:
        groups.setdefault(unit.path, Group()).a.append(unit)
    for unit in left_b:
        groups.setdefault(unit.path, Group()).b.append(unit)
    return list(groups.values())


def _fusing_neighbour(
    unit: Unit, side: str, before: Group | None, after: Group | None
) -> Group | None:
    if unit.family in HEAVY:
        return None
    near = [g for g in (after, before) if g is not None]
    partner = {id(g): (g.b[0] if side == "a" else g.a[0]) for g in near}
    near = [
        g
        for g in near
        if partner[id(g)].fuses
        and partner[id(g)].path == unit.path
        and g.a[0].names != g.b[0].names
    ]
    near.sort(key=lambda g: partner[id(g)].family in HEAVY)
    return near[0] if near else None
