"""All studies at a glance: a small picture, the question in a sentence, how many runs feed it."""

import base64
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from analysis.studies import Study, list_studies
from app.charts.study_marks import series_colour
from app.ui import data, links
from app.ui.colours import category_colour, gpu_colour, origin_colour
from app.ui.format import many
from app.ui.study_view import place_of
from app.ui.widgets import plain_markdown

WIDTH, HEIGHT = 240, 84
MAX_BARS = 18
MAX_LINES = 6
BUDGET_S = 0.6
"""Time for pictures in one go: the page is there at once, the others come one after another."""
_OWN_COLOURS = {"gpu": gpu_colour, "category": category_colour, "origin": origin_colour}


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbnail:
    """What the gallery shows of a study besides its words."""

    svg: str
    "Empty where no run feeds it."
    num_runs: int


def gallery() -> None:
    """Draw a card a study, ours first."""
    studies = sorted(list_studies(), key=place_of)
    _cards([s for s in studies if not s.is_publication], key="ours")
    st.subheader("As published", anchor=False)
    _cards([s for s in studies if s.is_publication], key="published")


def _cards(studies: Sequence[Study], *, key: str) -> None:
    """Draw the cards at once; while pictures are missing, again every second with more of them."""
    is_first = True

    def draw() -> None:
        nonlocal is_first
        _grid(studies, budget_s=0 if is_first else BUDGET_S)
        is_first = False

    kept = data.kept_thumbnails()
    waits = any(study.name not in kept for study in studies)
    st.fragment(draw, run_every="1s" if waits else None)()


def _grid(studies: Sequence[Study], *, budget_s: float) -> None:
    end_s = time.monotonic() + budget_s
    grid = st.grid("auto", min_column_width=260, border=True, gap="small")
    kept = data.kept_thumbnails()
    pictures = {study.name: kept.get(study.name) for study in studies}
    for study in studies:
        if pictures[study.name] is None and time.monotonic() < end_s:
            pictures[study.name] = data.fetch_thumbnail(study.name, thumbnail)
        with grid.cell(), st.container(gap="xxsmall"):
            _card(study, pictures[study.name])
    if None in pictures.values() or all(name in kept for name in pictures):
        return
    st.rerun()


def _card(study: Study, found: Thumbnail | None) -> None:
    st.html(f'<div style="height:{HEIGHT}px">{_picture(found.svg) if found else ""}</div>')
    st.page_link(
        links.STUDIES, label=plain_markdown(study.title), query_params={"name": study.name}
    )
    fed = "\u2026" if found is None else _fed(study, found.num_runs)
    st.caption(plain_markdown(f"{study.question} {fed}"))


def _picture(svg: str) -> str:
    """Return a picture as HTML; the page takes no SVG as it is."""
    if not svg:
        return ""
    text = base64.b64encode(svg.encode()).decode()
    return (
        f'<img alt="" src="data:image/svg+xml;base64,{text}"'
        f' style="width:100%;height:{HEIGHT}px;display:block">'
    )


def _fed(study: Study, num_runs: int) -> str:
    if num_runs:
        return f"{many(num_runs, 'run')} feed it." if num_runs > 1 else "One run feeds it."
    has_figures = any(table.sources for table in study.tables)
    return "Published figures only." if has_figures else "No run feeds it yet."


def thumbnail(study: Study, frame: pd.DataFrame) -> Thumbnail:
    """Return the picture of a study's first table that has values, our runs before others'.

    `frame`: its tidy cells (`analysis.studies.study_cells`).
    """
    known = frame[frame["value"].notna()]
    ours = known[known["provenance"] == "measured"]
    ids = {run_id for run_ids in ours["run_ids"] for run_id in run_ids}
    for rows in (ours, known):
        for table in study.tables:
            value = table.chart.value if table.chart else table.values[0].key
            mine = rows[(rows["table"] == table.title) & (rows["value_key"] == value)]
            if len(mine):
                chart = table.chart
                colour = chart.colour if chart else next(iter(table.rows), "")
                is_line = chart is not None and chart.kind == "loglog"
                records = mine.to_dict("records")
                svg = _lines(records, chart.x, colour) if is_line and chart else ""
                return Thumbnail(svg=svg or _bars(records, colour), num_runs=len(ids))
    return Thumbnail(svg="", num_runs=len(ids))


def _colours(rows: Sequence[dict[str, Any]], field: str) -> dict[str, str]:
    """Return a colour for each value of a field: a GPU, a class and an origin have their own."""
    texts = list(dict.fromkeys(_text(row.get(field)) for row in rows))
    own = _OWN_COLOURS.get(field)
    return {text: own(text) if own else series_colour(i) for i, text in enumerate(texts)}


def _bars(rows: Sequence[dict[str, Any]], field: str) -> str:
    """Return upright bars, the widest range on a logarithmic axis."""
    shown = list(rows)[:MAX_BARS]
    values = [abs(float(row["value"])) for row in shown]
    colours = _colours(shown, field)
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
        marks.append(
            f'<rect x="{i * pitch:.1f}" y="{HEIGHT - height:.1f}" width="{pitch * 0.78:.1f}"'
            f' height="{height:.1f}" rx="1.5" fill="{colours[_text(row.get(field))]}"/>'
        )
    return _svg(marks)


def _lines(rows: Sequence[dict[str, Any]], x: str, field: str) -> str:
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
    colours = _colours(rows, field)
    marks = []
    for name, places in list(lines.items())[:MAX_LINES]:
        path = " ".join(
            f"{4 + (WIDTH - 8) * (px - x0) / ((x1 - x0) or 1):.1f},"
            f"{HEIGHT - 4 - (HEIGHT - 8) * (py - y0) / ((y1 - y0) or 1):.1f}"
            for px, py in places
        )
        marks.append(
            f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2.5"/>'
        )
    return _svg(marks)


def _svg(marks: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' preserveAspectRatio="none">{"".join(marks)}</svg>'
    )


def _text(value: object) -> str:
    return "" if value is None or value != value else escape(str(value))


def _number(value: object) -> float | None:
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if found > 0 else None
