"""Records of single operations that are too many for memory: a Parquet file until it is stored."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from captures.manifest import not_waiting


def parquet_settings(schema: pa.Schema) -> dict[str, Any]:
    """Return how records are best written: times as differences, the few other values as codes.

    A third of the size and half of the time of pyarrow's defaults, which try codes for every time.
    """
    times = [f.name for f in schema if f.name.endswith("_ns") and pa.types.is_int64(f.type)]
    return {
        "compression": "zstd",
        "use_dictionary": [name for name in schema.names if name not in times],
        "column_encoding": dict.fromkeys(times, "DELTA_BINARY_PACKED"),
    }


Change = Callable[[pa.Table], pa.Table]
"""What is done to a batch of records; it leaves columns alone that the batch lacks."""


def is_whole(path: Path) -> bool:
    """Say whether a file of records is there to its end: a power cut may leave an empty one."""
    try:
        with open(path, "rb", opener=not_waiting) as file:
            begin = file.read(4)
            file.seek(-8, os.SEEK_END)  # the footer's length, and the same sign
            return begin == file.read()[4:] == b"PAR1"
    except OSError:
        return False


class SpanFile:
    """Records in a temporary Parquet file.

    The file is deleted with the last object that stands for it, or the one unpickled from that.
    """

    def __init__(
        self,
        path: Path,
        num_rows: int,
        column_names: tuple[str, ...],
        changes: tuple[Change, ...] = (),
        owner: "_Owner | None" = None,
    ) -> None:
        """`changes`: what is done to every batch when it is read or stored."""
        self.path = path
        self.num_rows = num_rows
        self.column_names = column_names
        self._changes = changes
        self._owner = owner or _Owner(path)

    def __reduce__(self) -> tuple[type["SpanFile"], tuple[Any, ...]]:
        self._owner.deletion.detach()
        return type(self), (self.path, self.num_rows, self.column_names, self._changes)

    def __len__(self) -> int:
        return self.num_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Give the records, a row group at a time; all columns if None."""
        with pq.ParquetFile(self.path) as file:
            for index in range(file.num_row_groups):
                batch = file.read_row_group(index, columns=columns)
                for change in self._changes:
                    batch = change(batch)
                yield batch

    def greatest(self, column: str) -> int:
        """Return a whole-number column's greatest value."""
        return max(int(pc.max(batch[column]).as_py()) for batch in self.batches([column]))

    def least(self, column: str) -> int:
        """Return a whole-number column's least value."""
        return min(int(pc.min(batch[column]).as_py()) for batch in self.batches([column]))

    def changed(self, change: Change) -> "SpanFile":
        """Return the records with every batch changed; the file is written anew when stored."""
        changes = (*self._changes, change)
        return SpanFile(self.path, self.num_rows, self.column_names, changes, self._owner)

    def store(self, target: Path) -> None:
        """Write the records to `target`."""
        if not self._changes:
            shutil.copyfile(self.path, target)
            return
        schema = pq.read_schema(self.path)
        with pq.ParquetWriter(target, schema, **parquet_settings(schema)) as writer:
            for batch in self.batches():
                writer.write_table(batch)


class _Owner:
    """Deletes a file when nothing refers to it any more."""

    def __init__(self, path: Path) -> None:
        self.deletion = weakref.finalize(self, _remove, path)


class SpanWriter:
    """Writes a `SpanFile` batch by batch, on a thread of its own; a context manager."""

    def __init__(self, scratch: Path | None) -> None:
        """`scratch`: folder of the file; the system's temporary one if None."""
        handle, name = tempfile.mkstemp(dir=scratch, prefix="warpboard-", suffix=".parquet")
        os.close(handle)
        self._path = Path(name)
        self._writer: pq.ParquetWriter | None = None
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[None] | None = None
        self._num_rows = 0
        self._names: tuple[str, ...] = ()

    def __enter__(self) -> "SpanWriter":
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        try:
            if self._pending is not None and not failed:
                self._pending.result()
        except BaseException:
            failed = True
            raise
        finally:
            self._beside.shutdown()
            if self._writer is not None:
                self._writer.close()
            if failed:
                _remove(self._path)

    def write(self, batch: pa.Table) -> None:
        """Write a batch while the caller makes the next one."""
        if self._writer is None:
            settings = parquet_settings(batch.schema)
            self._writer = pq.ParquetWriter(self._path, batch.schema, **settings)
            self._names = tuple(batch.column_names)
        if self._pending is not None:
            self._pending.result()
        self._pending = self._beside.submit(self._writer.write_table, batch)
        self._num_rows += batch.num_rows

    def finished(self) -> SpanFile:
        """Return the file, after the `with` block."""
        return SpanFile(self._path, self._num_rows, self._names)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
