"""A large table in chunks of columns: the first ones in memory, the rest in an unlinked file.

The memory that a capture takes must not grow with its rows. Rows come in the order of the file,
which is nearly that of time: reading them back by windows of time touches few chunks, and any
other order is only slower.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import Ints

MEMORY_BYTES = 48 << 20
"""What one table keeps in memory; 1.2 million GPU operations."""
SAMPLE_EVERY = 64
WINDOW_ROWS = 1 << 18
"""Rows of a window of time, about."""
FIRST_NS, LAST_NS = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)

Column = NDArray[Any]


@dataclass(slots=True, kw_only=True)
class _Chunk:
    num_rows: int
    first_row: int
    earliest_ns: int
    latest_ns: int
    "Least and greatest `start`."
    arrays: dict[str, Column] = field(default_factory=dict)
    places: dict[str, tuple[int, np.dtype[Any]]] = field(default_factory=dict)
    "Where a column lies in the file."


class Chunks:
    """Columns of one length, `start` [ns] among them, appended chunk by chunk."""

    def __init__(self, scratch: Path | None) -> None:
        """`scratch`: folder of the temporary file; the system's own if None."""
        self._scratch = scratch
        self._chunks: list[_Chunk] = []
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        self._held_bytes = 0
        self._samples: list[Ints] = []
        self.num_rows = 0

    def __len__(self) -> int:
        return self.num_rows

    @property
    def num_chunks(self) -> int:
        return len(self._chunks)

    @property
    def earliest_ns(self) -> int:
        return min(chunk.earliest_ns for chunk in self._chunks)

    def append(self, columns: Mapping[str, Column]) -> None:
        """Add a chunk; an empty one is left out."""
        start = columns["start"]
        if not len(start):
            return
        chunk = _Chunk(
            num_rows=len(start),
            first_row=self.num_rows,
            earliest_ns=int(start.min()),
            latest_ns=int(start.max()),
        )
        self._chunks.append(chunk)
        self.num_rows += len(start)
        self._samples.append(np.asarray(start[::SAMPLE_EVERY], np.int64).copy())
        self.add_columns(len(self._chunks) - 1, columns)

    def add_columns(self, index: int, columns: Mapping[str, Column]) -> None:
        """Give a chunk more columns."""
        chunk = self._chunks[index]
        for name, values in columns.items():
            assert len(values) == chunk.num_rows
            if self._held_bytes + values.nbytes <= MEMORY_BYTES:
                # A view would keep the whole batch that it comes from.
                chunk.arrays[name] = np.array(values)
                self._held_bytes += values.nbytes
            else:
                chunk.places[name] = self._spill(values)

    def _spill(self, values: Column) -> tuple[int, np.dtype[Any]]:
        if self._file is None:
            # Open as long as this object: it has no name, and is gone with it.
            self._file = tempfile.TemporaryFile(  # noqa: SIM115
                dir=self._scratch, prefix="warpboard-", buffering=0
            )
        at = self._file_bytes
        data = np.ascontiguousarray(values).data.cast("B")
        written = 0
        while written < len(data):
            written += os.pwrite(self._file.fileno(), data[written:], at + written)
        self._file_bytes += len(data)
        return at, values.dtype

    def first_row(self, index: int) -> int:
        return self._chunks[index].first_row

    def read(self, index: int, names: Sequence[str]) -> dict[str, Column]:
        """Return columns of one chunk; not to be written to."""
        chunk = self._chunks[index]
        return {
            name: chunk.arrays[name] if name in chunk.arrays else self._from_file(chunk, name)
            for name in names
        }

    def _from_file(self, chunk: _Chunk, name: str) -> Column:
        at, dtype = chunk.places[name]
        found = np.empty(chunk.num_rows, dtype)
        assert self._file is not None
        view = found.data.cast("B")
        read = 0
        while read < len(view):
            got = os.preadv(self._file.fileno(), [view[read:]], at + read)
            if not got:
                raise OSError("the temporary file is shorter than what was written to it")
            read += got
        return found

    def between(self, low_ns: int, high_ns: int, names: Sequence[str]) -> dict[str, Column]:
        """Return the rows with low_ns <= start < high_ns, in the order of the table."""
        parts = []
        for index, chunk in enumerate(self._chunks):
            if chunk.latest_ns < low_ns or chunk.earliest_ns >= high_ns:
                continue
            found = self.read(index, names)
            if chunk.earliest_ns < low_ns or chunk.latest_ns >= high_ns:
                start = self.read(index, ["start"])["start"]
                keep = np.flatnonzero((start >= low_ns) & (start < high_ns))
                found = {name: values[keep] for name, values in found.items()}
            parts.append(found)
        if len(parts) == 1:
            return parts[0]
        return {n: np.concatenate([p[n] for p in parts]) for n in names} if parts else {}

    @property
    def samples(self) -> Ints:
        """Return every SAMPLE_EVERY-th `start`."""
        return np.concatenate([np.empty(0, np.int64), *self._samples])


def time_windows(tables: Sequence[Chunks]) -> Iterator[tuple[int, int]]:
    """Give (low, high) bounds of `start` so that each holds about WINDOW_ROWS rows of all tables.

    Rows of one and the same time stay in one window.
    """
    samples = np.sort(np.concatenate([table.samples for table in tables]))
    step = WINDOW_ROWS // SAMPLE_EVERY
    bounds = [FIRST_NS, *np.unique(samples[step::step]).tolist(), LAST_NS]
    yield from pairwise(bounds)
