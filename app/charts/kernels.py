"""Kernel time of one run: by kernel and by class."""

from collections import Counter

import pandas as pd

from analysis.classify import distinct_labels
from analysis.colours import category_colour, origin_colour
from app.charts.base import (
    NARROW_CHARS,
    Chart,
    bar_height,
    figure,
    name_rows,
    time_unit,
    unique_labels,
    whole,
)
from app.ui.format import duration, percent


def top_kernels(kernels: pd.DataFrame, *, of: str = "kernel time") -> Chart:
    """Draw the total time of each kernel; `of` names the whole of the shares.

    Wants name, grid, category, origin, total_ns, count, share_frac.
    """
    size_ns, unit = time_unit(float(kernels["total_ns"].max()))
    fig = figure(x_title=f"time ({unit})", legend=False)
    calls = "launches" if of == "kernel time" else "calls"
    hover = [
        f"{whole(r.name)}<br>{r.category}, {r.origin}<br>"
        f"{duration(r.total_ns)} in {r.count} "
        f"{calls} ({percent(r.share_frac)} of {of})"
        for r in kernels.itertuples()
    ]
    labels = unique_labels(_row_labels(kernels), NARROW_CHARS)
    fig.add_bars(
        labels,
        kernels["total_ns"] / size_ns,
        colour=[category_colour(c) for c in kernels["category"]],
        hovertext=hover,
    )
    name_rows(fig, labels, bars_px=14)
    return fig


def _row_labels(kernels: pd.DataFrame) -> list[str]:
    """Return a label a row; a kernel that was launched in several shapes has them in it."""
    blocks = kernels["block"] if "block" in kernels else kernels["grid"]
    places = list(zip(kernels["name"], kernels["grid"], blocks, strict=True))
    num_grids = Counter(name for name, _, _ in places)
    num_blocks = Counter((name, grid) for name, grid, _ in places)
    shapes = [
        ""
        if num_grids[name] < 2
        else f" [{grid}]"
        if num_blocks[name, grid] < 2
        else f" [{grid} x {block}]"
        for name, grid, block in places
    ]
    room = NARROW_CHARS - max(map(len, shapes), default=0)
    of_name = distinct_labels(tuple(kernels["name"]), room)
    return [of_name[name] + shape for (name, _, _), shape in zip(places, shapes, strict=True)]


def shares(frame: pd.DataFrame, *, by: str, of: str = "kernel time") -> Chart:
    """Draw one bar per class with its share `of` the whole.

    Wants the columns `by`, total_ns and share_frac, largest first.
    """
    colour = category_colour if by == "category" else origin_colour
    rows = frame.iloc[::-1]
    fig = figure(height=bar_height(len(rows)), x_title=f"share of {of} (%)", legend=False)
    fig.add_bars(
        rows[by],
        100 * rows["share_frac"],
        colour=[colour(c) for c in rows[by]],
        text=[percent(v) for v in rows["share_frac"]],
        textposition="outside",
        cliponaxis=False,
        hovertext=[f"{c}: {duration(t)}" for c, t in zip(rows[by], rows["total_ns"], strict=True)],
    )
    fig.update_xaxes(range=[0, 118 * rows["share_frac"].max()])
    return fig
