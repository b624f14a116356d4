"""The three shapes of a study: log-log lines, grouped bars with intervals, heat map with OOM."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from app.charts.base import figure, plain, short
from app.ui.colours import SERIES_COLOURS

PUBLISHED_DASH = "dot"
X_TITLES = {
    "seq_len": "sequence length (tokens)",
    "context": "context (tokens)",
    "batch": "batch size",
    "gpu": "GPU",
    "compile": "compile mode",
    "d_model": "width of a head",
}
_MOST_SERIES = 24
_MOST_TICKS = 12


def draw(
    frame: pd.DataFrame, *, kind: str, x: str, colour: str, fields: Sequence[str], what: str
) -> go.Figure:
    """Draw one value of one table of a study.

    `frame`: tidy rows of that value with `value`, `unit`, `status`, `provenance`, `from`, `ci_low`,
    `ci_high` and the field columns. `fields` are the columns that may tell series apart; `what`
    names the value.
    """
    unit = str(frame["unit"].iloc[0])
    title = f"{what} ({unit})" if unit else what
    others = [
        f
        for f in fields
        if f not in (x, colour, "from") and f in frame and frame[f].nunique(dropna=False) > 1
    ]
    keyed = _apart(frame.assign(series=_series(frame, [colour, *others])), x)
    if kind == "heatmap":
        return _heatmap(keyed, x, unit, title)
    return _lines(keyed, x, unit, title) if kind == "loglog" else _bars(keyed, x, unit, title)


def x_title(name: str) -> str:
    """Return a field as an axis calls it, with its unit where it has one."""
    return X_TITLES.get(name, name.replace("_", " "))


def series_colour(index: int) -> str:
    """Return a colour of its own for each of 24 series: eight hues, then lighter, then darker."""
    base = SERIES_COLOURS[index % len(SERIES_COLOURS)]
    mixed, share = ((0, 0.0), (255, 0.45), (0, 0.4))[index // len(SERIES_COLOURS) % 3]
    parts = [int(base[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + share * (mixed - p)):02x}" for p in parts)


def _series(frame: pd.DataFrame, columns: list[str]) -> pd.Series:
    kept = [c for c in columns if c in frame]
    told = {c: _named(frame[c], c, is_first=c == columns[0]) for c in kept}
    texts = pd.DataFrame(told).agg(_joined, axis=1) if kept else frame["from"]
    published = frame["provenance"] == "published"
    sources = " (" + frame["from"].astype(str) + ")"
    return texts.str.strip(", ").where(~published, texts.str.strip(", ") + sources)


def _named(values: pd.Series, name: str, *, is_first: bool) -> pd.Series:
    """Return texts that stand in a legend: the colour's own value bare, others after their name."""
    texts = values.fillna("").astype(str)
    if is_first:
        return texts
    return (name.replace("_", " ") + " " + texts).where(texts != "", "")


def _joined(row: pd.Series) -> str:
    return ", ".join(v for v in row if v)


def _apart(keyed: pd.DataFrame, x: str) -> pd.DataFrame:
    """Number series that would share a place: bars must never be stacked into a false sum."""
    nth = keyed.groupby(["series", x], dropna=False, sort=False).cumcount()
    return keyed.assign(series=keyed["series"].where(nth == 0, keyed["series"] + _numbers(nth)))


def _numbers(nth: pd.Series) -> pd.Series:
    return " #" + (nth + 1).astype(str)


def _lines(frame: pd.DataFrame, x: str, unit: str, title: str) -> go.Figure:
    fig = figure(height=430, x_title=x_title(x), y_title=title)
    shown = frame[frame["value"].notna()]
    for i, (name, rows) in enumerate(list(shown.groupby("series", sort=False))[:_MOST_SERIES]):
        points = rows.assign(at=pd.to_numeric(rows[x], errors="coerce")).sort_values("at")
        is_published = (points["provenance"] == "published").any()
        fig.add_scatter(
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
            hovertemplate=f"{short(name, 60)}<br>%{{x}}: %{{y:.4g}} {unit}<extra></extra>",
        )
    known = sorted(set(pd.to_numeric(shown[x], errors="coerce").dropna()))
    if len(known) <= _MOST_TICKS:
        fig.update_xaxes(tickvals=known, ticktext=[f"{v:g}" for v in known])
    fig.update_xaxes(type="log")
    fig.update_yaxes(type="log", dtick=1, minor={"showgrid": True, "griddash": "dot"})
    return fig


def _bars(frame: pd.DataFrame, x: str, unit: str, title: str) -> go.Figure:
    fig = figure(height=430, x_title=x_title(x), y_title=title, barmode="group")
    shown = frame[frame["value"].notna()]
    for i, (name, rows) in enumerate(list(shown.groupby("series", sort=False))[:_MOST_SERIES]):
        is_published = (rows["provenance"] == "published").any()
        fig.add_bar(
            x=[short(v, 34) for v in rows[x].fillna("")],
            y=rows["value"],
            name=short(name, 48),
            marker={
                "color": series_colour(i),
                "opacity": 0.75 if is_published else 1.0,
                "pattern": {
                    "shape": "/" if is_published else "",
                    "fillmode": "overlay",
                    "fgcolor": "rgba(255,255,255,0.55)",
                    "size": 7,
                },
            },
            error_y=_interval(rows),
            hovertext=[f"{short(name, 60)}<br>{plain(t)} {unit}" for t in rows["text"]],
            hoverinfo="text",
        )
    return fig


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


def _heatmap(frame: pd.DataFrame, x: str, unit: str, title: str) -> go.Figure:
    rows = list(dict.fromkeys(frame["series"]))
    columns = sorted(dict.fromkeys(frame[x].astype(str)), key=_numeric)
    place = {(r, c): None for r in rows for c in columns}
    text = dict.fromkeys(place, "")
    for cell in frame.to_dict("records"):
        key = (cell["series"], str(cell[x]))
        known = cell["value"] is not None and cell["value"] == cell["value"]
        place[key] = cell["value"] if known else place[key]
        text[key] = "OOM" if cell["status"] == "oom" else str(cell["text"] or "")
    fig = figure(height=min(900, 120 + 34 * len(rows)), x_title=x_title(x), legend=False)
    fig.add_heatmap(
        z=[[place[r, c] for c in columns] for r in rows],
        x=columns,
        y=[short(r, 44) for r in rows],
        text=[[text[r, c] for c in columns] for r in rows],
        texttemplate="%{text}",
        colorscale="Cividis",
        colorbar={"title": {"text": plain(title), "side": "right"}},
        xgap=2,
        ygap=2,
        hovertemplate=f"%{{y}}<br>%{{x}}: %{{text}} {unit}<extra></extra>",
    )
    fig.update_xaxes(type="category")
    fig.update_yaxes(autorange="reversed", type="category")
    return fig


def _numeric(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), text)
    except ValueError:
        return (1, 0.0, text)
