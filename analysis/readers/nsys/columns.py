"""Read integer columns of an nsys table into numpy, through Arrow: no Python object a cell.

SQLite holds any value in any column. What is not an integer counts as missing; rows that miss a
required value are left out and counted.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from captures.nsys_database import NsysDatabase
from captures.nsys_structure import DAMAGED
from core.errors import CaptureError

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Batch = Mapping[str, Ints]
BATCH_ROWS = 1 << 16
MISSING = -1
"""Stands for an optional value that is absent: ids, sizes and counts are never negative."""
MAX_TIME_NS = 1 << 60
"""36 years: a time or duration beyond it is damage, and sums of such could overflow."""


@dataclass(slots=True, kw_only=True)
class DroppedRows:
    """What was left out, by table, and tables whose columns do not suffice."""

    dropped: dict[str, tuple[int, int]] = field(default_factory=dict)
    "table -> (left out, all)"
    unreadable: dict[str, list[str]] = field(default_factory=dict)
    "table -> required columns that it lacks"
    absent: dict[str, list[str]] = field(default_factory=dict)
    "table with rows -> columns that every known export has and this one lacks"
    odd: dict[str, int] = field(default_factory=dict)
    "table -> cells that hold something else than their column should"

    def note(self, table: str, num_dropped: int, num_all: int) -> None:
        if num_dropped:
            self.dropped[table] = (num_dropped, num_all)

    def note_odd(self, table: str, num_odd: int) -> None:
        if num_odd:
            self.odd[table] = self.odd.get(table, 0) + num_odd


@dataclass(slots=True, kw_only=True)
class ColumnBatches:
    """The batches of one table, and how many rows were left out (known once all are read)."""

    database: NsysDatabase
    table: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    "Optional columns that many exports lack: their absence is not a finding."
    fills: Mapping[str, int] = field(default_factory=dict)
    "Sentinel for an absent value where MISSING could be a real one, by column."
    nullable: frozenset[str] = frozenset()
    "Columns that every known export leaves empty in some rows."
    num_rows: int = 0
    num_dropped: int = 0
    num_odd: int = 0
    "Cells without a whole number where the column holds one elsewhere; known once all are read."

    def __post_init__(self) -> None:
        self.table = self.database.actual(self.table)

    def __iter__(self) -> Iterator[Batch]:
        """Give each batch as int64 arrays by column; absent optional columns are all MISSING."""
        columns = (*self.required, *self.optional, *self.extra)
        present = [c for c in columns if self.database.has(self.table, c)]
        if not all(c in present for c in self.required):
            return
        # A row takes at least 4 bytes; more of them than fit means pages that refer to themselves.
        max_rows = self.database.path.stat().st_size // 4 + 1024
        empty = dict.fromkeys(present, 0)
        reading = _Reading(self.database, self.table, present)
        for batch in reading.batches():
            self.num_rows += batch.num_rows
            for index, name in enumerate(present):
                empty[name] += batch.column(index).null_count
            if self.num_rows > max_rows:
                raise CaptureError(
                    self.database.path,
                    f"{self.table} has more rows than its file can contain",
                    DAMAGED,
                )
            yield self._arrays(batch, present)
        judged = set(self.optional) - self.nullable
        self.num_odd = sum(n for c, n in empty.items() if c in judged and n < self.num_rows)
        if reading.met_another_type:
            unjudged = [c for c, n in empty.items() if c not in judged or n == self.num_rows]
            self.num_odd += num_of_other_types(self.database, self.table, unjudged)

    def num_expected(self) -> int:
        """Return how many rows the table has at most, at once: its largest row id."""
        if self.table not in self.database.tables:
            return 0
        sql = f'SELECT max(_rowid_) FROM "{self.table}"'
        try:
            last = self.database.conn.execute(sql).fetchone()[0]
        except sqlite3.OperationalError:  # WITHOUT ROWID: nsys makes none
            return 0
        return min(max(int(last or 0), 0), self.database.path.stat().st_size // 16)

    def sound(self) -> Iterator[Batch]:
        """Give the batches without rows whose times cannot be, which are counted as dropped."""
        for batch in self:
            is_sound = sound_times(batch["start"], batch["end"])
            if not is_sound.all():
                batch = self.without(batch, ~is_sound)
            yield batch

    def without(self, batch: Batch, dropped: NDArray[np.bool_]) -> Batch:
        """Return a batch without some rows, which are counted as dropped."""
        self.num_dropped += int(dropped.sum())
        return {name: values[~dropped] for name, values in batch.items()}

    def note_in(self, notes: DroppedRows) -> None:
        """Note what was left out; to be called once all is read."""
        notes.note(self.table, self.num_dropped, self.num_rows)
        notes.note_odd(self.table, self.num_odd)
        lacking = self._lacking(self.required)
        if lacking:
            notes.unreadable[self.table] = lacking
        absent = self._lacking(self.optional)
        if absent and self.num_rows > self.num_dropped:
            notes.absent[self.table] = absent

    def _lacking(self, columns: Sequence[str]) -> list[str]:
        if self.table not in self.database.tables:
            return []
        return [c for c in columns if not self.database.has(self.table, c)]

    def _arrays(self, batch: pa.RecordBatch, present: Sequence[str]) -> Batch:
        keep = _complete_rows(batch, self.required)
        if keep is not None:
            self.num_dropped += batch.num_rows - pc.sum(keep).as_py()
            batch = batch.filter(keep)
        arrays = {c: _to_numpy(batch.column(i), self._fill(c)) for i, c in enumerate(present)}
        absent = (c for c in (*self.optional, *self.extra) if c not in arrays)
        return arrays | {c: np.full(batch.num_rows, self._fill(c), np.int64) for c in absent}

    def _fill(self, column: str) -> int:
        return self.fills.get(column, MISSING)


class LaunchConfigEncoder:
    """Numbers distinct rows of several columns in the order they are met, batch by batch."""

    def __init__(self) -> None:
        self.codes: dict[tuple[int, ...], int] = {}
        "Distinct rows by their number."

    def encode(self, columns: Sequence[Ints]) -> Codes:
        """Return the code of each row."""
        if not len(columns[0]):
            return np.empty(0, np.int32)
        group, firsts = _first_rows(columns[0])
        for column in columns[1:]:
            # Most columns follow from those before: a kernel's name gives its registers.
            if np.array_equal(column, column[firsts][group]):
                continue
            values, uniques = _numbered(column)
            group, firsts = _first_rows(group * len(uniques) + values)
        rows = np.stack([column[firsts] for column in columns], axis=1).tolist()
        codes = [self.codes.setdefault(tuple(row), len(self.codes)) for row in rows]
        return np.array(codes, np.int32)[group]


def _first_rows(values: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the number of each value and where each comes first."""
    group, uniques = _numbered(values)
    firsts = np.empty(len(uniques), np.intp)
    firsts[group[::-1]] = np.arange(len(values) - 1, -1, -1)
    return group, firsts


def _numbered(values: Ints) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the number of each value, in the order they are met, and the values."""
    coded = pc.dictionary_encode(pa.array(values))
    return coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_numpy()


class Accumulated:
    """Columns that are filled batch by batch and taken one at a time: no table is there twice."""

    def __init__(self, num_expected: int, **dtypes: type[np.generic]) -> None:
        self._columns = {n: np.empty(num_expected, dtype) for n, dtype in dtypes.items()}
        self._num_expected = num_expected
        self.num_rows = 0

    def append(self, **columns: NDArray[Any]) -> None:
        """Add rows; a column that is not given stays MISSING."""
        num_new = len(next(iter(columns.values())))
        stop = self.num_rows + num_new
        if stop > self._num_expected:
            self._grow(max(stop, 2 * self._num_expected))
        for name, column in self._columns.items():
            column[self.num_rows : stop] = columns.get(name, MISSING)
        self.num_rows = stop

    def _grow(self, size: int) -> None:
        for name, column in self._columns.items():
            self._columns[name] = np.resize(column, size)
        self._num_expected = size

    def has(self, name: str) -> bool:
        return name in self._columns

    def take(self, name: str) -> NDArray[Any]:
        """Return a column, once."""
        return self._columns.pop(name)[: self.num_rows]

    def view(self, name: str) -> NDArray[Any]:
        """Return a column, to be read or written in its place."""
        return self._columns[name][: self.num_rows]

    def keep(self, rows: NDArray[np.bool_]) -> None:
        """Drop all other rows."""
        self._columns = {n: c[: self.num_rows][rows] for n, c in self._columns.items()}
        self.num_rows = self._num_expected = int(rows.sum())


def sound_times(start_ns: Ints, end_ns: Ints) -> NDArray[np.bool_]:
    """Say which events can be: end not before start, both within 36 years of the origin.

    CUPTI writes 0 and 0 for an operation whose times it could not get.
    """
    is_sound: NDArray[np.bool_] = (start_ns != 0) | (end_ns != 0)
    is_sound &= (start_ns <= end_ns) & (start_ns > -MAX_TIME_NS) & (end_ns < MAX_TIME_NS)
    return is_sound


def to_int32(values: Ints) -> Codes:
    """Return int32; what does not fit, or is below MISSING, becomes MISSING."""
    fits = (values >= MISSING) & (values <= np.iinfo(np.int32).max)
    return np.where(fits, values, MISSING).astype(np.int32)


def correlation_ids(values: Ints) -> Ints:
    """Return ids that fit CUPTI's 32 bits; 0, which CUPTI never assigns, for others."""
    return np.where((values > 0) & (values < 1 << 32), values, 0)


def num_of_other_types(
    database: NsysDatabase, table: str, columns: Sequence[str], kind: str = "integer"
) -> int:
    """Return how many cells of these columns hold neither a value of this kind nor nothing."""
    if not columns or not database.has(table, *columns):
        return 0
    cells = " + ".join(f"(typeof(\"{c}\") NOT IN ('{kind}', 'null'))" for c in columns)
    return int(database.conn.execute(f'SELECT total({cells}) FROM "{table}"').fetchone()[0])


def _complete_rows(batch: pa.RecordBatch, required: Sequence[str]) -> pa.Array | None:
    """Return the mask of rows with all required values, or None where every row has them."""
    arrays = [batch.column(batch.schema.get_field_index(c)) for c in required]
    if not any(a.null_count for a in arrays):
        return None
    keep = pc.is_valid(arrays[0])
    for array in arrays[1:]:
        keep = pc.and_(keep, pc.is_valid(array))
    return keep


def _to_numpy(array: pa.Array, fill: int) -> Ints:
    if array.null_count:
        array = array.fill_null(pa.scalar(fill, pa.int64()))
    return np.asarray(array.to_numpy(zero_copy_only=False), np.int64)


@dataclass(slots=True)
class _Reading:
    """One pass over plain columns."""

    database: NsysDatabase
    table: str
    columns: Sequence[str]
    met_another_type: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows; from the first cell on that is not an integer, through a filter."""
        plain = [f'"{c}"' for c in self.columns]
        num_read = 0
        try:
            for batch in _run(self.database, self.table, plain, offset=0):
                if any(not pa.types.is_int64(f.type) for f in batch.schema):
                    break
                num_read += batch.num_rows
                yield batch
            else:
                return
        except CaptureError as exc:
            if "mismatch" not in exc.where:
                raise
        self.met_another_type = True
        guarded = [f"CASE WHEN typeof({c}) = 'integer' THEN {c} END AS {c}" for c in plain]
        yield from _run(self.database, self.table, guarded, offset=num_read)


def _run(
    database: NsysDatabase, table: str, expressions: Sequence[str], *, offset: int
) -> Iterator[pa.RecordBatch]:
    # NOT INDEXED keeps the order of both readings that of the table itself.
    sql = f'SELECT {", ".join(expressions)} FROM "{table}" NOT INDEXED'
    sql += f" LIMIT -1 OFFSET {offset}" if offset else ""
    options = {"adbc.sqlite.query.batch_rows": BATCH_ROWS}
    try:
        with adbc.connect(database.uri) as conn, conn.cursor(adbc_stmt_kwargs=options) as cursor:
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as exc:
        why = " ".join(str(exc).split())[:200]
        raise CaptureError(database.path, f"{table} cannot be read ({why})", DAMAGED) from exc
