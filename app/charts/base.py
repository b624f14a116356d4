"""What all charts share. Fonts, grid and background come from the page's theme, light or dark."""

from typing import Any

import plotly.graph_objects as go

CONFIG: dict[str, Any] = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}


def figure(
    *, height: int, x_title: str = "", y_title: str = "", legend: bool = True, **layout: Any
) -> go.Figure:
    """Return an empty figure with the product's margins, axis titles and a legend on top."""
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
    value = str(text)
    if len(value) > size:
        head = (size - 1) * 2 // 3
        value = value[:head] + "\u2026" + value[-(size - 1 - head) :]
    return plain(value)


def unique_labels(texts: list[str], size: int = 44) -> list[str]:
    """Return short labels, numbered where cutting made two of them equal: bars must not merge."""
    seen: dict[str, int] = {}
    labels = []
    for text in texts:
        label = short(text, size)
        seen[label] = seen.get(label, 0) + 1
        labels.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return labels


def bar_height(num_rows: int, *, row: int = 26, base: int = 90, most: int = 900) -> int:
    """Return the height of a horizontal bar chart with that many rows."""
    return min(most, base + row * max(1, num_rows))
