"""Latency samples: all of them, by process."""

from collections.abc import Sequence

import pandas as pd

from analysis.colours import SERIES_COLOURS
from app.charts.base import Chart, figure, short, time_unit


def by_iteration(samples: pd.DataFrame) -> Chart:
    """Draw each process's latencies in order; needs SAMPLE_COLUMNS."""
    size_ns, unit = time_unit(float(samples["latency_ns"].max()))
    fig = figure(height=340, x_title="iteration", y_title=f"latency ({unit})")
    for process, rows in samples.groupby("process"):
        fig.add(
            "scatter",
            x=rows["iteration"],
            y=rows["latency_ns"] / size_ns,
            name=f"process {process}",
            mode="lines+markers",
            marker={"size": 4},
            line={"width": 1, "color": _process_colour(process)},
            hovertemplate="iteration %{x}: %{y:.4~r} " + unit,
        )
    fig.update_yaxes(rangemode="tozero")
    return fig


def _process_colour(process: object) -> str:
    return SERIES_COLOURS[int(str(process)) % len(SERIES_COLOURS)]


def distribution(sides: Sequence[tuple[str, str, pd.DataFrame]]) -> Chart:
    """Draw a box with points per process of each (label, colour, samples).

    A run alone needs no label: its processes have the colours of `by_iteration`.
    """
    is_alone = len(sides) == 1
    size_ns, unit = time_unit(
        max((float(s["latency_ns"].max()) for _, _, s in sides if len(s)), default=0.0)
    )
    fig = figure(height=340, y_title=f"latency ({unit})", legend=not is_alone)
    for label, side_colour, samples in sides:
        for i, (process, rows) in enumerate(samples.groupby("process")):
            colour = _process_colour(process) if is_alone else side_colour
            fig.add(
                "box",
                y=rows["latency_ns"] / size_ns,
                name=f"process {process}" if is_alone else f"{short(label, 24)} #{process}",
                legendgroup=label,
                showlegend=i == 0,
                boxpoints="all" if len(rows) <= 400 else "outliers",
                jitter=0.5,
                pointpos=0,
                marker={"color": colour, "size": 3, "opacity": 0.55},
                line={"color": colour, "width": 1.2},
                hovertemplate="%{y:.4~r} " + unit,
            )
    fig.update_xaxes(showticklabels=sum(s["process"].nunique() for _, _, s in sides) <= 12)
    return fig
