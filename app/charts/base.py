"""What all charts share. Fonts, grid and background come from the page's theme, light or dark."""

import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

CONFIG: dict[str, Any] = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}

_LINE_PX = 15
_NARROW_PX = 340
NARROW_CHARS = 52
"Width of a chart on a phone, and the text that it holds in one line."


def figure(
    *,
    height: int | None = None,
    x_title: str = "",
    y_title: str = "",
    legend: bool = True,
    **layout: Any,
) -> go.Figure:
    """Return an empty figure with the product's margins, axis titles and a legend on top.

    `height` in pixels; None where `name_rows` gives it.
    """
    fig = go.Figure()
    fig.update_layout(
        height=height,
        margin={"l": 8, "r": 12, "t": 34 if legend else 14, "b": 8},
        showlegend=legend,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.01, "x": 0, "title": None},
        hoverlabel={"align": "left", "namelength": -1},
        bargap=0.28,
        uniformtext={"minsize": 10, "mode": "hide"},
        **layout,
    )
    fig.update_xaxes(title={"text": plain(x_title)}, automargin=True)
    fig.update_yaxes(title={"text": plain(y_title)}, automargin=True)
    return fig


def plain(text: object) -> str:
    """Return text that plotly shows as it is: it would read tags in a kernel name as markup."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def short(text: object, size: int = 44) -> str:
    """Return text cut in the middle to `size` characters, safe for plotly."""
    return plain(_cut(str(text), size))


def _cut(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    head = (size - 1) * 2 // 3
    return text[:head] + "\u2026" + text[-(size - 1 - head) :]


def unique_labels(texts: Sequence[str], size: int = 44, *, width: int | None = None) -> list[str]:
    """Return short labels, numbered where cutting made two of them equal: bars must not merge.

    With `width`, a label is in lines of at most so many characters.
    """
    seen: dict[str, int] = {}
    labels = []
    for text in texts:
        label = _cut(text, size)
        seen[label] = seen.get(label, 0) + 1
        label = label if seen[label] == 1 else f"{label} ({seen[label]})"
        lines = textwrap.wrap(label, width) if width else [label]
        labels.append("<br>".join(map(plain, lines)) or " ")
    return labels


def name_rows(fig: go.Figure, texts: Sequence[str], *, bars_px: int, base: int = 70) -> None:
    """Write the name of each row over its marks, from the top down, and size the figure.

    A name beside its row would leave the marks a strip on a narrow screen. `texts` are the row
    axis' values, each for itself; `bars_px` is the height of a row's marks.
    """
    label_px = 8 + _LINE_PX * max((text.count("<br>") + 1 for text in texts), default=1)
    pitch_px = bars_px + label_px
    names_px = sum(7 * len(t.name or "") + 45 for t in fig.data if fig.layout.showlegend)
    legend_px = 19 * (names_px // _NARROW_PX)
    fig.update_layout(
        height=base + legend_px + pitch_px * len(texts) + label_px / 2, bargap=label_px / pitch_px
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


def bar_height(num_rows: int) -> int:
    """Return the height of a horizontal bar chart with that many rows."""
    return 90 + 26 * max(1, num_rows)
