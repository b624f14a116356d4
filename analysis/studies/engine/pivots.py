"""From the tidy frame to tables that can be printed, with the jobs for what is missing."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import pandas as pd

from analysis.runview import RunView
from analysis.studies.engine.cells import CELL_COLUMNS, MEASURED, Record, allowed
from analysis.studies.engine.drawn import ALWAYS_SHOWN
from analysis.studies.engine.fields import fields_of, implied_by, job_for, sort_key
from analysis.studies.engine.records import Cell, Pivot, Table

Key = tuple[str, ...]


def make_pivot(table: Table, frame: pd.DataFrame, views: Sequence[RunView]) -> Pivot:
    """Lay one table's cells out. A field that would put two cells in one place becomes a row field.

    Ours come first, then each published source, in the order its author printed. An empty cell
    carries a job; in a column of a size, where another run of its workload has that size.
    """
    mine = frame[frame["table"] == table.title]
    names = list(mine)
    by_column = [mine[name].tolist() for name in names]
    records = [dict(zip(names, values, strict=True)) for values in zip(*by_column, strict=True)]
    rows = _spread(records, table)
    row_fields = ["from", *table.rows]
    column_fields = [*table.columns, "value_key"]
    lacking = {name: "" for name in (*row_fields, *column_fields) if name not in frame}
    rows = [row | lacking for row in rows]
    fields = [name for name in (*frame, *lacking) if name not in CELL_COLUMNS]
    row_fields += _always_shown(rows, {*row_fields, *column_fields})
    row_fields += _colliding(rows, [*row_fields, *column_fields], fields)
    row_fields += _mixed(rows, row_fields, column_fields, fields)
    labels = {v.key: f"{v.label} ({v.unit})" if v.unit else v.label for v in table.values}
    row_keys = _keys(rows, row_fields)
    column_keys = _keys(rows, column_fields, table)
    places = {(_key(record, row_fields), _key(record, column_fields)): record for record in rows}
    makers = _Makers([(v, f) for v in views if allowed(f := fields_of(v), table.where)])
    workloads = {_key(record, row_fields): record.get("workload") for record in rows}
    met = {(record.get("workload"), _key(record, column_fields)) for record in rows}
    cells = tuple(
        tuple(
            _cell(
                places.get((r, c)),
                r,
                c,
                row_fields,
                column_fields,
                makers if (workloads[r], c) in met or not _is_size(c) else _Makers(()),
            )
            for c in column_keys
        )
        for r in row_keys
    )
    columns = tuple(" / ".join([*(p for p in c[:-1] if p), labels[c[-1]]]) for c in column_keys)
    return Pivot(
        title=table.title,
        row_fields=tuple(row_fields),
        rows=tuple(row_keys),
        columns=columns,
        cells=cells,
    )


def _is_size(column: Key) -> bool:
    return any(text.isdigit() for text in column[:-1])


def _always_shown(rows: Sequence[Record], used: Set[str]) -> list[str]:
    """Return the fields that are always shown where measured cells differ in them."""
    ours = [row for row in rows if row["from"] == MEASURED]
    return [
        n for n in ALWAYS_SHOWN if n not in used and len({r.get(n) or "" for r in ours} - {""}) > 1
    ]


def _spread(rows: list[Record], table: Table) -> list[Record]:
    """Repeat a run without readings (OOM) under every column that the others' readings make.

    Such a column (an origin, a phase) is part of a reading, which a run that ended early lacks.
    """
    for name in {v.extra for v in table.values if v.extra} & set(table.columns):
        known = list(dict.fromkeys(row[name] for row in rows if row.get(name)))
        alone = [row for row in rows if row.get(name) == ""]
        if known and alone:
            rows = [row for row in rows if row[name] != ""]
            rows += [{**row, name: value} for value in known for row in alone]
    return rows


def _colliding(rows: list[Record], used: Sequence[str], fields: Sequence[str]) -> list[str]:
    """Return the fields needed to separate cells that would share a place."""
    codes = _Codes(rows)
    extra: list[str] = []
    while True:
        places = codes.groups([*used, *extra])
        names = [name for name in fields if name not in used and name not in extra]
        counts = {name: codes.num_split(places, name) for name in names}
        best = max(counts, key=lambda n: counts[n], default=None)
        if best is None or not counts[best]:
            return extra
        extra.append(best)


class _Codes:
    """The values of each field as small numbers, by which rows are grouped quickly."""

    def __init__(self, rows: Sequence[Record]) -> None:
        self._rows = rows
        self._known: dict[str, np.ndarray] = {}

    def of(self, name: str) -> np.ndarray:
        """Return a number for each row: equal numbers, equal values."""
        if name not in self._known:
            values = np.array([row[name] for row in self._rows], dtype=object)
            self._known[name] = pd.factorize(values)[0]
        return self._known[name]

    def groups(self, names: Sequence[str]) -> np.ndarray:
        """Return the group of each row: rows of one group are equal in these fields."""
        found = np.zeros(len(self._rows), dtype=np.int64)
        for name in names:
            codes = self.of(name)
            found = pd.factorize(found * (codes.max(initial=0) + 1) + codes)[0]
        return found

    def num_split(self, groups: np.ndarray, name: str) -> int:
        """Return in how many groups a field has several values; one not stated ("") counts."""
        codes = self.of(name)
        of_first = np.empty(groups.max(initial=-1) + 1, dtype=np.int64)
        of_first[groups[::-1]] = codes[::-1]  # the first row of a group writes last
        return int(np.count_nonzero(np.bincount(groups[codes != of_first[groups]])))


def _key(row: Record, names: Sequence[str]) -> Key:
    return tuple(row[name] for name in names)


def _mixed(
    rows: Sequence[Record],
    row_fields: Sequence[str],
    column_fields: Sequence[str],
    fields: Sequence[str],
) -> list[str]:
    """Return the fields that differ between our cells of one row: a row must be one sweep.

    A field that follows from one that is laid out (context from seq_len) may differ along with it.
    """
    ours = [row for row in rows if row["from"] == MEASURED]
    used = {*row_fields, *column_fields}
    codes = _Codes(ours)
    mixed: list[str] = []
    groups = codes.groups(row_fields)
    for name in (n for n in fields if n not in {*used, *implied_by(used)}):
        if codes.num_split(groups, name):
            mixed.append(name)
            groups = codes.groups([*row_fields, *mixed])
    return mixed


def _keys(rows: Sequence[Record], fields: Sequence[str], table: Table | None = None) -> list[Key]:
    """Return the distinct keys: measured sorted by each field, published as printed."""
    rows = sorted(rows, key=lambda row: row["position"])
    seen = list(dict.fromkeys(_key(row, fields) for row in rows))
    if table is not None:
        order = {v.key: i for i, v in enumerate(table.values)}
        return sorted(seen, key=lambda k: (_sortable(fields[:-1], k[:-1]), order[k[-1]]))
    ours = [k for k in seen if k[0] == MEASURED]
    theirs = [k for k in seen if k[0] != MEASURED]
    return sorted(ours, key=lambda k: _sortable(fields, k)) + theirs


def _sortable(fields: Sequence[str], key: Key) -> tuple[tuple[int, float, str], ...]:
    return tuple(sort_key(name, text) for name, text in zip(fields, key, strict=True))


def _cell(
    record: Record | None,
    row: Key,
    column: Key,
    row_fields: Sequence[str],
    column_fields: Sequence[str],
    makers: "_Makers",
) -> Cell:
    if record is None:
        is_ours = row[0] == MEASURED
        want = dict(zip(row_fields[1:], row[1:], strict=True))
        want |= dict(zip(column_fields[:-1], column[:-1], strict=True))
        return Cell(
            text="",
            value=None,
            unit="",
            status="missing",
            provenance=MEASURED if is_ours else "published",
            source=None if is_ours else row[0].removeprefix("published: "),
            job=makers.nearest(want) if is_ours else None,
        )
    value, job = record["value"], None
    if record["status"] == "missing" and record["provenance"] == MEASURED:
        job = makers.again(record["run_ids"][0])
    return Cell(
        text=record["text"],
        value=None if value is None or value != value else float(value),
        unit=record["unit"],
        status=record["status"],
        provenance=record["provenance"],
        source=record["source"] if record["provenance"] != MEASURED else None,
        run_ids=tuple(record["run_ids"]),
        job=job,
    )


class _Makers:
    """Our runs of a table with their fields: whose jobs fill its cells."""

    def __init__(self, runs: Sequence[tuple[RunView, dict[str, str]]]) -> None:
        self._runs = runs
        self._having: dict[tuple[str, str], np.ndarray] = {}
        for place, (_, fields) in enumerate(runs):
            for item in fields.items():
                self._having.setdefault(item, np.zeros(len(runs), dtype=np.int64))[place] = 1

    def again(self, run_id: str) -> dict[str, Any] | None:
        """Return the job of a run that lacks the number, to be run with the study's profilers."""
        return next((job_for(v, f, f) for v, f in self._runs if v.run.id == run_id), None)

    def nearest(self, want: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the nearest run's job with the wanted fields; None if that run has them all."""
        if not self._runs:
            return None
        want = {name: value for name, value in want.items() if value}
        num_equal = np.zeros(len(self._runs), dtype=np.int64)
        for item in want.items():
            num_equal += self._having.get(item, 0)
        view, fields = self._runs[int(num_equal.argmax())]
        return None if want.items() <= fields.items() else job_for(view, fields, want)
