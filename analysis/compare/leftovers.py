"""Pair what the alignment left alone on both sides: by name, by likeness, then by category.

A kernel that was only renamed must not show as the largest loss beside the largest gain, so no
category stays unmatched on both sides; the confidence says how little such a pair means.
"""

import re
from difflib import SequenceMatcher

from analysis.classify import short_name
from analysis.compare.align import FAMILIES
from analysis.compare.rows import Row, Rows

LIKE_NAME = 0.6
MAX_COMPARED = 200
WORD = re.compile(r"[a-z]+|\d+")


def pair_leftovers(rows: Rows) -> None:
    """Merge rows without partner in place; every row keeps its time, so sums hold."""
    _pair_same_name(rows)
    _pair_alike(rows)
    for family in sorted({_family(r) for side in ("a", "b") for r in rows.without_partner(side)}):
        _pool(rows, family)
    _pool_unknown(rows)


def _pair_same_name(rows: Rows) -> None:
    by_name: dict[str, list[Row]] = {}
    for row in rows.without_partner("b"):
        by_name.setdefault(str(row.b), []).append(row)
    for row in rows.without_partner("a"):
        if partners := by_name.get(str(row.a)):
            _merge(rows, [row], [partners.pop(0)], "name", 0.95)


def _pair_alike(rows: Rows) -> None:
    """Pair kernels of one category whose short names are alike, the most alike first."""
    left_a = rows.without_partner("a")[:MAX_COMPARED]
    left_b = rows.without_partner("b")[:MAX_COMPARED]
    scored = []
    for i, x in enumerate(left_a):
        for j, y in enumerate(left_b):
            if _family(x) == _family(y):
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
    """Pair what no rule recognises with whatever the other side has left."""
    left_a, left_b = rows.without_partner("a"), rows.without_partner("b")
    unknown_a = [r for r in left_a if _family(r) == "unknown"]
    unknown_b = [r for r in left_b if _family(r) == "unknown"]
    if unknown_a and left_b:
        _merge(rows, unknown_a, left_b[:1], "category", 0.1)
    elif unknown_b and left_a:
        _merge(rows, left_a[:1], unknown_b, "category", 0.1)


def _merge(rows: Rows, a: list[Row], b: list[Row], match: str, confidence: float) -> None:
    for row in (*a, *b):
        rows.remove(row)
    longest = max((*a, *b), key=lambda r: r.a_ns + r.b_ns)
    paths = {r.path for r in (*a, *b)}
    merged = rows.get(
        Row(
            a=_names([str(r.a) for r in a]),
            b=_names([str(r.b) for r in b]),
            match=match,
            confidence=confidence,
            category=longest.category,
            path=paths.pop() if len(paths) == 1 else None,
        )
    )
    for row in (*a, *b):
        merged.absorb(row)


def _names(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    shown = " + ".join(short_name(n) for n in names[:3])
    return shown + (f" + {len(names) - 3} more" if len(names) > 3 else "")


def _family(row: Row) -> str:
    return FAMILIES.get(row.category, "unknown")
