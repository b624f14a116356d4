"""Arithmetic intensity against throughput, under the ceilings that are known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.charts.base import figure, plain, short
from app.ui.colours import NEUTRAL, RUN_B, category_colour
from app.ui.format import duration, scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """One roof: its slope and its flat part."""

    label: str
    bytes_per_s: float
    flops_per_s: float
    is_measured: bool


def roofline(
    points: pd.DataFrame,
    ceilings: Sequence[Ceiling],
    models: Sequence[tuple[str, float, float]] = (),
) -> go.Figure:
    """Draw kernels under the roofs.

    `points`: label, intensity (FLOP/B), flops_per_s, duration_ns, category. `models`: (label,
    intensity, flops_per_s) of whole iterations, from the cost model; drawn as diamonds.
    """
    fig = figure(height=460, x_title="arithmetic intensity (FLOP/B)", y_title="throughput (FLOP/s)")
    x_all = [*points["intensity"].to_list(), *(m[1] for m in models)]
    low = min([v for v in x_all if v > 0] + [0.1]) / 3
    high = max([*x_all, *(c.flops_per_s / c.bytes_per_s for c in ceilings), 10.0]) * 5
    grid = np.geomspace(low, high, 160)
    for ceiling in ceilings:
        style = {"color": NEUTRAL, "dash": "solid" if ceiling.is_measured else "dash", "width": 2}
        fig.add_scatter(
            x=grid,
            y=np.minimum(grid * ceiling.bytes_per_s, ceiling.flops_per_s),
            mode="lines",
            name=plain(ceiling.label),
            line=style,
            hoverinfo="skip",
        )
    if len(points):
        biggest = max(1.0, float(points["duration_ns"].max()))
        for category, rows in points.groupby("category", sort=False):
            fig.add_scatter(
                x=rows["intensity"],
                y=rows["flops_per_s"],
                mode="markers",
                name=f"{category}, counters",
                marker={
                    "color": category_colour(str(category)),
                    "size": 7 + 26 * np.sqrt(rows["duration_ns"].to_numpy(float) / biggest),
                    "opacity": 0.75,
                },
                hovertext=[
                    f"{short(r.label, 70)}<br>{scaled(r.flops_per_s, 'FLOP/s')} at "
                    f"{r.intensity:.3g} FLOP/B<br>{duration(r.duration_ns)}"
                    for r in rows.itertuples()
                ],
                hoverinfo="text",
            )
    for label, intensity, flops in models:
        fig.add_scatter(
            x=[intensity],
            y=[flops],
            mode="markers",
            name=f"{short(label, 30)}, cost model",
            marker={"symbol": "diamond", "size": 14, "color": RUN_B, "line": {"width": 2}},
            hovertext=[f"{plain(label)}: {scaled(flops, 'FLOP/s')} at {intensity:.3g} FLOP/B"],
            hoverinfo="text",
        )
    fig.update_xaxes(type="log")
    fig.update_yaxes(type="log", tickformat=".1s")
    return fig
