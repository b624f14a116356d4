"""Arrays that grow in place as batches come in: no second copy when the last one has come."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike, NDArray


class GrowingArrays:
    """Named columns of one length."""

    def __init__(self, dtypes: Mapping[str, DTypeLike], *, expected: int) -> None:
        self._arrays = {name: np.empty(expected, dtype) for name, dtype in dtypes.items()}
        self._room = expected
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, columns: Mapping[str, NDArray[np.generic]]) -> None:
        """Add rows; every column must be given, all of one length."""
        more = len(next(iter(columns.values())))
        if self._size + more > self._room:
            self._room = max(2 * self._room, self._size + more)
            for name, array in self._arrays.items():
                grown = np.empty(self._room, array.dtype)
                grown[: self._size] = array[: self._size]
                self._arrays[name] = grown
        for name, array in self._arrays.items():
            array[self._size : self._size + more] = columns[name]
        self._size += more

    def __getitem__(self, name: str) -> NDArray:  # type: ignore[type-arg]
        """Return a column as far as it is filled."""
        return self._arrays[name][: self._size]
