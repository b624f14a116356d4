"""Count, sum, least and greatest duration by code, batch by batch."""

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import Ints


class Groups:
    """Durations [ns] by code; the number of codes may grow."""

    def __init__(self) -> None:
        self.count = np.zeros(0, np.int64)
        self.total = np.zeros(0, np.int64)
        self.least = np.zeros(0, np.int64)
        self.most = np.zeros(0, np.int64)

    def add(self, codes: NDArray[np.integer], duration_ns: Ints) -> None:
        if not len(codes):
            return
        self._grow(int(codes.max()) + 1)
        self.count += np.bincount(codes, minlength=len(self.count))
        np.add.at(self.total, codes, duration_ns)
        np.minimum.at(self.least, codes, duration_ns)
        np.maximum.at(self.most, codes, duration_ns)

    def _grow(self, size: int) -> None:
        more = size - len(self.count)
        if more > 0:
            nothing = np.zeros(more, np.int64)
            self.count = np.concatenate([self.count, nothing])
            self.total = np.concatenate([self.total, nothing])
            self.least = np.concatenate([self.least, nothing + np.iinfo(np.int64).max])
            self.most = np.concatenate([self.most, nothing + np.iinfo(np.int64).min])

    def merged(self, group: NDArray[np.integer], size: int) -> "Groups":
        """Return the same by coarser codes: `group` is the new code of each old one."""
        found = Groups()
        found._grow(size)
        known = group[: len(self.count)]
        np.add.at(found.count, known, self.count)
        np.add.at(found.total, known, self.total)
        np.minimum.at(found.least, known, self.least)
        np.maximum.at(found.most, known, self.most)
        return found
