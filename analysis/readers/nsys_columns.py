"""Read integer columns of an nsys table into numpy, through Arrow: no Python object a cell.

SQLite holds any value in any column. What is not an integer counts as missing; rows that miss a
required value are left out and counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.readers.nsys_pages import NotPlainError, joined, page_batches
from captures.nsys_database import NsysDatabase
from captures.nsys_structure import DAMAGED
from core.errors import CaptureError

Ints = NDArray[np.int64]
BATCH_ROWS = 1 << 16
MISSING = -1
"""Stands for an optional value that is absent: ids, sizes and counts are never negative."""
MIN_ROWS_BY_PAGE = 200_000
"""Smaller tables are read by the driver alone: they take no time."""
MAX_TIME_NS = 1 << 60
"""36 years: a time or duration beyond it is damage, and sums of such could overflow."""


@dataclass(slots=True, kw_only=True)
class ColumnBatches:
    """The batches of one table, and how many rows were left out (known once all are read)."""

    database: NsysDatabase
    table: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    where: str = ""
    "SQL condition on plain columns of the table; ours, never the file's."
    fills: Mapping[str, int] = field(default_factory=dict)
    "What stands for an absent value where MISSING could be a real one, by column."
    nullable: frozenset[str] = frozenset()
    "Columns that every known export leaves empty in some rows."
    num_dropped: int = 0
    num_odd: int = 0
    "Cells without a whole number where the column holds one elsewhere; known once all are read."
    max_rows: int = field(init=False)

    def __post_init__(self) -> None:
        # A row takes at least 4 bytes; more of them than fit means pages that refer to themselves.
        self.max_rows = self.database.path.stat().st_size // 4 + 1024

    def __iter__(self) -> Iterator[Mapping[str, Ints]]:
        """Give each batch as int64 arrays by column; absent optional columns are all MISSING."""
        present = [c for c in (*self.required, *self.optional) if self._has(c)]
        if not all(self._has(c) for c in self.required):
            return
        seen = 0
        empty = dict.fromkeys(present, 0)
        reading = _Reading(self.database, self.table, present, self.where)
        for batch in reading.batches():
            seen += batch.num_rows
            for index, name in enumerate(present):
                empty[name] += batch.column(index).null_count
            if seen > self.max_rows:
                raise CaptureError(
                    self.database.path, f"{self.table} has more rows than fit in it", DAMAGED
                )
            yield self._arrays(batch, present)
        judged = set(self.optional) - self.nullable
        self.num_odd = sum(n for c, n in empty.items() if c in judged and n < seen)
        if reading.met_another_type:
            unjudged = [c for c, n in empty.items() if c not in judged or n == seen]
            self.num_odd += num_of_other_types(self.database, self.table, unjudged)

    def _has(self, column: str) -> bool:
        return self.database.has(self.table, column)

    def _arrays(self, batch: pa.RecordBatch, present: Sequence[str]) -> dict[str, Ints]:
        keep = _complete_rows(batch, self.required)
        if keep is not None:
            self.num_dropped += batch.num_rows - pc.sum(keep).as_py()
            batch = batch.filter(keep)
        arrays = {c: _to_numpy(batch.column(i), self._fill(c)) for i, c in enumerate(present)}
        absent = (c for c in self.optional if c not in arrays)
        return arrays | {c: np.full(batch.num_rows, self._fill(c), np.int64) for c in absent}

    def _fill(self, column: str) -> int:
        return self.fills.get(column, MISSING)


def missing_columns(database: NsysDatabase, table: str, required: Sequence[str]) -> list[str]:
    """Return the required columns that a table lacks; [] also when the table itself is absent."""
    if table not in database.tables:
        return []
    return [c for c in required if not database.has(table, c)]


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
    return array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def num_of_other_types(
    database: NsysDatabase, table: str, columns: Sequence[str], kind: str = "integer"
) -> int:
    """Return how many cells of these columns hold neither a value of this kind nor nothing."""
    if not columns or not database.has(table, *columns):
        return 0
    cells = " + ".join(f"(typeof(\"{c}\") NOT IN ('{kind}', 'null'))" for c in columns)
    return int(database.conn.execute(f'SELECT total({cells}) FROM "{table}"').fetchone()[0])


@dataclass(slots=True)
class _Reading:
    """One pass over plain columns."""

    database: NsysDatabase
    table: str
    columns: Sequence[str]
    where: str
    met_another_type: bool = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the rows; from the first cell on that is no integer, through a filter."""
        plain = [f'"{c}"' for c in self.columns]
        num_read = 0
        if self.database.expected_rows(self.table) > MIN_ROWS_BY_PAGE and not self.where:
            try:
                for batch in joined(
                    page_batches(self.database, self.table, self.columns), BATCH_ROWS
                ):
                    num_read += batch.num_rows
                    yield batch
                return
            except NotPlainError:
                pass  # the driver reads on
        try:
            for batch in _run(self.database, self.table, plain, self.where, offset=num_read):
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
        yield from _run(self.database, self.table, guarded, self.where, offset=num_read)


def _run(
    database: NsysDatabase, table: str, expressions: Sequence[str], where: str, *, offset: int
) -> Iterator[pa.RecordBatch]:
    # NOT INDEXED keeps the order of both readings that of the table itself.
    sql = f'SELECT {", ".join(expressions)} FROM "{table}" NOT INDEXED'
    sql += f" WHERE {where}" if where else ""
    sql += f" LIMIT -1 OFFSET {offset}" if offset else ""
    options = {"adbc.sqlite.query.batch_rows": BATCH_ROWS}
    try:
        with adbc.connect(database.uri) as conn, conn.cursor(adbc_stmt_kwargs=options) as cursor:
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as exc:
        why = " ".join(str(exc).split())[:200]
        raise CaptureError(database.path, f"{table} cannot be read ({why})", DAMAGED) from exc
