"""The small picture of a study: its first table as lines or bars, without axes, as SVG text."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.colours import NEUTRAL
from analysis.studies import Table
from analysis.studies.engine.drawn import value_colours
from app.pictures import Thumbnail

WIDTH, HEIGHT = 240, 84
MAX_BARS = 18
MAX_LINES = 6


def thumbnail(tables: Iterable[tuple[Table, pd.DataFrame]]) -> Thumbnail:
    """Return the picture of a study's first table that has values of our runs, else of any.

    `tables`: its tables with what they draw (`analysis.studies.drawn_cells`).
    """
    theirs = ""
    for table, frame in tables:
        known = frame[frame["value"].notna()]
        ours = known[known["provenance"] == "measured"]
        if len(ours):
            ids = {run_id for run_ids in ours["run_ids"] for run_id in run_ids}
            return Thumbnail(svg=_drawn(table, ours), num_runs=len(ids))
        theirs = theirs or (_drawn(table, known) if len(known) else "")
    return Thumbnail(svg=theirs, num_runs=0)


def _drawn(table: Table, rows: pd.DataFrame) -> str:
    chart, records = table.chart, rows.to_dict("records")
    colour = chart.colour if chart else next(iter(table.rows), "")
    colours = value_colours(rows, colour) if colour in rows else {}
    svg = _lines(records, chart.x, colour, colours) if chart and chart.kind == "loglog" else ""
    return svg or _bars(records, colour, colours)


def _bars(rows: Sequence[dict[str, Any]], field: str, colours: Mapping[str, str]) -> str:
    """Return upright bars, the widest range on a logarithmic axis."""
    shown = list(rows)[:MAX_BARS]
    values = [abs(float(row["value"])) for row in shown]
    top = max(values)
    if not top:
        return ""
    least = min((v for v in values if v > 0), default=top)
    is_wide = top > 100 * least
    pitch = WIDTH / len(shown)
    marks = []
    for i, (row, value) in enumerate(zip(shown, values, strict=True)):
        share = value / top
        if is_wide:
            low = math.log10(least) - 0.3
            share = (math.log10(max(value, least)) - low) / (math.log10(top) - low)
        height = max(2.0, share * (HEIGHT - 4))
        fill = colours.get(_text(row.get(field)), NEUTRAL)
        marks.append(
            f'<rect x="{i * pitch:.1f}" y="{HEIGHT - height:.1f}" width="{pitch * 0.78:.1f}"'
            f' height="{height:.1f}" rx="1.5" fill="{fill}"/>'
        )
    return _svg(marks)


def _lines(rows: Sequence[dict[str, Any]], x: str, field: str, colours: Mapping[str, str]) -> str:
    """Return lines on logarithmic axes; nothing where no line has two points."""
    points: dict[str, dict[float, float]] = {}
    for row in rows:
        place = _number(row.get(x))
        if place and float(row["value"]) > 0:
            line = points.setdefault(_text(row.get(field)), {})
            line.setdefault(math.log10(place), math.log10(float(row["value"])))
    lines = {k: sorted(v.items()) for k, v in points.items() if len(v) > 1}
    if not lines:
        return ""
    every = [p for line in lines.values() for p in line]
    (x0, x1), (y0, y1) = ((min(v), max(v)) for v in zip(*every, strict=True))
    marks = []
    for name, places in list(lines.items())[:MAX_LINES]:
        path = " ".join(
            f"{4 + (WIDTH - 8) * (px - x0) / ((x1 - x0) or 1):.1f},"
            f"{HEIGHT - 4 - (HEIGHT - 8) * (py - y0) / ((y1 - y0) or 1):.1f}"
            for px, py in places
        )
        stroke = colours.get(name, NEUTRAL)
        marks.append(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="2.5"/>'
        )
    return _svg(marks)


def _svg(marks: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' preserveAspectRatio="none">{"".join(marks)}</svg>'
    )


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if number > 0 else None
