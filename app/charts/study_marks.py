"""Marks of a study's charts: their colours, looks and whiskers."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from analysis.export.svg import varied
from analysis.studies.engine.cells import CELL_COLUMNS
from analysis.studies.engine.drawn import Row
from analysis.studies.engine.fields import ORDER, sort_key
from app.charts.base import plain, short
from app.ui.colours import (
    NEUTRAL,
    SERIES_COLOURS,
    category_colour,
    gpu_colour,
    origin_colour,
)

_SHADES = ((0, 0.0), (255, 0.4), (0, 0.35), (255, 0.62), (0, 0.55))
"""What a colour is mixed with, and how much of that: itself, lighter, darker, ..."""
_CYCLE = {"model": 5}
"""Field -> after how many of its known values the colours begin anew: sizes, implementations."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon", "hexagon")


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
    found: dict[str, str] = {}
    met: Counter[str] = Counter()
    for text in texts:
        cycle = _CYCLE.get(field, len(known))
        place = known.index(text) % cycle if text in known else cycle + others.index(text)
        base = own(text) if own else series_colour(place)
        found[text] = shade(base, met[base])
        met[base] += 1
    return found


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
    found: dict[str, SeriesLook] = {}
    for row in rows:
        place = places[_identity(row, names)]
        base = colours.get(str(row[field]), NEUTRAL)
        look = SeriesLook(colour=shade(base, place), symbol=_SYMBOLS[place % len(_SYMBOLS)])
        found.setdefault(row["series"], look)
    return found


def _identity(row: Mapping[str, object], names: Sequence[str]) -> tuple[object, ...]:
    return (row["from"], *(_known(row[name]) for name in names))


def _known(value: object) -> object:
    """Return a cell of a frame, None where it is empty."""
    return None if value is None or value != value or value == "" else value


def by_series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the drawn rows of each series, in order; a series without any is left out."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["series"], []).append(row)
    return found


def number(text: object) -> float | None:
    """Return a field as a place on a number's axis; None where it is not a number."""
    try:
        return float(str(text))
    except ValueError:
        return None


def with_mark(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["value"] is not None or row["status"] == "oom"]


def look(rows: Sequence[Row], colour: str) -> dict[str, object]:
    """Return the marks of bars: hatched where published, OOM in letters where nothing was left."""
    published = [row["provenance"] == "published" for row in rows]
    return {
        "marker": {
            "color": colour,
            "opacity": [0.75 if p else 1.0 for p in published],
            "pattern": {
                "shape": ["/" if p else "" for p in published],
                "fillmode": "overlay",
                "fgcolor": "rgba(255,255,255,0.55)",
                "size": 7,
            },
        },
        "textposition": "outside",
        **_told(rows),
    }


def dots(rows: Sequence[Row], colour: str) -> dict[str, object]:
    """Return the marks of single values: rings where published, OOM in letters."""
    return {
        "mode": "markers+text",
        "marker": {
            "color": colour,
            "size": [0 if row["status"] == "oom" else 11 for row in rows],
            "symbol": [
                "circle-open" if row["provenance"] == "published" else "circle" for row in rows
            ],
            "line": {"width": 2},
        },
        "textposition": "middle right",
        **_told(rows),
    }


def _told(rows: Sequence[Row]) -> dict[str, object]:
    """Return what marks say beside them and when pointed at."""
    return {
        "text": ["OOM" if row["status"] == "oom" else "" for row in rows],
        "hovertext": [
            f"{short(row['series'], 90)}<br>{plain(row['text'])} {plain(row['unit'])}"
            for row in rows
        ],
        "hoverinfo": "text",
    }


def whiskers(rows: Sequence[Row]) -> dict[str, object] | None:
    if all(row.get("ci_low") is None for row in rows):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": np.array([_between(row["value"], row["ci_high"]) for row in rows]),
        "arrayminus": np.array([_between(row["ci_low"], row["value"]) for row in rows]),
        "thickness": 1.5,
        "width": 4,
        "color": NEUTRAL,  # plotly's own is black on a dark page
    }


def _between(low: float | None, high: float | None) -> float:
    """Return the length of one side; as `nan`, not null, a mark without an interval has none."""
    return math.nan if low is None or high is None else high - low
