"""Match the kernels of two runs even if their names differ, so that the differences add up.

With per-launch spans: one iteration of each run is cut by range path (as deep as both runs have
it), split-K reductions join their product, each path's two sequences are aligned, and what lies
between aligned pairs is grouped with what took it in. The groups then claim every launch of the
capture by its place in its iteration, or by path and name where an iteration differs. Names,
categories and shares decide where there are no spans, where spans do not hold all kernel time, or
where a path is too long to align.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from analysis.classify import label
from analysis.compare.alignment import HEAVY, Group, Unit, align, make_groups, take_reordered
from analysis.compare.launches import Launch, Sequences, load_sequences
from analysis.compare.records import KernelPair
from analysis.compare.unmatched import Rows, pair_unmatched
from analysis.per_step import Per, common_basis, num_of
from analysis.runview import RunView
from core.plain_text import some_of

SPLIT_K_WORDS = ("splitkreduce", "splitk_reduce", "split_k_reduce")
MAX_NAMED = 4


def match_kernels(a: RunView, b: RunView) -> tuple[KernelPair, ...]:
    """Return pairs, the largest change first; their sums are each side's whole kernel time.

    Times and counts are of what `common_basis` says; times are rounded so that sums hold.
    """
    per = common_basis((a, b))
    sequences_a, sequences_b = (load_sequences(v, in_steps=per == "step") for v in (a, b))
    rows = Rows()
    groups = None
    if sequences_a is not None and sequences_b is not None:
        groups = _match_sequences(sequences_a, sequences_b)
    if groups is not None:
        assert sequences_a is not None and sequences_b is not None
        _claim(groups, sequences_a, sequences_b, rows)
    else:
        _claim_totals(a, b, rows, per)
    pair_unmatched(rows)
    return rows.as_pairs(num_of(a, per), num_of(b, per))


def _match_sequences(a: Sequences, b: Sequences) -> list[Group] | None:
    """Return the groups of one iteration; None when its sequences are too long to align."""
    shared = _prefixes(a.launches) & _prefixes(b.launches)
    units_a, units_b = _units(a.launches, shared), _units(b.launches, shared)
    total_a = max(1, sum(x.dur_ns for x in a.launches))
    scale = sum(x.dur_ns for x in b.launches) / total_a
    groups: list[Group] = []
    by_path_a, by_path_b = _by_path(units_a), _by_path(units_b)
    for path in {**by_path_a, **by_path_b}:
        here_a, here_b = by_path_a.get(path, []), by_path_b.get(path, [])
        pairs = align(here_a, here_b)
        if pairs is None:
            return None
        groups += _grouped(here_a, here_b, pairs, scale)
    return groups


def _grouped(
    a: Sequence[Unit], b: Sequence[Unit], pairs: list[tuple[int, int]], scale: float
) -> list[Group]:
    """Return the groups of one path; what moved is taken out, so that the rest is in order."""
    kept, moved = take_reordered(a, b, pairs)
    gone_a, gone_b = {i for i, _ in moved}, {j for _, j in moved}
    rest_a = [i for i in range(len(a)) if i not in gone_a]
    rest_b = [j for j in range(len(b)) if j not in gone_b]
    place_a = {i: k for k, i in enumerate(rest_a)}
    place_b = {j: k for k, j in enumerate(rest_b)}
    in_order = [(place_a[i], place_b[j]) for i, j in kept]
    groups = make_groups([a[i] for i in rest_a], [b[j] for j in rest_b], in_order, scale)
    return groups + [Group(a=[a[i]], b=[b[j]]) for i, j in moved]


def _by_path(units: Sequence[Unit]) -> dict[str, list[Unit]]:
    by_path: dict[str, list[Unit]] = {}
    for unit in units:
        by_path.setdefault(unit.path, []).append(unit)
    return by_path


def _prefixes(launches: Iterable[Launch]) -> set[str]:
    prefixes = {""}
    for path in {x.path for x in launches}:
        parts = path.split("/")
        prefixes |= {"/".join(parts[: i + 1]) for i in range(len(parts))}
    return prefixes


def _units(launches: Sequence[Launch], shared: set[str]) -> list[Unit]:
    units: list[Unit] = []
    is_split_k = {
        name: any(word in name.lower() for word in SPLIT_K_WORDS)
        for name in {launch.name for launch in launches}
    }
    for i, launch in enumerate(launches):
        path = launch.path
        while path not in shared:
            path = path.rpartition("/")[0]
        if (
            is_split_k[launch.name]
            and units
            and units[-1].family in HEAVY
            and units[-1].path == path
        ):
            last = units[-1]
            units[-1] = Unit((*last.launches, launch), (*last.positions, i), path)
        else:
            units.append(Unit((launch,), (i,), path))
    return units


def _claim(groups: Sequence[Group], a: Sequences, b: Sequences, rows: Rows) -> None:
    """Give every launch of both captures to the row of its group; the rest by name."""
    place: dict[str, dict[int, KernelPair]] = {"a": {}, "b": {}}
    for group in groups:
        for row, side, unit_positions in _group_rows(group):
            kept = rows.get(row)
            for position in unit_positions:
                place[side][position] = kept
    for side, sequences in (("a", a), ("b", b)):
        _claim_side(side, sequences, place[side], rows)


def _group_rows(group: Group) -> Iterable[tuple[KernelPair, str, tuple[int, ...]]]:
    """Yield (row, side, positions): a row per group, or per kernel where the names are equal."""
    if len(group.a) == len(group.b) == 1 and group.a[0].names == group.b[0].names:
        pairs = zip(group.a[0].launches, group.a[0].positions, group.b[0].positions, strict=True)
        for launch, position_a, position_b in pairs:
            row = KernelPair(
                a=launch.name,
                b=launch.name,
                match="name",
                confidence=1.0,
                category=launch.category,
                path=group.a[0].path,
            )
            yield row, "a", (position_a,)
            yield row, "b", (position_b,)
        return
    match, confidence = _how(group)
    first = (group.b or group.a)[0]
    heaviest = max((*group.a, *group.b), key=lambda u: (u.family in HEAVY, u.dur_ns))
    row = KernelPair(
        a=_label(group.a),
        b=_label(group.b),
        match=match,
        confidence=confidence,
        category=heaviest.launches[0].category,
        path=first.path,
    )
    for side in ("a", "b"):
        for unit in group.side(side):
            yield row, side, unit.positions


def _how(group: Group) -> tuple[str, float]:
    """Return how a group was found and how sure that is."""
    if not group.a or not group.b:
        return "unmatched", 0.0
    families = {u.family for u in (*group.a, *group.b)}
    if len(group.a) + len(group.b) > 2:
        return "fused", 0.7 if families <= HEAVY else 0.5
    x, y = group.a[0], group.b[0]
    if x.launches[0].category == y.launches[0].category:
        same_shape = x.launches[0].shape == y.launches[0].shape
        return ("path+order", 0.9 if same_shape else 0.8) if x.path else ("category", 0.6)
    return ("path+order", 0.6) if x.path and x.family == y.family else ("category", 0.4)


def _label(units: Sequence[Unit]) -> str | None:
    names = Counter(name for unit in units for name in unit.names)
    if not names:
        return None
    if len(names) == 1 and names.total() == 1:
        return next(iter(names))
    shown = [label(name) + (f" x{count}" if count > 1 else "") for name, count in names.items()]
    return some_of(shown, MAX_NAMED, " + ", " + ")


def _claim_side(side: str, sequences: Sequences, place: dict[int, KernelPair], rows: Rows) -> None:
    spans = sequences.spans
    known = spans[spans["position"] >= 0].groupby("position")["dur_ns"].agg(["sum", "size"])
    for position, total, count in known.itertuples():
        place[position].add(side, int(total), int(count))
    by_key: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for position, launch in enumerate(sequences.launches):
        by_key[launch.path, launch.name][position] += launch.dur_ns
        by_key["", launch.name][position] += launch.dur_ns
    rest = spans[spans["position"] < 0]
    for (path, name), group in rest.groupby(["path", "name"], sort=False, observed=True)["dur_ns"]:
        total, count = int(group.sum()), len(group)
        near = by_key.get((path, name)) or by_key.get(("", name))
        if near:
            place[near.most_common(1)[0][0]].add(side, total, count)
        else:
            category = sequences.categories.get(name, "unknown")
            rows.alone(side, name, category, path).add(side, total, count)


def _claim_totals(a: RunView, b: RunView, rows: Rows, per: Per) -> None:
    for side, view in (("a", a), ("b", b)):
        kernels, num = (
            (view.by_step.kernels, num_of(view, per)) if per == "step" else (view.kernels, 1)
        )
        grouped = kernels.groupby(["name", "category"], sort=False)[["total_ns", "count"]].sum()
        for (name, category), total, count in grouped.itertuples():
            row = rows.alone(side, str(name), str(category), None)
            row.add(side, round(total * num), round(count * num))
