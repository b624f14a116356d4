"""What an `nsys stats` summary says twice: shares of the whole, means, and the order of rows."""

from collections.abc import Mapping, Sequence

from analysis.readers.nsys_csv_rows import SummaryRow
from analysis.tables import CaptureWarning

_SHARE_TOLERANCE_PCT = 0.06
"""Shares are printed with one decimal."""
_MAX_SHOWN = 3


def check_summaries(blocks: Mapping[str, Sequence[SummaryRow]]) -> tuple[CaptureWarning, ...]:
    """Return a warning for each summary whose rows contradict each other: rows lost or changed."""
    found = []
    for kind, rows in blocks.items():
        bad = [*_shares(rows), *_means(rows), *_repeats(rows)]
        if bad:
            text = f"the {kind} summary contradicts itself: {'; '.join(bad[:_MAX_SHOWN])}"
            found.append(CaptureWarning(code="inconsistent_summary", message=text))
    return tuple(found)


def _shares(rows: Sequence[SummaryRow]) -> list[str]:
    timed = [r for r in rows if r.share_pct is not None and r.total_ns is not None]
    total = sum(r.total_ns or 0 for r in timed)
    bad = [
        r
        for r in timed
        if total
        and abs(100 * (r.total_ns or 0) / total - (r.share_pct or 0)) > _SHARE_TOLERANCE_PCT
    ]
    if not bad:
        return []
    return [f"the shares of {len(bad)} rows are not those of {total} ns in all (rows are missing)"]


def _means(rows: Sequence[SummaryRow]) -> list[str]:
    bad = []
    for row in rows:
        if row.total_ns is None or row.mean_ns is None or not row.count:
            continue
        # Means are printed with one decimal, in old versions with none.
        is_off = abs(row.mean_ns * row.count - row.total_ns) > 0.51 * row.count + 1
        low, high = row.min_ns, row.max_ns
        is_outside = (low is not None and low > row.mean_ns + 1) or (
            high is not None and high < row.mean_ns - 1
        )
        if is_off or is_outside:
            bad.append(f"{row.name[:60]}: mean, count, extremes and total do not fit")
    return bad


def _repeats(rows: Sequence[SummaryRow]) -> list[str]:
    keys = [(r.name, r.grid, r.block, r.style) for r in rows]
    repeated = len(keys) - len(set(keys))
    return [f"{repeated} rows are there twice"] if repeated else []
