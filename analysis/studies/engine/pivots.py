"""From the tidy frame to tables that can be printed, with the jobs for what is missing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.runview import RunView
from analysis.studies.engine.cells import CELL_COLUMNS, MEASURED, allowed
from analysis.studies.engine.fields import fields_of, following, job_for, sort_key
from analysis.studies.engine.records import Cell, Pivot, Table

Key = tuple[str, ...]


def make_pivot(table: Table, frame: pd.DataFrame, views: Sequence[RunView]) -> Pivot:
    """Lay one table's cells out. A field that would put two cells in one place becomes a row field.

    Ours come first, then each published source, in the order its author printed.
    """
    rows = _spread(frame[frame["table"] == table.title].reset_index(drop=True), table)
    row_fields = ["from", *table.rows]
    column_fields = [*table.columns, "value_key"]
    for name in ("from", *table.rows, *table.columns):
        if name not in rows:
            rows[name] = ""
    row_fields += _colliding(rows, [*row_fields, *column_fields])
    row_fields += _mixed(rows, row_fields, column_fields)
    labels = {v.key: f"{v.label} ({v.unit})" if v.unit else v.label for v in table.values}
    row_keys = _keys(rows, row_fields)
    column_keys = _keys(rows, column_fields, table)
    places = {
        (tuple(record[f] for f in row_fields), tuple(record[f] for f in column_fields)): record
        for record in rows.to_dict("records")
    }
    makers = [(v, f) for v in views if allowed(f := fields_of(v), table.where)]
    cells = tuple(
        tuple(
            _cell(places.get((r, c)), r, c, row_fields, column_fields, makers) for c in column_keys
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


def _spread(rows: pd.DataFrame, table: Table) -> pd.DataFrame:
    """Repeat a run without readings (OOM) under every column that the others' readings make.

    Such a column (an origin, a phase) is part of a reading, which a run that ended early lacks.
    """
    for name in {v.extra for v in table.values} & set(table.columns):
        if name not in rows:
            continue
        known = [value for value in dict.fromkeys(rows[name]) if value]
        alone = rows[rows[name] == ""]
        if known and len(alone):
            copies = [alone.assign(**{str(name): value}) for value in known]
            rows = pd.concat([rows[rows[name] != ""], *copies], ignore_index=True)
    return rows


def _colliding(rows: pd.DataFrame, used: Sequence[str]) -> list[str]:
    """Return the fields that tell apart cells which would fall on the same place."""
    extra: list[str] = []
    while True:
        groups = rows.groupby([*used, *extra], sort=False, dropna=False)
        crowded = rows[groups["value_key"].transform("size") > 1]
        if not len(crowded):
            return extra
        names = [c for c in rows if c not in CELL_COLUMNS and c not in used and c not in extra]
        place = crowded.groupby([*used, *extra], dropna=False).ngroup()
        counts = {name: _num_split(place, crowded[name]) for name in names}
        best = max(counts, key=lambda n: counts[n], default=None)
        if best is None or not counts[best]:
            return extra
        extra.append(best)


def _num_split(place: pd.Series, values: pd.Series) -> int:
    """Return how many places hold several known values."""
    known = values.notna()
    pairs = set(zip(place[known], values[known], strict=True))
    return sum(count > 1 for count in Counter(p for p, _ in pairs).values())


def _mixed(
    rows: pd.DataFrame, row_fields: Sequence[str], column_fields: Sequence[str]
) -> list[str]:
    """Return the fields that differ between our cells of one row: a row must be one sweep.

    A field that follows from one that is laid out (context from seq_len) may differ along with it.
    """
    ours = rows[rows["from"] == MEASURED]
    used = {*row_fields, *column_fields}
    names = [c for c in rows if c not in {*CELL_COLUMNS, *used, *following(used)}]
    found: list[str] = []
    for name in names:
        if (
            len(ours)
            and ours.groupby([*row_fields, *found], dropna=False)[name].nunique().max() > 1
        ):
            found.append(name)
    return found


def _keys(rows: pd.DataFrame, fields: Sequence[str], table: Table | None = None) -> list[Key]:
    """Return the distinct keys: measured sorted by each field, published as printed."""
    rows = rows.sort_values("position", kind="stable")
    seen = list(dict.fromkeys(tuple(r) for r in rows[list(fields)].itertuples(index=False)))
    if table is not None:
        order = {v.key: i for i, v in enumerate(table.values)}
        return sorted(seen, key=lambda k: (_sortable(fields[:-1], k[:-1]), order[k[-1]]))
    ours = [k for k in seen if k[0] == MEASURED]
    theirs = [k for k in seen if k[0] != MEASURED]
    return sorted(ours, key=lambda k: _sortable(fields, k)) + theirs


def _sortable(fields: Sequence[str], key: Key) -> tuple[tuple[int, float, str], ...]:
    return tuple(sort_key(name, text) for name, text in zip(fields, key, strict=True))


def _cell(
    record: Mapping[Any, Any] | None,
    row: Key,
    column: Key,
    row_fields: Sequence[str],
    column_fields: Sequence[str],
    makers: Sequence[tuple[RunView, dict[str, str]]],
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
            job=_job(want, makers) if is_ours else None,
        )
    value, job = record["value"], None
    if record["status"] == "missing" and record["provenance"] == MEASURED:
        job = _again(record["run_ids"][0], makers)
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


def _again(run_id: str, makers: Sequence[tuple[RunView, dict[str, str]]]) -> dict[str, Any] | None:
    """Return the job of a run that lacks the number, to be run again with the study's profilers."""
    return next((job_for(v, f, f) for v, f in makers if v.run.id == run_id), None)


def _job(
    want: Mapping[str, str], makers: Sequence[tuple[RunView, dict[str, str]]]
) -> dict[str, Any] | None:
    """Return the nearest run's job with the wanted fields; None when that run already has them."""
    want = {name: value for name, value in want.items() if value}
    best = max(makers, key=lambda m: sum(m[1].get(n) == v for n, v in want.items()), default=None)
    if best is None or all(best[1].get(n) == v for n, v in want.items()):
        return None
    return job_for(best[0], best[1], want)
