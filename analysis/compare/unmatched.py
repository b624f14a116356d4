"""The rows of the kernel table, and partners for kernels that the alignment left unmatched.

By name, by likeness, then by category.

A kernel that was only renamed must not show as the largest loss beside the largest gain, so no
category stays unmatched on both sides; the confidence says how little such a pair means.
"""

import re
from dataclasses import replace
from difflib import SequenceMatcher

from analysis.classify import short_name
from analysis.compare.alignment import FAMILIES, LEAST_SIMILAR
from analysis.compare.records import KernelPair
from analysis.compare.waterfall import per_iteration


def _key(row: KernelPair) -> tuple[object, ...]:
    return (row.a, row.b, row.match, row.category, row.path)


def _each(count: float, num: int) -> float:
    return count // num if count % num == 0 else count / num


class Rows:
    """The rows of one comparison, each key once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[object, ...], KernelPair] = {}

    def get(self, row: KernelPair) -> KernelPair:
        """Return the row with this one's key, which is this one if it is new."""
        kept = self._rows.setdefault(_key(row), row)
        kept.confidence = min(kept.confidence, row.confidence)
        return kept

    def alone(self, side: str, name: str, category: str, path: str | None) -> KernelPair:
        """Return the row of a kernel without partner."""
        return self.get(
            KernelPair(
                a=name if side == "a" else None,
                b=name if side == "b" else None,
                match="unmatched",
                confidence=0.0,
                category=category,
                path=path,
            )
        )

    def all(self) -> list[KernelPair]:
        return list(self._rows.values())

    def without_partner(self, side: str) -> list[KernelPair]:
        """Return the rows that only this side has, the longest first."""
        alone = [
            r for r in self._rows.values() if None in (r.a, r.b) and getattr(r, side) is not None
        ]
        return sorted(alone, key=lambda r: (-(r.a_ns + r.b_ns), str(_key(r))))

    def remove(self, row: KernelPair) -> None:
        del self._rows[_key(row)]

    def as_pairs(self, num_a: int, num_b: int) -> tuple[KernelPair, ...]:
        """Return the finished pairs, largest change first; totals are over `num_a` and `num_b`."""
        rows = list(self._rows.values())
        times_a = {i: r.a_ns for i, r in enumerate(rows)}
        times_b = {i: r.b_ns for i, r in enumerate(rows)}
        times_a, times_b = per_iteration(times_a, num_a), per_iteration(times_b, num_b)
        pairs = [
            replace(
                r,
                path=r.path or None,
                a_ns=times_a[i],
                b_ns=times_b[i],
                a_count=_each(r.a_count, num_a),
                b_count=_each(r.b_count, num_b),
            )
            for i, r in enumerate(rows)
        ]
        return tuple(sorted(pairs, key=lambda p: (-abs(p.delta_ns), str(p.a), str(p.b))))


LIKE_NAME = 0.6
MAX_COMPARED = 200
GUESS = 0.75
"""Confidence up to which a pair is a guess: by likeness or category alone."""
WORD = re.compile(r"[a-z]+|\d+")
_MORE = re.compile(r"(\d{1,9}) more")


def pair_unmatched(rows: Rows) -> None:
    """Merge rows without partner in place; every row keeps its time, so sums hold."""
    _pair_same_name(rows)
    _pair_alike(rows)
    for family in sorted({_family(r) for side in ("a", "b") for r in rows.without_partner(side)}):
        _pool(rows, family)
    _pool_unknown(rows)
    _pool_extremes(rows)


def _pool_extremes(rows: Rows) -> None:
    """Merge the largest gain with the largest loss while both are guesses about one kind of kernel.

    A renamed kernel whose partner was guessed wrong shows as both; a pool says less, but no
    falsehood. Pairs by name, order or shape are not guesses.
    """
    while True:
        kept = rows.all()
        gain = min(kept, key=lambda r: r.b_ns - r.a_ns, default=None)
        loss = max(kept, key=lambda r: r.b_ns - r.a_ns, default=None)
        if gain is None or loss is None or gain.b_ns >= gain.a_ns or loss.b_ns <= loss.a_ns:
            return
        sure = max(gain.confidence, loss.confidence) > GUESS
        if sure or not _may_be_one(gain, loss):
            return
        _merge(rows, [gain], [loss], "category", 0.1)


def _may_be_one(gain: KernelPair, loss: KernelPair) -> bool:
    """True when the two may share a kernel: one kind, or a kind that no rule recognises."""
    families = {_family(gain), _family(loss)}
    return len(families) == 1 or "unknown" in families


def _pair_same_name(rows: Rows) -> None:
    by_name: dict[str, list[KernelPair]] = {}
    for row in rows.without_partner("b"):
        by_name.setdefault(str(row.b), []).append(row)
    for row in rows.without_partner("a"):
        if partners := by_name.get(str(row.a)):
            _merge(rows, [row], [partners.pop(0)], "name", 0.95)


def _pair_alike(rows: Rows) -> None:
    """Pair kernels of one category with similar short names, the most similar first."""
    left_a = rows.without_partner("a")[:MAX_COMPARED]
    left_b = rows.without_partner("b")[:MAX_COMPARED]
    scale = sum(y.b_ns for y in left_b) / (sum(x.a_ns for x in left_a) or 1)
    scored = []
    for i, x in enumerate(left_a):
        for j, y in enumerate(left_b):
            if _family(x) == _family(y) and _are_similar(x.a_ns * scale, y.b_ns):
                likeness = _likeness(str(x.a), str(y.b))
                if likeness >= LIKE_NAME:
                    scored.append((-likeness, i, j))
    taken_a: set[int] = set()
    taken_b: set[int] = set()
    for negative, i, j in sorted(scored):
        if i not in taken_a and j not in taken_b:
            taken_a.add(i)
            taken_b.add(j)
            _merge(rows, [left_a[i]], [left_b[j]], "category", round(0.7 * -negative, 2))


def _are_similar(a_ns: float, b_ns: float) -> bool:
    return min(a_ns, b_ns) >= LEAST_SIMILAR * max(a_ns, b_ns)


def _likeness(a: str, b: str) -> float:
    words_a, words_b = (WORD.findall(short_name(name).lower()) for name in (a, b))
    return SequenceMatcher(None, words_a, words_b, autojunk=False).ratio()


def _pool(rows: Rows, family: str) -> None:
    """Put all that one family has left on both sides into one row."""
    left_a = [r for r in rows.without_partner("a") if _family(r) == family]
    left_b = [r for r in rows.without_partner("b") if _family(r) == family]
    if left_a and left_b:
        _merge(rows, left_a, left_b, "category", 0.3)


def _pool_unknown(rows: Rows) -> None:
    """Pair what no rule recognises with as much of the other side as took as long."""
    left_a, left_b = rows.without_partner("a"), rows.without_partner("b")
    unknown_a = [r for r in left_a if _family(r) == "unknown"]
    unknown_b = [r for r in left_b if _family(r) == "unknown"]
    if unknown_a and left_b:
        _merge(rows, unknown_a, _as_long(left_b, sum(r.a_ns for r in unknown_a)), "category", 0.1)
    elif unknown_b and left_a:
        _merge(rows, _as_long(left_a, sum(r.b_ns for r in unknown_b)), unknown_b, "category", 0.1)


def _as_long(rows: list[KernelPair], wanted_ns: int) -> list[KernelPair]:
    """Return the longest rows until their time is reached, at least one."""
    taken: list[KernelPair] = []
    for row in rows:
        if sum(r.a_ns + r.b_ns for r in taken) >= wanted_ns:
            break
        taken.append(row)
    return taken or rows[:1]


def _merge(
    rows: Rows, a: list[KernelPair], b: list[KernelPair], match: str, confidence: float
) -> None:
    merging = [*a, *b]
    for row in merging:
        rows.remove(row)
    longest = max(merging, key=lambda r: r.a_ns + r.b_ns)
    paths = {r.path for r in merging}
    merged = rows.get(
        KernelPair(
            a=_names([r.a for r in merging if r.a is not None]),
            b=_names([r.b for r in merging if r.b is not None]),
            match=match,
            confidence=confidence,
            category=longest.category,
            path=paths.pop() if len(paths) == 1 else None,
        )
    )
    for row in merging:
        merged.add("a", row.a_ns, row.a_count)
        merged.add("b", row.b_ns, row.b_count)


def _names(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    parts: list[str] = []
    num_more = 0
    for name in names:  # of pools that are pooled once more, the parts
        for part in name.split(" + ") if " + " in name else [short_name(name)]:
            counted = _MORE.fullmatch(part)
            num_more += int(counted[1]) if counted else 0
            parts += [] if counted else [part]
    parts = list(dict.fromkeys(parts))
    num_more += max(0, len(parts) - 3)
    return " + ".join(parts[:3]) + (f" + {num_more} more" if num_more else "")


def _family(row: KernelPair) -> str:
    return FAMILIES.get(row.category, "unknown")
