"""Which rows of a table a chart shows, their labels and colours, on pages and in exported files."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from analysis.colours import (
    BLACK,
    NEUTRAL,
    WHITE,
    category_colour,
    gpu_colour,
    mixed,
    origin_colour,
    series_colour,
)
from analysis.studies.engine.cells import CELL_COLUMNS
from analysis.studies.engine.fields import ORDER, implied_by, sort_key
from analysis.studies.engine.records import Chart, Pivot, Table

Row = dict[str, Any]
"""One cell of a study's tidy frame; None is what is not known."""
SELF_EXPLANATORY = frozenset(
    {"gpu", "workload", "model", "mode", "compile", "dtype", "kernel", "recorded"}
)
"""Fields whose values are clear without their name; others are written after it."""
ALWAYS_SHOWN = ("dtype",)
"""Fields shown wherever they differ: without its dtype a bf16 run reads as an fp32 one."""
WIDE_RATIO = 100.0
MAX_BAR_ROWS = 40
"""Rows of a table that bars are drawn for: more of them are read in the table."""
FIELD_TITLES = {
    "seq_len": "sequence length (tokens)",
    "context": "context (tokens)",
    "batch": "batch size",
    "gpu": "GPU",
    "compile": "compile mode",
    "d_model": "width of a head",
}


def drawn_rows(frame: pd.DataFrame, table: Table, pivot: Pivot) -> list[Row]:
    """Return the tidy rows of the value that a table's chart draws, in the table's order."""
    assert table.chart is not None
    is_drawn = (frame["table"] == table.title) & (frame["value_key"] == table.chart.value)
    columns = {name: column.tolist() for name, column in frame[is_drawn].items()}
    rows = [
        {n: v if v == v else None for n, v in zip(columns, values, strict=True)}
        for values in zip(*columns.values(), strict=True)
    ]
    places = {key: place for place, key in enumerate(pivot.rows)}
    names = [n for n in pivot.row_fields if n in frame]
    return sorted(rows, key=lambda r: places.get(tuple(r[n] for n in names), len(places)))


def placed_rows(rows: Sequence[Row], table: Table, pivot: Pivot) -> list[Row]:
    """Return the rows with `series`, the line or colour of a mark, and `label`, its place.

    Of a heat map the lines that go over several places alone are kept.
    """
    chart = table.chart
    assert chart is not None
    if is_by_row(chart, table):
        labels = row_labels(rows, pivot, chart)
        return [
            {**row, "series": str(row[chart.colour]), "label": label}
            for row, label in zip(rows, labels, strict=True)
        ]
    known = dict.fromkeys([chart.colour, *pivot.row_fields, *table.columns])
    names = [n for n in known if rows and n in rows[0] and n not in (chart.x, "from")]
    if chart.kind == "heatmap":
        rows = of_sweeps(rows, names, chart.x)
    series = series_labels(rows, distinguishing_fields(rows, names, kept=[chart.colour]))
    return [
        {**row, "series": name, "label": str(row[chart.x])}
        for row, name in zip(rows, series, strict=True)
    ]


def value_title(table: Table) -> str:
    """Return what the chart shows, with its unit: `latency (ms)`."""
    assert table.chart is not None
    return value_text(table, table.chart.value)


def value_text(table: Table, key: str) -> str:
    """Return a value of a table by its label and unit."""
    value = next(v for v in table.values if v.key == key)
    return f"{value.label} ({value.unit})" if value.unit else value.label


def field_title(name: str) -> str:
    """Return a field as an axis calls it, with its unit where it has one."""
    return FIELD_TITLES.get(name, name.replace("_", " "))


def is_by_row(chart: Chart, table: Table) -> bool:
    """True for bars that stand one group a row of the table, coloured by what is compared."""
    compared = {*table.columns, table.compares}
    return chart.kind == "stacked" or (chart.kind == "bars" and chart.colour in compared)


def is_wide(values: Iterable[float | None]) -> bool:
    """Return whether bars of these values need a logarithmic axis to be seen."""
    known = [v for v in values if v is not None and v > 0]
    return bool(known) and max(known) > WIDE_RATIO * min(known)


def of_sweeps(rows: Sequence[Row], names: Sequence[str], x: str) -> list[Row]:
    """Return the cells whose line (equal fields `names`) goes over several x; all if none does.

    A heat map of lines of one cell each shows no more than their table.
    """
    lines: dict[tuple[object, ...], set[object]] = {}
    keys = [tuple(row[n] for n in names) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        lines.setdefault(key, set()).add(row[x])
    in_sweeps = [row for key, row in zip(keys, rows, strict=True) if len(lines[key]) > 1]
    return in_sweeps or list(rows)


def row_labels(rows: Sequence[Row], pivot: Pivot, chart: Chart) -> list[str]:
    """Return a label for each drawn cell: the fields in which the rows of its table differ."""
    names = [n for n in pivot.row_fields if n not in ("from", chart.colour)]
    names = [n for n in names if rows and n in rows[0]]
    varying = distinguishing_fields(rows, names) or [chart.x]
    return [label_of({n: row[n] for n in varying}) + _source(row) for row in rows]


def distinguishing_fields(
    rows: Sequence[Mapping[str, object]], names: Sequence[str], kept: Sequence[str] = ()
) -> list[str]:
    """Return `kept` and the fewest further names, in order, that distinguish rows as all do.

    The mode and ALWAYS_SHOWN are among them wherever they differ.
    """
    every = ("from", *kept, *names)
    kinds = {tuple(row.get(name) for name in every) for row in rows}
    rows = [dict(zip(every, kind, strict=True)) for kind in kinds]
    chosen = list(kept)
    for name in names:
        is_always_shown = name in (*ALWAYS_SHOWN, "mode") and _num_kinds(rows, [name]) > 1
        if name not in chosen and (
            is_always_shown or _num_kinds(rows, [*chosen, name]) > _num_kinds(rows, chosen)
        ):
            chosen.append(name)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class LineGroup:
    """Lines that are drawn together; each row's `legend` is what its line differs in."""

    title: str
    "What the lines share."
    rows: list[Row]


def grouped_lines(rows: Sequence[Row], colour: str, others: Sequence[str]) -> list[LineGroup]:
    """Group lines by all fields but the compared one, those with most points first.

    Lines alone in that are grouped by the compared field and labelled by the others. A group
    holds no row without the values that make it a line of its own, so no line is in two groups.
    """
    by_rest: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_rest.setdefault(tuple(_text(row[n]) for n in others), []).append(row)
    groups, single = [], []
    for lines in by_rest.values():
        if len({_text(row[colour]) for row in lines}) < 2:
            single += lines
            continue
        for row in lines:
            row["legend"] = field_label(row[colour], colour) + _source(row)
        groups.append(LineGroup(title=label_of({n: lines[0][n] for n in others}), rows=lines))
    groups.sort(key=lambda group: -len(group.rows))
    by_value: dict[str, list[Row]] = {}
    for row in single:
        by_value.setdefault(_text(row[colour]), []).append(row)
    for value, lines in by_value.items():
        varying = distinguishing_fields(lines, others)
        for row in lines:
            row["legend"] = label_of({n: row[n] for n in varying}) + _source(row)
        title = f"{field_label(value, colour)} alone"
        shared = label_of({n: lines[0][n] for n in others if n not in varying})
        groups.append(LineGroup(title=_joined([title, shared]), rows=lines))
    return groups


def _num_kinds(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> int:
    return len({tuple(row.get(name) for name in ("from", *names)) for row in rows})


def series_labels(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return a label for each drawn cell's line: its fields, the first one without its name."""
    kept = [n for n in names if rows and n in rows[0]]
    return [
        _joined(
            _text(row[n]) if i == 0 and n != "gpu" else field_label(row[n], n)
            for i, n in enumerate(kept)
        )
        + _source(row)
        for row in rows
    ]


def label_of(fields: Mapping[str, object]) -> str:
    """Return fields as one label, never empty: if need be, of the switches that are off."""
    short = _joined(field_label(value, name) for name, value in fields.items())
    return short or _joined(
        f"{name.replace('_', ' ')} {_text(value)}" for name, value in fields.items() if _text(value)
    )


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(part for part in parts if part)


def _source(row: Row) -> str:
    return f" ({row['from']})" if row["provenance"] == "published" else ""


def field_label(value: object, name: str) -> str:
    """Return a field's value for a label, after its name unless it is self-explanatory.

    A switch that is on is its name alone; one that is off is left out.
    """
    text = _text(value)
    if text.lower() in ("true", "false"):
        return name.replace("_", " ") if text.lower() == "true" else ""
    if name == "gpu":
        return text.removeprefix("NVIDIA ")  # all of them share it
    if name == "compile" and text == "none":
        return "compile none"  # by itself it would say that nothing is known
    return text if not text or name in SELF_EXPLANATORY else f"{name.replace('_', ' ')} {text}"


def _text(value: object) -> str:
    return "" if value is None else str(value)


_SHADES = ((BLACK, 0.0), (WHITE, 0.4), (BLACK, 0.35), (WHITE, 0.62), (BLACK, 0.55))
"""What a colour is mixed with, and how much of that: itself, lighter, darker, ..."""
_CYCLE = {"model": 5}
"""Field -> number of known values after which its colours repeat: sizes, implementations."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon", "hexagon")


def value_colours(frame: pd.DataFrame, field: str) -> dict[str, str]:
    """Return the colour of each value of a field, one in all charts of a study.

    A GPU, a kernel's class and its origin have the colour that they have on every page.
    """
    known = ORDER.get(field, ())
    texts = sorted(map(str, frame[field].dropna().unique()), key=partial(sort_key, field))
    others = [text for text in texts if text not in known]
    own = {"gpu": gpu_colour, "origin": origin_colour, "category": category_colour}.get(field)
    colours: dict[str, str] = {}
    met: Counter[str] = Counter()
    for text in texts:
        cycle = _CYCLE.get(field, len(known))
        place = known.index(text) % cycle if text in known else cycle + others.index(text)
        base = own(text) if own else series_colour(place)
        colours[text] = shade(base, met[base])
        met[base] += 1
    return colours


def shade(colour: str, place: int) -> str:
    """Return a colour, or the shade of it for what shares it."""
    return mixed(colour, *_SHADES[place % len(_SHADES)])


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesLook:
    """How a series looks in every chart of its study."""

    colour: str
    symbol: str


def series_looks(
    frame: pd.DataFrame, rows: Sequence[Row], field: str, x_fields: Collection[str]
) -> dict[str, SeriesLook]:
    """Return the look of each drawn series: the colour of its `field`, in a shade of its own.

    A series is what differs in any field but `x_fields`; so it is the same in another table.
    """
    left_out = {*CELL_COLUMNS, *x_fields} - {field}
    names = [name for name in frame if name not in left_out]
    places: dict[tuple[object, ...], int] = {}
    met: Counter[object] = Counter()
    kinds = frame[["from", *names]].drop_duplicates().to_dict("records")
    for kind in kinds:
        if (key := _identity(kind, names)) not in places:
            value = _known(kind[field])
            places[key] = met[value]
            met[value] += 1
    colours = value_colours(frame, field)
    looks: dict[str, SeriesLook] = {}
    for row in rows:
        place = places[_identity(row, names)]
        base = colours.get(str(row[field]), NEUTRAL)
        look = SeriesLook(colour=shade(base, place), symbol=SYMBOLS[place % len(SYMBOLS)])
        looks.setdefault(row["series"], look)
    return looks


def x_fields_of(table: Table) -> set[str]:
    """Return the fields along which a series of the table's chart goes on."""
    assert table.chart is not None
    fields = {table.chart.x, *table.columns}
    return fields | implied_by(fields)


def chart_colours(frame: pd.DataFrame, rows: Sequence[Row], table: Table) -> dict[str, str]:
    """Return the colour of each series of a table's chart, as it is on the page."""
    assert table.chart is not None
    field = table.chart.colour
    if is_by_row(table.chart, table):
        return value_colours(frame, field)
    looks = series_looks(frame, rows, field, x_fields_of(table))
    return {name: look.colour for name, look in looks.items()}


def _identity(row: Mapping[str, object], names: Sequence[str]) -> tuple[object, ...]:
    return (row["from"], *(_known(row[name]) for name in names))


def _known(value: object) -> object:
    """Return a cell of a frame, None where it is empty."""
    return None if value is None or value != value or value == "" else value
