"""The colour of each value and the look of each series of a study, on pages and in files."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from analysis.colours import (
    NEUTRAL,
    SERIES_COLOURS,
    category_colour,
    gpu_colour,
    origin_colour,
    varied,
)
from analysis.studies.engine.cells import CELL_COLUMNS
from analysis.studies.engine.drawn import Row, is_by_row
from analysis.studies.engine.fields import ORDER, implied_by, sort_key
from analysis.studies.engine.records import Table

_SHADES = ((0, 0.0), (255, 0.4), (0, 0.35), (255, 0.62), (0, 0.55))
"""What a colour is mixed with, and how much of that: itself, lighter, darker, ..."""
_CYCLE = {"model": 5}
"""Field -> number of known values after which its colours repeat: sizes, implementations."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon", "hexagon")


def series_colour(index: int) -> str:
    """Return a colour of its own for each of 24 series."""
    return varied(SERIES_COLOURS, index)


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
    mixed, share = _SHADES[place % len(_SHADES)]
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + share * (mixed - p)):02x}" for p in parts)


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
