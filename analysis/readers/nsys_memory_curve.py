"""The level of allocated memory after each event, window after window, thinned for a chart."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.nsys_columns import Ints

MAX_POINTS = 5_000


class Curve:
    """One pool of memory. First told of all events (`expect`), then of them in order (`add`)."""

    def __init__(self) -> None:
        self._num_events = 0
        self._known = np.empty(0, np.int64)
        "Addresses that were allocated while recording, sorted."
        self._seen = 0
        self._level = 0
        self._least = 0
        self._most: int | None = None
        self._foreign_bytes = 0
        self._edges = np.empty(0, np.int64)
        self._times = np.empty(0, np.int64)
        self._highest = np.empty(0, np.int64)

    def expect(self, addresses: Ints, is_release: NDArray[np.bool_]) -> None:
        """Count events of any order."""
        self._num_events += len(addresses)
        fresh = pd.unique(addresses[~is_release])
        fresh = fresh[~_is_among(fresh, self._known)]
        if len(fresh):
            self._known = np.sort(np.concatenate([self._known, fresh]))

    def add(
        self, *, times: Ints, sizes: Ints, addresses: Ints, is_release: NDArray[np.bool_]
    ) -> None:
        """Take the next events, in order of time."""
        if not self._seen:
            self._start()
        releases = np.flatnonzero(is_release)
        is_foreign = ~_is_among(addresses[releases], self._known)
        self._foreign_bytes += int(sizes[releases[is_foreign]].sum())
        level = np.cumsum(np.where(is_release, -sizes, sizes)) + self._level
        self._level = int(level[-1])
        self._least = min(self._least, int(level.min()))
        top = int(level.max())
        self._most = top if self._most is None else max(self._most, top)
        self._thin(times, level)
        self._seen += len(times)

    def _start(self) -> None:
        """Lay out the points: of more events than fit, the highest of each stretch is kept."""
        size = self._num_events
        if size > MAX_POINTS:
            self._edges = np.linspace(0, size, MAX_POINTS, dtype=np.int64)[:-1]
        else:
            self._edges = np.arange(size)
        self._times = np.zeros(len(self._edges), np.int64)
        self._highest = np.full(len(self._edges), np.iinfo(np.int64).min)

    def _thin(self, times: Ints, level: Ints) -> None:
        at = np.arange(self._seen, self._seen + len(level))
        stretch = np.searchsorted(self._edges, at, side="right") - 1
        np.maximum.at(self._highest, stretch, level)
        first = np.flatnonzero(self._edges[stretch] == at)
        self._times[stretch[first]] = times[first]

    @property
    def baseline(self) -> int:
        """Return what was live before the recording, as far as releases show it [bytes]."""
        return max(self._foreign_bytes, -self._least, 0)

    @property
    def peak(self) -> int:
        return max((self._most or 0) + self.baseline, self.baseline)

    @property
    def final(self) -> int:
        return self._level + self.baseline

    def points(self) -> tuple[Ints, Ints]:
        """Return times and levels of at most MAX_POINTS points."""
        return self._times, self._highest + self.baseline


def _is_among(values: Ints, ordered: Ints) -> NDArray[np.bool_]:
    if len(ordered) == 0:
        return np.zeros(len(values), bool)
    at = np.searchsorted(ordered, values)
    np.minimum(at, len(ordered) - 1, out=at)
    return ordered[at] == values
