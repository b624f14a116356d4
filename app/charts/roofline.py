"""Roofline: throughput over arithmetic intensity, under the known ceilings."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.colours import HOST, NEUTRAL, RUN_B, category_colour
from analysis.roofline import MEASURED
from app.charts.base import Chart, figure, plain, short
from app.ui.format import duration, scaled
from core.numbers import decimal

SYMBOLS = {"A": "circle", "B": "square"}
"Marker of a side of a comparison; colour is then the run's."


def roofline(
    points: pd.DataFrame,
    ceilings: pd.DataFrame,
    models: Sequence[tuple[str, float, float]] = (),
    colours: Sequence[str] = (),
    operators: pd.DataFrame | None = None,
) -> Chart:
    """Draw kernels under the roofs; a marker's area is its time.

    `points`: COUNTER_POINT_COLUMNS; in a comparison also `side` (A or B), `run` (its label) and
    `colour`, which then take the place of the kernel's class. `ceilings`: CEILING_COLUMNS, and
    `gpu` where there are several. `models`: (label, FLOP/B, FLOP/s) of whole iterations by the
    cost model, drawn as diamonds in `colours`. `operators`: OPERATOR_POINT_COLUMNS, drawn as
    triangles.
    """
    fig = figure(height=460, x_title="arithmetic intensity (FLOP/B)", y_title="throughput (FLOP/s)")
    shaped = points.iloc[:0] if operators is None else operators
    x_all = [*points["intensity"].to_list(), *shaped["intensity"], *(m[1] for m in models)]
    low = min([v for v in x_all if v > 0] + [0.1]) / 3
    high = max([*x_all, *ceilings["ridge"].to_list(), 10.0]) * 5
    _roofs(fig, ceilings, np.geomspace(low, high, 160))
    if len(points):
        add_kernels(fig, points, x="intensity", y="flops_per_s", told=_told)
    if len(shaped):
        _add_operators(fig, shaped)
    for i, (label, intensity, flops) in enumerate(models):
        colour = colours[i] if i < len(colours) else RUN_B
        fig.add(
            "scatter",
            x=[intensity],
            y=[flops],
            mode="markers",
            name=f"{short(label, 30)}, cost model",
            marker={"symbol": "diamond", "size": 14, "color": colour, "line": {"width": 1.5}},
            hovertext=[
                f"{plain(label)}: {scaled(flops, 'FLOP/s')} at {decimal(intensity, 3)} FLOP/B"
            ],
        )
    fig.update_xaxes(type="log", dtick=1, tickformat=".3~r")
    fig.update_yaxes(type="log", dtick=1, tickformat="~s")
    if ceilings.empty:  # a few points alone may lie between two decades, without a tick
        y_all = [*points["flops_per_s"].to_list(), *shaped["flops_per_s"], *(m[2] for m in models)]
        fig.update_xaxes(range=_decades(x_all))
        fig.update_yaxes(range=_decades(y_all))
    return fig


def _decades(values: Sequence[float]) -> list[float]:
    """Return the range of a logarithmic axis, in exponents, that ends between whole decades."""
    known = [math.log10(v) for v in values if v > 0] or [0.0]
    return [math.floor(min(known)) - 0.1, math.floor(max(known)) + 1.1]


def _roofs(fig: Chart, ceilings: pd.DataFrame, grid: np.ndarray) -> None:
    for roof in ceilings.to_dict("records"):
        flops, moved = float(roof["flops_per_s"]), float(roof["bytes_per_s"])
        whose = f"{roof['gpu']}, " if roof.get("gpu") else ""
        name = f"{whose}{roof['source']} {roof['dtype']}: {scaled(flops, 'FLOP/s')}, "
        dash = "solid" if roof["source"] == MEASURED else "dash"
        fig.add(
            "scatter",
            x=grid,
            y=np.minimum(grid * moved, flops),
            mode="lines",
            name=plain(name + scaled(moved, "B/s")),
            line={"color": NEUTRAL, "dash": dash, "width": 2},
            hoverinfo="skip",
        )


def _add_operators(fig: Chart, points: pd.DataFrame) -> None:
    biggest = max(1.0, float(points["duration_ns"].max()))
    for name, rows in points.groupby("pass", sort=False):
        fig.add(
            "scatter",
            x=rows["intensity"],
            y=rows["flops_per_s"],
            mode="markers",
            name=f"operators, {plain(name)}",
            marker={
                "symbol": "triangle-up",
                "color": _PASS_COLOURS.get(str(name), HOST),
                "size": 9 + 22 * np.sqrt(rows["duration_ns"].to_numpy(float) / biggest),
                "opacity": 0.75,
                "line": {"width": 0.5},
            },
            hovertext=[
                f"{plain(r.label)}, {plain(name)}<br>{_told(r)}, {r.dtype}<br>"
                f"{duration(r.duration_ns)} of kernels, by shapes"
                for r in rows.itertuples()
            ],
        )


_PASS_COLOURS = {"forward": "#009e73", "backward": "#cc79a7", "optimizer": "#a8429a"}


def _told(row: Any) -> str:
    return f"{scaled(row.flops_per_s, 'FLOP/s')} at {decimal(row.intensity, 3)} FLOP/B"


def add_kernels(
    fig: Chart, points: pd.DataFrame, *, x: str, y: str, told: Callable[[Any], str]
) -> None:
    """Add kernels as points whose area is their time: a trace a class, or a run in a comparison."""
    biggest = max(1.0, float(points["duration_ns"].max()))
    is_compared = "run" in points
    keys = ["run", "side", "colour"] if is_compared else ["category"]
    for key, rows in points.groupby(keys, sort=False):
        symbol = SYMBOLS[key[1]] if is_compared else "circle"
        fig.add(
            "scatter",
            x=rows[x],
            y=rows[y],
            mode="markers",
            name=short(key[0], 48),
            marker={
                "color": key[2] if is_compared else category_colour(str(key[0])),
                "symbol": symbol,
                "size": 7 + 26 * np.sqrt(rows["duration_ns"].to_numpy(float) / biggest),
                "opacity": 0.7,
                "line": {"width": 0.5},
            },
            hovertext=[
                f"{short(key[0], 60)}<br>{short(r.label, 70)} ({r.category})<br>{told(r)}<br>"
                f"{duration(r.duration_ns)}, by counters"
                for r in rows.itertuples()
            ],
        )
