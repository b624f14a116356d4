"""Read whole-number columns of a large table straight from its pages: a tenth of a driver's time.

Only the plainest of SQLite's tables is read here, as nsys writes it: a rowid table whose rows lie
whole in leaf pages, with as many values as the table has columns. Anything else, and anything that
does not fit to the byte, raises `NotPlainError`; the driver then reads on, and judges damage.
Source: https://www.sqlite.org/fileformat2.html, 1.6 and 2.1.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from captures.nsys_database import NsysDatabase

BATCH_PAGE_BYTES = 1 << 20
"""What is decoded at a time: it should stay in the processor's cache."""
LEAF, INTERIOR = 13, 5
MAX_DEPTH = 12
_NULL, _FLOAT, _ZERO, _ONE = 0, 7, 8, 9
_NUM_CODES = 128
_SIZES = np.zeros(_NUM_CODES, np.uint8)
_SIZES[:10] = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_SIZES[12:] = (np.arange(12, _NUM_CODES) - 12) // 2
"""Bytes of a value by its serial type; types of 128 and more take two bytes and are not read."""
_SHIFTS = np.array([63, 56, 48, 40, 32, 16, 0, 0, 63, 63], np.int64)

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class NotPlainError(Exception):
    """The table holds what only SQLite itself can read."""


def page_batches(
    database: NsysDatabase, table: str, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Give int64 columns of a table in the order of its rows; NotPlainError at the first doubt."""
    names = [r[1] for r in database.conn.execute(f'PRAGMA table_xinfo("{table}")')]
    sql = "SELECT rootpage, sql FROM sqlite_master WHERE type = 'table' AND name = ?"
    root, text = database.conn.execute(sql, (table,)).fetchone()
    if tuple(names) != tuple(database.tables[table]) or "PRIMARY KEY" in str(text).upper():
        raise NotPlainError("generated columns or a key")
    wanted = [names.index(c) for c in columns]
    with Path(unquote(urlsplit(database.uri).path)).open("rb", buffering=0) as file:
        pages = _Pages(file.fileno())
        leaves = _leaves(pages, int(root))
        step = max(BATCH_PAGE_BYTES // pages.size, 1)
        for first in range(0, len(leaves), step):
            batch = leaves[first : first + step]
            values = _decode(pages.read(batch), pages.size, len(names), wanted)
            yield pa.RecordBatch.from_arrays(values, names=list(columns))


def joined(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Give batches of about `num_rows` rows; what was read before an error is given first."""
    waiting: list[pa.RecordBatch] = []
    failed: NotPlainError | None = None
    while failed is None:
        try:
            waiting.append(next(batches))
        except StopIteration:
            break
        except NotPlainError as exc:
            failed = exc
        except IndexError as exc:  # a place beyond the last page
            failed = NotPlainError(str(exc))
        if failed is None and sum(b.num_rows for b in waiting) < num_rows:
            continue
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches() if waiting else ()
        waiting = []
    yield from pa.Table.from_batches(waiting).combine_chunks().to_batches() if waiting else ()
    if failed is not None:
        raise failed


class _Pages:
    """The pages of a database file, by number from 1."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        head = os.pread(handle, 100, 0)
        size = int.from_bytes(head[16:18], "big")
        self.size = 65536 if size == 1 else size
        if self.size < 512 or head[20] != 0:
            raise NotPlainError("page size")
        self.count = os.fstat(handle).st_size // self.size

    def read(self, numbers: Places) -> Bytes:
        """Return the pages one after the other, and 8 bytes more."""
        found = np.zeros(len(numbers) * self.size + 8, np.uint8)
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        at = 0
        for run in np.split(numbers, breaks):
            length = len(run) * self.size
            view = found.data[at : at + length]
            if os.preadv(self._handle, [view], (int(run[0]) - 1) * self.size) != length:
                raise NotPlainError("short read")
            at += length
        return found


def _leaves(pages: _Pages, root: int) -> Places:
    """Return the numbers of the leaf pages, in the order of their rows."""
    level = np.array([root], np.int64)
    for _ in range(MAX_DEPTH):
        if len(level) > pages.count or level.min() < 2 or level.max() > pages.count:
            break
        kind = int(pages.read(level[:1])[0])
        if kind == LEAF:
            if len(np.unique(level)) == len(level):
                return level
            break
        level = np.concatenate([_children(pages, number) for number in level.tolist()])
    raise NotPlainError("tree")


def _children(pages: _Pages, number: int) -> Places:
    page = pages.read(np.array([number], np.int64))
    if page[0] != INTERIOR:
        raise NotPlainError("tree")
    num_cells = int(page[3]) << 8 | int(page[4])
    pointers = page[12 : 12 + 2 * num_cells].view(">u2").astype(np.int64)
    if len(pointers) and pointers.max() > pages.size - 5:
        raise NotPlainError("cell pointer")
    parts = page[np.append(pointers, 8)[:, None] + np.arange(4)].astype(np.int64)
    return parts @ np.array([1 << 24, 1 << 16, 1 << 8, 1])


def _decode(page: Bytes, size: int, num_columns: int, wanted: Sequence[int]) -> list[pa.Array]:
    """Return the wanted columns of all rows of these leaf pages."""
    at, length = _records(page, size, num_columns)
    big = np.ndarray((len(page) - 7,), ">i8", page, 0, (1,))
    value = at + num_columns + 1
    end = value + length
    found: dict[int, pa.Array] = {}
    for c in range(num_columns):
        codes = page[at + (c + 1)]
        least, most = int(codes.min(initial=255)), int(codes.max(initial=0))
        if most >= _NUM_CODES:
            raise NotPlainError("long value")
        if c in wanted:
            found[c] = _column(big, value, codes, least, most)
        value = value + (int(_SIZES[most]) if least == most else _SIZES[codes])
    if (value != end).any():
        raise NotPlainError("record length")
    return [found[c] for c in wanted]


def _records(page: Bytes, size: int, num_columns: int) -> tuple[Places, Places]:
    """Return where each row's record begins, and the length of its values in all."""
    bases = np.arange(0, len(page) - 8, size)
    if (page[bases] != LEAF).any():
        raise NotPlainError("page kind")
    num_cells = page[bases + 3].astype(np.int64) << 8 | page[bases + 4]
    base = np.repeat(bases, num_cells)
    firsts = np.repeat(np.cumsum(num_cells) - num_cells, num_cells)
    slot = base + 8 + 2 * (np.arange(len(base)) - firsts)
    pointer = page[slot].astype(np.int64) << 8 | page[slot + 1]
    if len(base) and (pointer.min() < 8 or pointer.max() > size - 4):
        raise NotPlainError("cell pointer")
    payload, at = _short_number(page, base + pointer)
    at = _past_number(page, at)
    if (at + payload > base + size).any() or (page[at] != num_columns + 1).any():
        raise NotPlainError("record header")
    return at, payload - num_columns - 1


def _short_number(page: Bytes, at: Places) -> tuple[Places, Places]:
    """Return a number of one or two bytes, and where it ends."""
    high, low = page[at].astype(np.int64), page[at + 1].astype(np.int64)
    is_long = high >= 128
    if (is_long & (low >= 128)).any():
        raise NotPlainError("row size")
    return np.where(is_long, (high & 127) << 7 | low, high), at + 1 + is_long


def _past_number(page: Bytes, at: Places) -> Places:
    """Return where a number of any length ends."""
    for _ in range(9):
        goes_on = page[at] >= 128
        at = at + 1
        if not goes_on.any():
            return at
        if not goes_on.all():
            rest = np.flatnonzero(goes_on)
            at[rest] = _past_number(page, at[rest])
            return at
    raise NotPlainError("row id")


def _column(big: NDArray[Any], at: Places, codes: Bytes, least: int, most: int) -> pa.Array:
    if most > _ONE or (least <= _FLOAT <= most and (codes == _FLOAT).any()):
        raise NotPlainError("no whole number")
    if least == most:
        if _NULL < most < _FLOAT:
            return pa.array(big[at].astype(np.int64) >> int(_SHIFTS[most]))
        return pa.array(np.full(len(at), most == _ONE, np.int64), mask=np.full(len(at), not most))
    values = big[at].astype(np.int64)
    values >>= _SHIFTS[codes]
    if most >= _ZERO:
        values[codes == _ZERO] = 0
        values[codes == _ONE] = 1
    return pa.array(values, mask=codes == _NULL) if least == _NULL else pa.array(values)
