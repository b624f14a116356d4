"""From an alignment to groups: what a fused kernel took in is put beside it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from analysis.compare.align import HEAVY, Unit


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
