"""Rows of the kernel matching table while they are being filled."""

from dataclasses import dataclass

from analysis.compare.records import KernelPair
from analysis.compare.shares import per_iteration


@dataclass(slots=True, kw_only=True)
class Row:
    """One pair (or one side of it) with the time it has been given so far."""

    a: str | None
    b: str | None
    match: str
    confidence: float
    category: str
    path: str | None
    a_ns: int = 0
    b_ns: int = 0
    a_count: int = 0
    b_count: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        return (self.a, self.b, self.match, self.category, self.path)

    @property
    def is_alone(self) -> bool:
        return self.a is None or self.b is None

    def add(self, side: str, total_ns: int, count: int) -> None:
        if side == "a":
            self.a_ns += total_ns
            self.a_count += count
        else:
            self.b_ns += total_ns
            self.b_count += count

    def absorb(self, other: "Row") -> None:
        self.add("a", other.a_ns, other.a_count)
        self.add("b", other.b_ns, other.b_count)


class Rows:
    """The rows of one comparison, each key once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[object, ...], Row] = {}

    def get(self, row: Row) -> Row:
        """Return the row with this one's key, which is this one if it is new."""
        kept = self._rows.setdefault(row.key, row)
        kept.confidence = min(kept.confidence, row.confidence)
        return kept

    def alone(self, side: str, name: str, category: str, path: str | None) -> Row:
        """Return the row of a kernel without partner."""
        return self.get(
            Row(
                a=name if side == "a" else None,
                b=name if side == "b" else None,
                match="unmatched",
                confidence=0.0,
                category=category,
                path=path,
            )
        )

    def all(self) -> list[Row]:
        return list(self._rows.values())

    def without_partner(self, side: str) -> list[Row]:
        """Return the rows that only this side has, the longest first."""
        found = [r for r in self._rows.values() if r.is_alone and getattr(r, side) is not None]
        return sorted(found, key=lambda r: (-(r.a_ns + r.b_ns), str(r.key)))

    def remove(self, row: Row) -> None:
        del self._rows[row.key]

    def as_pairs(self, num_a: int | None, num_b: int | None) -> tuple[KernelPair, ...]:
        """Return the finished pairs, largest change first; per iteration where counts differ."""
        rows = list(self._rows.values())
        times_a = {i: r.a_ns for i, r in enumerate(rows)}
        times_b = {i: r.b_ns for i, r in enumerate(rows)}
        if num_a and num_b and num_a != num_b:
            times_a, times_b = per_iteration(times_a, num_a), per_iteration(times_b, num_b)
        pairs = [
            KernelPair(
                a=r.a,
                b=r.b,
                match=r.match,
                confidence=r.confidence,
                category=r.category,
                path=r.path or None,
                a_ns=times_a[i],
                b_ns=times_b[i],
                a_count=r.a_count,
                b_count=r.b_count,
            )
            for i, r in enumerate(rows)
        ]
        return tuple(sorted(pairs, key=lambda p: (-abs(p.delta_ns), str(p.a), str(p.b))))
