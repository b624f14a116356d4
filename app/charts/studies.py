"""The shapes of a study: log-log lines, bars by row or by value, heat map with OOM."""

from functools import partial

import pandas as pd

from analysis.export_svg import varied
from analysis.studies import Pivot, Table
from analysis.studies.engine.drawn import (
    drawn_rows,
    field_title,
    is_by_row,
    row_labels,
    series_labels,
    value_title,
)
from analysis.studies.engine.fields import sort_key
from app.charts.base import NARROW_CHARS, Chart, figure, name_rows, plain, short, unique_labels
from app.ui.colours import (
    CATEGORY_COLOURS,
    ORIGIN_COLOURS,
    SERIES_COLOURS,
    category_colour,
    origin_colour,
)

PUBLISHED_DASH = "dot"
_MOST_SERIES = 24
_MOST_TICKS = 12
_HEAT_MAP_CHARS = 30


def draw(frame: pd.DataFrame, table: Table, pivot: Pivot) -> Chart | None:
    """Draw the value that a table's chart names; None where no cell has one.

    `frame`: the tidy rows of a StudyTable.
    """
    chart = table.chart
    if chart is None or chart.x not in frame:
        return None
    rows = drawn_rows(frame, table, pivot)
    if not rows["value"].notna().any():
        return None
    if is_by_row(chart, table):
        series, labels = rows[chart.colour].astype(str), row_labels(rows, pivot, chart)
        keyed = _apart(rows.assign(series=series, label=labels), "label", "series")
        return _by_row(keyed, table)
    names = dict.fromkeys([chart.colour, *pivot.row_fields, *table.columns])
    varying = [n for n in names if n in rows and n not in (chart.x, "from")]
    varying = [n for n in varying if n == chart.colour or rows[n].nunique(dropna=False) > 1]
    keyed = _apart(rows.assign(series=series_labels(rows, varying)), "series", chart.x)
    draw_as = {"heatmap": _heatmap, "loglog": _lines}.get(chart.kind, _bars)
    return draw_as(keyed, chart.x, value_title(table))


def series_colour(index: int) -> str:
    """Return a colour of its own for each of 24 series."""
    return varied(SERIES_COLOURS, index)


def _apart(keyed: pd.DataFrame, named: str, beside: str) -> pd.DataFrame:
    """Number what would share a place: bars must never be stacked into a false sum."""
    nth = keyed.groupby([named, beside], dropna=False, sort=False).cumcount()
    numbered = keyed[named] + " #" + (nth + 1).astype(str)
    return keyed.assign(**{named: keyed[named].where(nth == 0, numbered)})


def _lines(frame: pd.DataFrame, x: str, title: str) -> Chart:
    fig = figure(height=430, x_title=field_title(x), y_title=title)
    shown = frame[frame["value"].notna()]
    for i, (name, rows) in enumerate(list(shown.groupby("series", sort=False))[:_MOST_SERIES]):
        points = rows.assign(at=pd.to_numeric(rows[x], errors="coerce")).sort_values("at")
        is_published = (points["provenance"] == "published").any()
        fig.add(
            "scatter",
            x=points["at"],
            y=points["value"],
            name=short(name, 48),
            mode="lines+markers",
            line={
                "color": series_colour(i),
                "dash": PUBLISHED_DASH if is_published else "solid",
            },
            marker={"symbol": "circle-open" if is_published else "circle", "size": 8},
            error_y=_interval(points),
            hovertemplate=f"{short(name, 90)}<br>%{{x}}: %{{y:.4g}}<extra></extra>",
        )
    _out_of_memory(fig, frame, x)
    known = sorted(set(pd.to_numeric(frame[x], errors="coerce").dropna()))
    if len(known) <= _MOST_TICKS:
        fig.update_xaxes(tickvals=known, ticktext=[f"{v:g}" for v in known])
    fig.update_xaxes(type="log")
    fig.update_yaxes(type="log", dtick=1, minor={"showgrid": True, "griddash": "dot"})
    return fig


def _out_of_memory(fig: Chart, frame: pd.DataFrame, x: str) -> None:
    """Mark along the top where runs ran out of memory: a result without a value."""
    lost = frame[frame["status"] == "oom"]
    if not len(lost):
        return
    top = float(frame["value"].max()) * 1.6
    fig.add(
        "scatter",
        x=pd.to_numeric(lost[x], errors="coerce"),
        y=[top] * len(lost),
        name="out of memory",
        mode="markers",
        marker={"symbol": "x", "size": 9, "color": "#d55e00"},
        hovertext=[f"{short(name, 90)}: out of memory" for name in lost["series"]],
        hoverinfo="text",
    )


def _bars(frame: pd.DataFrame, x: str, title: str) -> Chart:
    fig = figure(height=430, x_title=field_title(x), y_title=title, barmode="group")
    shown = frame[frame["value"].notna() | (frame["status"] == "oom")]
    for i, (name, rows) in enumerate(list(shown.groupby("series", sort=False))[:_MOST_SERIES]):
        fig.add(
            "bar",
            x=[short(v, 34) for v in rows[x].fillna("")],
            y=rows["value"].fillna(0.0),
            name=short(name, 60),
            error_y=_interval(rows),
            **_look(rows, series_colour(i)),
        )
    texts = dict.fromkeys(short(v, 34) for v in shown[x].fillna(""))
    fig.update_xaxes(type="category", categoryarray=sorted(texts, key=_numeric))
    return fig


def _by_row(frame: pd.DataFrame, table: Table) -> Chart:
    """Draw one bar, or group of bars, a row of the table."""
    assert table.chart is not None
    is_stacked = table.chart.kind == "stacked"
    shown = frame[frame["value"].notna() | (frame["status"] == "oom")]
    labels = list(dict.fromkeys(shown["label"]))
    names = [n for n in dict.fromkeys(shown["series"]) if n]
    names.sort(key=partial(_place, table.chart.colour))
    fig = figure(x_title=value_title(table), barmode="stack" if is_stacked else "group")
    texts = dict(zip(labels, unique_labels(labels, 110, width=NARROW_CHARS), strict=True))
    for i, name in enumerate(names):
        rows = shown[shown["series"] == name]
        fig.add(
            "bar",
            orientation="h",
            y=[texts[label] for label in rows["label"]],
            x=rows["value"].fillna(0.0),
            name=short(name or value_title(table), 60),
            error_x=None if is_stacked else _interval(rows),
            **_look(rows, _colour(table.chart.colour, name, i)),
        )
    for label in shown.loc[(shown["series"] == "") & (shown["status"] == "oom"), "label"]:
        fig.add_annotation(x=0, y=texts[label], text="OOM", showarrow=False, xanchor="left")
    bars_px = 16 if is_stacked else 4 + 12 * len(names)
    name_rows(fig, list(texts.values()), bars_px=bars_px)
    return fig


def _place(field: str, name: str) -> tuple[int, float, str]:
    """Order the values of a field: classes as in their legends, others as in tables."""
    known = {"origin": list(ORIGIN_COLOURS), "category": list(CATEGORY_COLOURS)}.get(field, [])
    return (-1, known.index(name), "") if name in known else sort_key(field, name)


def _colour(field: str, name: str, index: int) -> str:
    own = {"origin": origin_colour, "category": category_colour}.get(field)
    return own(name) if own else series_colour(index)


def _look(rows: pd.DataFrame, colour: str) -> dict[str, object]:
    """Return the marks of bars: hatched where published, OOM in letters where nothing was left."""
    published = (rows["provenance"] == "published").to_list()
    is_oom = (rows["status"] == "oom").to_list()
    texts = [
        f"{short(name, 90)}<br>{plain(text)} {plain(unit)}"
        for name, text, unit in zip(rows["series"], rows["text"], rows["unit"], strict=True)
    ]
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
        "text": ["OOM" if oom else "" for oom in is_oom],
        "textposition": "outside",
        "hovertext": texts,
        "hoverinfo": "text",
    }


def _interval(rows: pd.DataFrame) -> dict[str, object] | None:
    if not {"ci_low", "ci_high"} <= set(rows) or rows["ci_low"].isna().all():
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": (rows["ci_high"] - rows["value"]).astype(float),
        "arrayminus": (rows["value"] - rows["ci_low"]).astype(float),
        "thickness": 1.5,
        "width": 4,
    }


def _heatmap(frame: pd.DataFrame, x: str, title: str) -> Chart:
    frame = frame.assign(**{x: [_stated(value) for value in frame[x]]})
    rows = list(dict.fromkeys(frame["series"]))
    columns = sorted(dict.fromkeys(frame[x].astype(str)), key=_numeric)
    place = {(r, c): None for r in rows for c in columns}
    text = dict.fromkeys(place, "")
    for cell in frame.to_dict("records"):
        key = (cell["series"], str(cell[x]))
        known = cell["value"] is not None and cell["value"] == cell["value"]
        place[key] = cell["value"] if known else place[key]
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
    fig.update_xaxes(type="category")
    fig.update_yaxes(autorange="reversed", type="category")
    return fig


def _stated(value: object) -> str:
    if pd.isna(value) or value == "":
        return "not stated"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numeric(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
