"""What all charts share. Fonts, grid and background come from the page's theme, light or dark."""

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from core.plain_text import visible

CONFIG: dict[str, Any] = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}

_LINE_PX = 15
_NARROW_PX = 340
NARROW_CHARS = 52
"Width of a chart on a phone, and the text that it holds in one line."


class Chart:
    """The figure that plotly.js draws, as plain values: `data` holds the traces.

    Plotly's own Figure checks every value it is given, 20 to 40 ms a chart; here the tests do.
    """

    def __init__(self, **layout: Any) -> None:
        self.data: list[dict[str, Any]] = []
        self.layout = layout

    def add(self, kind: str, **trace: Any) -> None:
        """Add a trace of a plotly type, its properties by their plotly names.

        With a `hovertext` that text alone is shown.
        """
        if "hovertext" in trace and "hovertemplate" not in trace:
            trace = {"hoverinfo": "text", **trace}
        self.data.append({"type": kind, **_plain_values(trace)})

    def add_bars(
        self, labels: Any, values: Any, *, colour: Any, hovertext: list[str], **trace: Any
    ) -> None:
        """Add horizontal bars, one for each label."""
        marker = {"color": colour}
        bars = {"orientation": "h", "marker": marker, "hovertext": hovertext, **trace}
        self.add("bar", y=labels, x=values, **bars)

    def update_layout(self, **layout: Any) -> None:
        """Set properties of the layout; those of a group are set beside the others there."""
        _merge(self.layout, _plain_values(layout))

    def update_xaxes(self, **axis: Any) -> None:
        """Set properties of the x axis."""
        self.update_layout(xaxis=axis)

    def update_yaxes(self, **axis: Any) -> None:
        """Set properties of the y axis."""
        self.update_layout(yaxis=axis)

    def add_annotation(self, **annotation: Any) -> None:
        """Write a text."""
        self.layout.setdefault("annotations", []).append(annotation)

    def add_vline(self, x: float, line: dict[str, Any]) -> None:
        """Draw a line from the bottom to the top."""
        self._add_shape(type="line", x0=x, x1=x, line=line)

    def add_vrect(self, x0: float, x1: float, colour: str, opacity: float) -> None:
        """Draw a band from the bottom to the top."""
        look = {"fillcolor": colour, "opacity": opacity, "line": {"width": 0}}
        self._add_shape(type="rect", x0=x0, x1=x1, **look)

    def _add_shape(self, **shape: Any) -> None:
        whole = {"xref": "x", "yref": "y domain", "y0": 0, "y1": 1}
        self.layout.setdefault("shapes", []).append({**whole, **shape})

    def to_plotly(self) -> go.Figure:
        """Return what `st.plotly_chart` takes, with the page's theme, unchecked."""
        return go.Figure({"data": self.data, "layout": self.layout}, _validate=False)


def _plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return values that plotly writes at once: it would look through a Series for its kind."""
    return {key: _plain_value(value) for key, value in values.items() if value is not None}


def _plain_value(value: Any) -> Any:
    if isinstance(value, pd.Series):
        return value.to_list() if value.dtype == object else value.to_numpy()
    return _plain_values(value) if isinstance(value, dict) else value


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def figure(
    *,
    height: int | None = None,
    x_title: str = "",
    y_title: str = "",
    legend: bool = True,
    **layout: Any,
) -> Chart:
    """Return an empty chart with the product's margins, axis titles and a legend on top.

    `height` in pixels; None where `name_rows` gives it.
    """
    fig = Chart(
        margin={"l": 8, "r": 12, "t": 34 if legend else 14, "b": 8},
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0},
        hoverlabel={"align": "left", "namelength": -1},
        bargap=0.28,
        uniformtext={"minsize": 10, "mode": "hide"},
        xaxis={"title": {"text": plain(x_title)}, "automargin": True},
        yaxis={"title": {"text": plain(y_title)}, "automargin": True},
    )
    fig.update_layout(height=height, **layout)
    return fig


def time_unit(most_ns: float) -> tuple[float, str]:
    """Return how many ns the unit of a time axis has, and its name: no axis counts thousands."""
    for size_ns, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "\u00b5s")):
        if most_ns >= size_ns:
            return size_ns, unit
    return 1.0, "ns"


def plain(text: object) -> str:
    """Return text that plotly shows as it is: it would read tags in a kernel name as markup."""
    return visible(str(text)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short(text: object, size: int = 44) -> str:
    """Return text cut in the middle to `size` characters, safe for plotly."""
    return plain(cut(str(text), size))


def cut(text: str, size: int) -> str:
    """Return text cut in the middle to `size` characters."""
    if len(text) <= size:
        return text
    head = (size - 1) * 2 // 3
    return text[:head] + "\u2026" + text[-(size - 1 - head) :]


def unique_labels(texts: Sequence[str], size: int = 44, *, width: int | None = None) -> list[str]:
    """Return short labels; those that read alike differ by signs without width: no bars merge.

    With `width`, labels wrap at that many characters.
    """
    seen: dict[str, int] = {}
    labels = []
    for text in texts:
        label = cut(text, size)
        num_before = seen.get(label, 0)
        seen[label] = num_before + 1
        lines = textwrap.wrap(label, width) if width else [label]
        labels.append(("<br>".join(map(plain, lines)) or " ") + _NO_WIDTH * num_before)
    return labels


_NO_WIDTH = "\u200b"
MAX_HOVER_CHARS = 1_200


def whole(text: object, width: int = 100) -> str:
    """Return a name as it is, in lines that fit a hover box; only the endless are cut."""
    shown = cut(str(text), MAX_HOVER_CHARS)
    lines = [shown[i : i + width] for i in range(0, len(shown), width)]
    return "<br>".join(map(plain, lines))


def name_rows(fig: Chart, texts: Sequence[str], *, bars_px: int) -> None:
    """Write the name of each row over its marks, from the top down, and size the figure.

    A name beside its row would leave the marks a strip on a narrow screen. `texts` are the row
    axis' values, each for itself; `bars_px` is the height of a row's marks.
    """
    pitch_px = row_pitch_px(texts, bars_px)
    label_px = pitch_px - bars_px
    names_px = sum(7 * len(t.get("name", "")) + 45 for t in fig.data if fig.layout["showlegend"])
    legend_px = 19 * (names_px // _NARROW_PX)
    fig.update_layout(
        height=70 + legend_px + pitch_px * len(texts) + label_px / 2, bargap=label_px / pitch_px
    )
    top = -0.5 - label_px / 2 / pitch_px
    fig.update_yaxes(type="category", categoryorder="array", categoryarray=list(texts))
    fig.update_yaxes(range=[len(texts) - 0.5, top], automargin=False)
    fig.update_yaxes(showticklabels=False, showgrid=False)
    for place, text in enumerate(texts):
        fig.add_annotation(
            x=0,
            xref="paper",
            y=place - bars_px / 2 / pitch_px,
            text=text,
            align="left",
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
        )


def row_pitch_px(texts: Sequence[str], bars_px: int) -> int:
    """Return how far apart `name_rows` puts its rows: the marks and the name over them."""
    return bars_px + 8 + _LINE_PX * max((text.count("<br>") + 1 for text in texts), default=1)


def bar_height(num_rows: int) -> int:
    """Return the height of a horizontal bar chart with that many rows."""
    return 90 + 26 * max(1, num_rows)
