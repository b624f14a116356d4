"""In which order the processes of the two sides ran, as far as the runs say."""

from collections.abc import Sequence
from datetime import datetime

from analysis.compare.statistics import Order
from analysis.runview import RunView


def find_order(a: Sequence[RunView], b: Sequence[RunView], n_a: int, n_b: int) -> Order:
    """Return `paired` for runs taken in turn (one group a run), `block` for one side first.

    Times of imported files say when they were imported, if anything, so only runs with both a
    start and an end that differ count; `unknown` otherwise. n_a, n_b: groups a side.
    """
    windows_a, windows_b = _windows(a), _windows(b)
    if windows_a is None or windows_b is None:
        return "unknown"
    if len(windows_a) == len(windows_b) == n_a == n_b and _alternates(windows_a, windows_b):
        return "paired"
    last_a, last_b = max(w[1] for w in windows_a), max(w[1] for w in windows_b)
    first_a, first_b = min(w[0] for w in windows_a), min(w[0] for w in windows_b)
    return "block" if last_a <= first_b or last_b <= first_a else "unknown"


def ran_first(a: Sequence[RunView], b: Sequence[RunView]) -> str:
    """Return the side whose first run started first: `a` or `b`."""
    starts = [min(v.run.started_at or v.run.created_at for v in side) for side in (a, b)]
    return "a" if starts[0] <= starts[1] else "b"


def order_bias(a: Sequence[RunView], b: Sequence[RunView]) -> float:
    """Return the share of A/B pairs in which A ran first minus the share in which B did."""
    pairs = zip(_starts(a), _starts(b), strict=True)
    return sum(1 if start_a <= start_b else -1 for start_a, start_b in pairs) / len(a)


def _starts(views: Sequence[RunView]) -> list[str]:
    return sorted(v.run.started_at or v.run.created_at for v in views)


def _windows(views: Sequence[RunView]) -> list[tuple[datetime, datetime]] | None:
    windows = []
    for view in views:
        run = view.run
        if run.source == "imported" or not run.started_at or not run.finished_at:
            return None
        start, end = _parse(run.started_at), _parse(run.finished_at)
        if start is None or end is None or end <= start:
            return None
        windows.append((start, end))
    return windows or None


def _parse(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=None) if found.tzinfo else found


def _alternates(
    a: Sequence[tuple[datetime, datetime]], b: Sequence[tuple[datetime, datetime]]
) -> bool:
    """True when the runs in time order split into neighbours, one of each side."""
    tagged = sorted([(start, "a") for start, _ in a] + [(start, "b") for start, _ in b])
    sides = [side for _, side in tagged]
    return all(set(pair) == {"a", "b"} for pair in zip(sides[::2], sides[1::2], strict=True))
