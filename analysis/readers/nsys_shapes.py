"""Give each distinct row of several integer columns a small code, batch by batch."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.nsys_columns import Ints

SHAPE_FIELDS = (
    "demangledName",
    "shortName",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
)
"""What tells one kind of launch from another: the fields of a kernel row."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class ShapeCodes:
    """Number distinct rows in the order they are first met."""

    def __init__(self, *, num_fields: int) -> None:
        self._num_fields = num_fields
        self._codes: dict[int, int] = {}
        self._rows: list[NDArray[np.int64]] = []

    def encode(self, columns: Sequence[Ints], num_rows: int) -> NDArray[np.int32]:
        """Return the code of each row; with no column at all every code is 0."""
        if not columns or num_rows == 0:
            return np.zeros(num_rows, np.int32)
        codes, unique = pd.factorize(_hash(columns))
        first = np.empty(len(unique), np.int64)
        first[codes[::-1]] = np.arange(num_rows - 1, -1, -1)
        for column in columns:
            if not np.array_equal(column, column[first][codes]):
                return self._encode_exactly(np.stack(columns))
        return self._number(unique.tolist(), np.stack([c[first] for c in columns]))[codes]

    def rows(self) -> Ints:
        """Return the distinct rows, one a code."""
        if not self._rows:
            return np.empty((0, self._num_fields), np.int64)
        return np.stack(self._rows)

    def _number(self, keys: Sequence[int], rows: Ints) -> NDArray[np.int32]:
        codes = np.empty(len(keys), np.int32)
        for i, key in enumerate(keys):
            code = self._codes.get(key)
            # Two rows of one hash in different batches: the later one gets a number of its own.
            if code is None or not np.array_equal(self._rows[code], rows[:, i]):
                code = len(self._rows)
                self._codes.setdefault(key, code)
                self._rows.append(rows[:, i].copy())
            codes[i] = code
        return codes

    def _encode_exactly(self, table: Ints) -> NDArray[np.int32]:
        rows, inverse = np.unique(table, axis=1, return_inverse=True)
        keys = [hash((-1, *row)) for row in rows.T.tolist()]
        return self._number(keys, rows)[inverse.reshape(-1)]


def _hash(columns: Sequence[Ints]) -> NDArray[np.uint64]:
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed ^= column.view(np.uint64)
        mixed *= _ODD
        mixed ^= mixed >> _SHIFT
    return mixed
