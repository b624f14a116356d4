"""The shapes of a study: log-log lines, bars by row or by value, heat map with OOM.

Many lines are drawn in panels: in each, what the study compares with all else equal.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from analysis.colours import CATEGORY_COLOURS, NEUTRAL, ORIGIN_COLOURS
from analysis.studies import Pivot, Table
from analysis.studies.engine.drawn import (
    MAX_BAR_ROWS,
    SYMBOLS,
    Row,
    SeriesLook,
    distinguishing_fields,
    drawn_rows,
    field_label,
    field_title,
    grouped_lines,
    is_by_row,
    is_wide,
    placed_rows,
    series_looks,
    shade,
    value_colours,
    value_title,
    x_fields_of,
)
from analysis.studies.engine.fields import sort_key
from app.charts.base import (
    NARROW_CHARS,
    Chart,
    figure,
    name_rows,
    plain,
    row_pitch_px,
    short,
    unique_labels,
)
from core.numbers import decimal


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


PUBLISHED_DASH = "dot"
_MOST_SERIES = 24
_MOST_LINES = 8
"Most lines that remain distinguishable in one chart."
_MOST_TICKS = 12
_LEGEND_CHARS = 72
_TOLD_IN_LEGENDS = ("gpu", "compile", "ranks")
"Fields whose bare values say too little, or say the maker's name each time."
_PANEL_PX = 330
_BAR_PX = 12
_HEAT_MAP_CHARS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart of a table, and what all its lines share; empty where it is the table's only."""

    title: str
    chart: Chart


def draw(frame: pd.DataFrame, table: Table, pivot: Pivot) -> list[Panel]:
    """Draw the value that a table's chart names; nothing where no cell has one.

    `frame`: the tidy rows of a StudyTable.
    """
    chart = table.chart
    if chart is None or chart.x not in frame:
        return []
    rows = drawn_rows(frame, table, pivot)
    if all(row["value"] is None for row in rows):
        return []
    rows = placed_rows(rows, table, pivot)
    if is_by_row(chart, table):
        colours = value_colours(frame, chart.colour)
        return _alone(_by_row(_apart(rows, "label", "series"), table, colours))
    keyed = _apart(rows, "series", chart.x)
    if chart.kind == "heatmap":
        return _alone(_heatmap(keyed, chart.x, value_title(table)))
    looks = series_looks(frame, keyed, chart.colour, x_fields_of(table))
    if chart.kind != "loglog":
        return _alone(_bars(keyed, chart.x, value_title(table), looks))
    if len(by_series([r for r in keyed if r["value"] is not None])) <= _MOST_LINES:
        return _alone(_lines(keyed, chart.x, value_title(table), looks))
    names = [n for n in dict.fromkeys([*pivot.row_fields, *table.columns]) if n in frame]
    others = [n for n in names if n not in (chart.x, chart.colour, "from")]
    return _panels(keyed, table, others, value_colours(frame, chart.colour))


def _alone(fig: Chart) -> list[Panel]:
    return [Panel(title="", chart=fig)]


def _apart(rows: Sequence[Row], named: str, beside: str) -> list[Row]:
    """Number what would share a place: bars must never be stacked into a false sum."""
    seen: Counter[tuple[object, object]] = Counter()
    numbered = []
    for row in rows:
        place = (row[named], row[beside])
        seen[place] += 1
        number = f" #{seen[place]}" if seen[place] > 1 else ""
        numbered.append(row | {named: row[named] + number})
    return numbered


def _panels(
    rows: Sequence[Row], table: Table, others: Sequence[str], colours: Mapping[str, str]
) -> list[Panel]:
    """Draw many lines in panels of one scale, those in which most is compared first."""
    assert table.chart is not None
    x, colour = table.chart.x, table.chart.colour
    varying = distinguishing_fields(rows, others, kept=[colour])
    groups = grouped_lines(rows, colour, [name for name in varying if name != colour])
    values = [row["value"] for row in rows if row["value"]]
    y_range = [math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.35]
    panels = []
    for group in groups:
        mine = _group_looks(group.rows, colour, colours)
        fig = _lines(group.rows, x, value_title(table), mine, height=_PANEL_PX)
        fig.update_yaxes(range=y_range)
        panels.append(Panel(title=group.title, chart=fig))
    return panels


def _group_looks(
    rows: Sequence[Row], field: str, colours: Mapping[str, str]
) -> dict[str, SeriesLook]:
    """Return the looks of a panel's lines: the value's own colour, in shades where it has more."""
    looks: dict[str, SeriesLook] = {}
    met: Counter[str] = Counter()
    for row in rows:
        if row["series"] in looks:
            continue
        value = str(row[field])
        looks[row["series"]] = SeriesLook(
            colour=shade(colours.get(value, NEUTRAL), met[value]),
            symbol=SYMBOLS[met[value] % len(SYMBOLS)],
        )
        met[value] += 1
    return looks


def _lines(
    rows: Sequence[Row], x: str, title: str, looks: Mapping[str, SeriesLook], height: int = 0
) -> Chart:
    num_series = len({row["series"] for row in rows})
    height = height or 380 + 12 * num_series  # a legend is a line for each on a narrow screen
    fig = figure(height=height, x_title=field_title(x), y_title=title)
    shown = [row for row in rows if row["value"] is not None]
    for name, line in by_series(shown).items():
        look = looks[name]
        points = sorted(line, key=lambda row: _numeric(str(row[x])))
        is_published = any(row["provenance"] == "published" for row in points)
        fig.add(
            "scatter",
            x=[number(row[x]) for row in points],
            y=[row["value"] for row in points],
            name=short(points[0].get("legend", name), _LEGEND_CHARS),
            mode="lines+markers",
            line={"color": look.colour, "dash": PUBLISHED_DASH if is_published else "solid"},
            marker={"symbol": look.symbol + ("-open" if is_published else ""), "size": 9},
            error_y=whiskers(points),
            hovertext=[_at(row, x) for row in points],
        )
    _out_of_memory(fig, rows, x)
    known = sorted({v for row in rows if (v := number(row[x])) is not None})
    if len(known) <= _MOST_TICKS:
        fig.update_xaxes(tickvals=known, ticktext=[decimal(v, 6) for v in known])
    fig.update_xaxes(type="log")
    fig.update_yaxes(type="log", dtick=1, minor={"showgrid": True, "griddash": "dot"})
    return fig


def _at(row: Row, x: str) -> str:
    where = f"{plain(field_title(x))} {plain(row[x])}"
    return f"{short(row['series'], 90)}<br>{where}: {plain(row['text'])} {plain(row['unit'])}"


def _out_of_memory(fig: Chart, rows: Sequence[Row], x: str) -> None:
    """Mark along the top where runs ran out of memory: a result without a value."""
    lost = [row for row in rows if row["status"] == "oom"]
    if not lost:
        return
    top = max((row["value"] for row in rows if row["value"] is not None), default=1.0) * 1.6
    fig.add(
        "scatter",
        x=[number(row[x]) for row in lost],
        y=[top] * len(lost),
        name="out of memory",
        mode="markers",
        marker={"symbol": "x", "size": 9, "color": "#d55e00"},
        hovertext=[f"{short(row['series'], 90)}: out of memory" for row in lost],
    )


def _bars(rows: Sequence[Row], x: str, title: str, looks: Mapping[str, SeriesLook]) -> Chart:
    fig = figure(height=430, x_title=field_title(x), y_title=title, barmode="group")
    shown = with_mark(rows)
    for name, bars in list(by_series(shown).items())[:_MOST_SERIES]:
        fig.add(
            "bar",
            x=[_place_text(row[x]) for row in bars],
            y=[row["value"] or 0.0 for row in bars],
            name=short(name, 60),
            error_y=whiskers(bars),
            **look(bars, looks[name].colour),
        )
    texts = dict.fromkeys(_place_text(row[x]) for row in shown)
    fig.update_xaxes(type="category", categoryarray=sorted(texts, key=_numeric))
    return fig


def _place_text(value: object) -> str:
    return short("" if value is None else value, 34)


def _by_row(rows: Sequence[Row], table: Table, colours: Mapping[str, str]) -> Chart:
    """Draw one bar, or group of bars, a row of the table; dots where the axis is logarithmic."""
    assert table.chart is not None
    is_stacked = table.chart.kind == "stacked"
    shown = with_mark(rows)
    labels, title = list(dict.fromkeys(row["label"] for row in shown)), value_title(table)
    if len(labels) > MAX_BAR_ROWS:
        title += f"; the first {MAX_BAR_ROWS} of {len(labels)} rows, narrow with the filter"
        labels = labels[:MAX_BAR_ROWS]
        shown = [row for row in shown if row["label"] in labels]
    drawn = by_series(shown)
    names = sorted((n for n in drawn if n), key=partial(_place, table.chart.colour))
    fig = figure(x_title=title, barmode="stack" if is_stacked else "overlay")
    low = _log_axis(fig, [row["value"] for row in shown]) if not is_stacked else 0.0
    if low:
        fig.update_xaxes(title={"text": plain(f"{title}, logarithmic axis")})
    texts = dict(zip(labels, unique_labels(labels, 110, width=NARROW_CHARS), strict=True))
    most = max(Counter(row["label"] for row in shown if row["series"]).values(), default=1)
    bars_px = 16 if is_stacked or low else 4 + _BAR_PX * most
    pitch_px = row_pitch_px(list(texts.values()), bars_px)
    num_before: Counter[str] = Counter()
    for name in names:
        marks = drawn[name]
        colour = colours.get(name.partition(" #")[0], NEUTRAL)
        shared = {
            "y": [texts[row["label"]] for row in marks],
            "x": [row["value"] or low for row in marks],
            "name": short(_legend(name, table.chart.colour) or value_title(table), 60),
            "error_x": None if is_stacked else whiskers(marks),
        }
        if low:
            fig.add("scatter", **shared, **dots(marks, colour))
        else:
            beneath = {} if is_stacked else _beneath(marks, num_before, bars_px, pitch_px)
            fig.add("bar", orientation="h", **shared, **beneath, **look(marks, colour))
    for row in drawn.get("", []):
        if row["status"] == "oom":
            x = math.log10(low) if low else 0
            fig.add_annotation(
                text="OOM", showarrow=False, x=x, y=texts[row["label"]], xanchor="left"
            )
    name_rows(fig, list(texts.values()), bars_px=bars_px)
    if low:
        fig.update_yaxes(showgrid=True, griddash="dot")
    return fig


def _legend(name: str, field: str) -> str:
    return field_label(name, field) if name and field in _TOLD_IN_LEGENDS else name


def _log_axis(fig: Chart, values: Sequence[float | None]) -> float:
    """Give bars of very different length a logarithmic axis; return where it starts, else 0."""
    if not is_wide(values):
        return 0.0
    known = [v for v in values if v is not None and v > 0]
    low, high = math.log10(min(known)) - 0.15, math.log10(max(known)) + 0.1
    fig.update_xaxes(type="log", range=[low, high], dtick=1)
    return float(10 ** (low + 0.02))  # so that a bar without a length is drawn, and its text


def _beneath(
    bars: Sequence[Row], num_before: Counter[str], bars_px: int, pitch_px: int
) -> dict[str, object]:
    """Put bars right beneath those of their row that are there: others leave no hole."""
    offsets = []
    for row in bars:
        offsets.append((2 - bars_px / 2 + _BAR_PX * num_before[row["label"]]) / pitch_px)
        num_before[row["label"]] += 1
    return {"offset": offsets, "width": _BAR_PX / pitch_px}


def _place(field: str, name: str) -> tuple[int, float, str]:
    """Order the values of a field: classes as in their legends, others as in tables."""
    known = {"origin": list(ORIGIN_COLOURS), "category": list(CATEGORY_COLOURS)}.get(field, [])
    return (-1, known.index(name), "") if name in known else sort_key(field, name)


def _heatmap(cells: Sequence[Row], x: str, title: str) -> Chart:
    rows = list(dict.fromkeys(cell["series"] for cell in cells))
    columns = sorted(dict.fromkeys(_stated(cell[x]) for cell in cells), key=_numeric)
    place: dict[tuple[str, str], float | None] = {(r, c): None for r in rows for c in columns}
    text = dict.fromkeys(place, "")
    for cell in cells:
        key = (cell["series"], _stated(cell[x]))
        place[key] = cell["value"] if cell["value"] is not None else place[key]
        text[key] = "OOM" if cell["status"] == "oom" else str(cell["text"] or "")
    labels = unique_labels(rows, 110, width=_HEAT_MAP_CHARS)
    lines = max(label.count("<br>") + 1 for label in labels)
    fig = figure(height=150 + (14 + 15 * lines) * len(rows), x_title=field_title(x), legend=False)
    fig.add(
        "heatmap",
        z=[[place[r, c] for c in columns] for r in rows],
        x=columns,
        y=labels,
        text=[[text[r, c] for c in columns] for r in rows],
        texttemplate="%{text}",
        colorscale="Cividis",
        colorbar={
            "title": {"text": plain(title), "side": "top"},
            "orientation": "h",
            "thickness": 12,
            "y": 1,
            "yanchor": "bottom",
        },
        xgap=2,
        ygap=2,
        hovertemplate="%{y}<br>%{x}: %{text}<extra></extra>",
    )
    fig.update_xaxes(type="category", showgrid=False)
    fig.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return fig


def _stated(value: object) -> str:
    if value is None or value == "":
        return "not stated"
    return decimal(value, 6) if isinstance(value, float) else str(value)


def _numeric(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
