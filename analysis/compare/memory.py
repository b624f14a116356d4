"""What grew at the peak: two memory snapshots compared by allocation site."""

import pandas as pd

from analysis.compare.records import MemoryGrowth
from analysis.runview import RunView


def compare_memory(a: RunView, b: RunView) -> tuple[MemoryGrowth, ...]:
    """Return every site alive at either peak, the largest change first; () without snapshots.

    Bytes of all devices together, as the snapshot counts them (requested sizes).
    """
    if not len(a.memory_at_peak) or not len(b.memory_at_peak):
        return ()
    at_a, at_b = _by_site(a.memory_at_peak), _by_site(b.memory_at_peak)
    rows = [
        MemoryGrowth(
            site=site,
            a_bytes=at_a.get(site, (0, 0))[0],
            b_bytes=at_b.get(site, (0, 0))[0],
            a_count=at_a.get(site, (0, 0))[1],
            b_count=at_b.get(site, (0, 0))[1],
        )
        for site in {**at_a, **at_b}
    ]
    return tuple(sorted(rows, key=lambda r: (-abs(r.delta_bytes), r.site)))


def _by_site(frame: pd.DataFrame) -> dict[str, tuple[int, int]]:
    sums = frame.groupby("site", sort=True)[["bytes", "count"]].sum()
    return {str(site): (int(size), int(count)) for site, size, count in sums.itertuples()}
