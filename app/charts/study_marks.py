"""Marks of a study's charts: their looks and whiskers."""

import math
from collections.abc import Sequence

import numpy as np

from analysis.colours import NEUTRAL
from analysis.studies.engine.drawn import Row
from app.charts.base import plain, short


def by_series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the drawn rows of each series, in order; a series without any is left out."""
    rows_of: dict[str, list[Row]] = {}
    for row in rows:
        rows_of.setdefault(row["series"], []).append(row)
    return rows_of


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
