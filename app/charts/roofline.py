"""Arithmetic intensity against throughput, under the ceilings that are known."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from analysis.roofline import MEASURED
from app.charts.base import figure, plain, short
from app.ui.colours import NEUTRAL, RUN_A, RUN_B, category_colour
from app.ui.format import duration, scaled

SYMBOLS = {"": "circle", "A": "circle", "B": "square"}
"Marker of a side of a comparison; colour stays the kernel's class."


def roofline(
    points: pd.DataFrame,
    ceilings: pd.DataFrame,
    models: Sequence[tuple[str, float, float]] = (),
) -> go.Figure:
    """Draw kernels under the roofs, area by time.

    `points`: COUNTER_POINT_COLUMNS, and `side` (A or B) in a comparison. `ceilings`:
    CEILING_COLUMNS. `models`: (label, FLOP/B, FLOP/s) of whole iterations by the cost model, drawn
    as diamonds.
    """
    fig = figure(height=460, x_title="arithmetic intensity (FLOP/B)", y_title="throughput (FLOP/s)")
    x_all = [*points["intensity"].to_list(), *(m[1] for m in models)]
    low = min([v for v in x_all if v > 0] + [0.1]) / 3
    high = max([*x_all, *ceilings["ridge"].to_list(), 10.0]) * 5
    _roofs(fig, ceilings, np.geomspace(low, high, 160))
    if len(points):
        _kernels(fig, points if "side" in points else points.assign(side=""))
    for i, (label, intensity, flops) in enumerate(models):
        colour = RUN_A if len(models) > 1 and i == 0 else RUN_B
        fig.add_scatter(
            x=[intensity],
            y=[flops],
            mode="markers",
            name=f"{short(label, 30)}, cost model",
            marker={"symbol": "diamond", "size": 14, "color": colour, "line": {"width": 1.5}},
            hovertext=[f"{plain(label)}: {scaled(flops, 'FLOP/s')} at {intensity:.3g} FLOP/B"],
            hoverinfo="text",
        )
    fig.update_xaxes(type="log", dtick=1, tickformat="~g")
    fig.update_yaxes(type="log", dtick=1, tickformat="~s")
    return fig


def _roofs(fig: go.Figure, ceilings: pd.DataFrame, grid: np.ndarray) -> None:
    for roof in ceilings.to_dict("records"):
        flops, moved = float(roof["flops_per_s"]), float(roof["bytes_per_s"])
        name = f"{roof['source']} {roof['dtype']}: {scaled(flops, 'FLOP/s')}, "
        dash = "solid" if roof["source"] == MEASURED else "dash"
        fig.add_scatter(
            x=grid,
            y=np.minimum(grid * moved, flops),
            mode="lines",
            name=plain(name + scaled(moved, "B/s")),
            line={"color": NEUTRAL, "dash": dash, "width": 2},
            hoverinfo="skip",
        )


def _kernels(fig: go.Figure, points: pd.DataFrame) -> None:
    biggest = max(1.0, float(points["duration_ns"].max()))
    for (side, category), rows in points.groupby(["side", "category"], sort=False):
        fig.add_scatter(
            x=rows["intensity"],
            y=rows["flops_per_s"],
            mode="markers",
            name=f"{f'{side}: ' if side else ''}{category}",
            marker={
                "color": category_colour(str(category)),
                "symbol": SYMBOLS.get(str(side), "circle"),
                "size": 7 + 26 * np.sqrt(rows["duration_ns"].to_numpy(float) / biggest),
                "opacity": 0.75,
            },
            hovertext=[
                f"{short(r.label, 70)}<br>{scaled(r.flops_per_s, 'FLOP/s')} at "
                f"{r.intensity:.3g} FLOP/B<br>{duration(r.duration_ns)}, by counters"
                for r in rows.itertuples()
            ],
            hoverinfo="text",
        )
