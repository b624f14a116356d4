"""What of a table a chart draws, and how its marks are called, on pages and in files alike."""

from collections.abc import Sequence

import pandas as pd

from analysis.studies.engine.records import Chart, Pivot, Table

SPEAKING = frozenset({"gpu", "workload", "model", "mode", "compile", "dtype", "kernel", "recorded"})
"""Fields whose values say by themselves what they are; others are written after their name."""
FIELD_TITLES = {
    "seq_len": "sequence length (tokens)",
    "context": "context (tokens)",
    "batch": "batch size",
    "gpu": "GPU",
    "compile": "compile mode",
    "d_model": "width of a head",
}


def drawn_rows(frame: pd.DataFrame, table: Table, pivot: Pivot) -> pd.DataFrame:
    """Return the tidy rows of the value that a table's chart draws, in the table's order."""
    assert table.chart is not None
    is_drawn = (frame["table"] == table.title) & (frame["value_key"] == table.chart.value)
    rows = frame[is_drawn]
    places = {key: place for place, key in enumerate(pivot.rows)}
    names = [n for n in pivot.row_fields if n in rows]
    keys = rows[names].itertuples(index=False, name=None)
    order = pd.Series([places.get(key, len(places)) for key in keys], index=rows.index, dtype=int)
    return rows.loc[order.sort_values(kind="stable").index]


def value_title(table: Table) -> str:
    """Return what the chart shows, with its unit: `latency (ms)`."""
    assert table.chart is not None
    value = next(v for v in table.values if v.key == table.chart.value)
    return f"{value.label} ({value.unit})" if value.unit else value.label


def field_title(name: str) -> str:
    """Return a field as an axis calls it, with its unit where it has one."""
    return FIELD_TITLES.get(name, name.replace("_", " "))


def is_by_row(chart: Chart, table: Table) -> bool:
    """True for bars that stand one group a row of the table, coloured by its columns."""
    return chart.kind == "stacked" or (chart.kind == "bars" and chart.colour in table.columns)


def row_labels(rows: pd.DataFrame, pivot: Pivot, chart: Chart) -> pd.Series:
    """Return a text for each drawn cell that names its row of the table: what rows differ in."""
    names = [n for n in pivot.row_fields if n not in ("from", chart.colour) and n in rows]
    varying = [n for n in names if rows[n].nunique() > 1] or [chart.x]
    told = [_told(rows[n], n) for n in varying]
    texts = pd.Series(["" for _ in range(len(rows))], index=rows.index, dtype=object)
    for part in told:
        texts = texts.where(part == "", texts + ", " + part)
    return texts.str.removeprefix(", ") + _sources(rows)


def _sources(rows: pd.DataFrame) -> pd.Series:
    is_published = rows["provenance"] == "published"
    return (" (" + rows["from"].astype(str) + ")").where(is_published, "")


def _told(values: pd.Series, name: str) -> pd.Series:
    texts = values.fillna("").astype(str)
    if name in SPEAKING:
        return texts
    return (f"{name.replace('_', ' ')} " + texts).where(texts != "", "")


def series_labels(rows: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Return a text for each drawn cell that names its line: the fields, the first one bare."""
    kept = [n for n in names if n in rows]
    texts = pd.Series(["" for _ in range(len(rows))], index=rows.index, dtype=object)
    for i, name in enumerate(kept):
        part = rows[name].fillna("").astype(str) if i == 0 else _told(rows[name], name)
        texts = texts.where(part == "", texts + ", " + part)
    return texts.str.removeprefix(", ") + _sources(rows)
