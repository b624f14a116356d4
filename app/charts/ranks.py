"""The ranks of a run: where each one's time went, and how far apart they were by step."""

from collections.abc import Sequence

import pandas as pd

from analysis.colours import BAD, IDLE, RUN_B, category_colour
from app.charts.base import Chart, figure, name_rows
from app.ui.format import duration, percent

PARTS = (
    ("compute_ns", "compute", RUN_B),
    ("exposed_ns", "exposed communication", category_colour("collective")),
    ("idle_ns", "idle", IDLE),
)
MAX_BARS = 16
"""With more ranks than these their distribution is drawn instead."""
_FEW_STEPS = 12


def rank_bars(ranks: pd.DataFrame) -> Chart:
    """Draw one bar a rank; wants rank and the columns of PARTS, in ns."""
    labels = [f"rank {rank}" for rank in ranks["rank"]]
    fig = figure(x_title="time (ms)", barmode="stack")
    for column, name, colour in PARTS:
        fig.add_bars(
            labels,
            ranks[column].astype(float) / 1e6,
            name=name,
            colour=colour,
            hovertext=[
                f"{label}<br>{name}: {duration(value)} ({percent(value / span)})"
                for label, value, span in zip(labels, ranks[column], ranks["span_ns"], strict=True)
            ],
        )
    name_rows(fig, labels, bars_px=22)
    return fig


def rank_spread(ranks: pd.DataFrame) -> Chart:
    """Draw how the share of each part is spread over many ranks; wants what `rank_bars` wants."""
    fig = figure(height=260, y_title="share of a rank's span", legend=False)
    for column, name, colour in PARTS:
        fig.add(
            "box",
            y=(ranks[column] / ranks["span_ns"]).astype(float).tolist(),
            name=name,
            marker={"color": colour, "size": 4},
            line={"color": colour},
            boxpoints="outliers",
        )
    fig.update_yaxes(tickformat=".0%", rangemode="tozero")
    return fig


def step_skew(steps: pd.DataFrame) -> Chart:
    """Draw skew and waiting by step; wants step, skew_ns, waited_ns, straggler."""
    fig = figure(height=260, x_title="step", y_title="time (ms)")
    for column, name, colour in (
        ("skew_ns", "first to last arrival", RUN_B),
        ("waited_ns", "all others wait for the straggler", BAD),
    ):
        fig.add(
            "scatter",
            x=steps["step"].tolist(),
            y=(steps[column] / 1e6).tolist(),
            name=name,
            mode="lines+markers",
            marker={"color": colour, "size": 6},
            line={"color": colour},
            hovertext=_step_texts(steps, column, name),
        )
    fig.update_yaxes(rangemode="tozero")
    if len(steps) <= _FEW_STEPS:  # else half steps are marked
        fig.update_xaxes(dtick=1)
    return fig


def _step_texts(steps: pd.DataFrame, column: str, name: str) -> Sequence[str]:
    return [
        f"step {step}, straggler rank {rank}<br>{name}: {duration(value)}"
        for step, rank, value in zip(steps["step"], steps["straggler"], steps[column], strict=True)
    ]
