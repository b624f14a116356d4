"""Three kinds of phase time beside each other, never added up."""

import pandas as pd
import plotly.graph_objects as go

from app.charts.base import bar_height, figure, plain
from app.ui.colours import HOST, KERNEL_SUM, PROJECTED
from app.ui.format import duration

KINDS = (
    ("host_ns", "host range", HOST),
    ("projected_ns", "GPU projection", PROJECTED),
    ("kernel_ns", "kernel sum", KERNEL_SUM),
)


def phase_times(phases: pd.DataFrame) -> go.Figure:
    """Draw host range, GPU projection and kernel sum; wants `label` and the three columns in ns."""
    rows = phases.iloc[::-1]
    height = bar_height(len(rows), row=48)
    fig = figure(height=height, x_title="time (ms)", barmode="group")
    for column, name, colour in reversed(KINDS):
        known = rows[rows[column].notna()]
        fig.add_bar(
            y=[plain(v) for v in known["label"]],
            x=known[column].astype(float) / 1e6,
            name=name,
            orientation="h",
            marker={"color": colour},
            hovertext=[
                f"{plain(label)}<br>{name}: {duration(value)}"
                for label, value in zip(known["label"], known[column], strict=True)
            ],
            hoverinfo="text",
        )
    fig.update_layout(legend={"traceorder": "reversed"})
    return fig


def host_calls(calls: pd.DataFrame) -> go.Figure:
    """Draw time in host API calls; wants name, total_ns, count, is_sync."""
    rows = calls.iloc[::-1]
    fig = figure(height=bar_height(len(rows)), x_title="total time (ms)")
    for is_sync, name, colour in ((False, "returns at once", HOST), (True, "waits", "#d55e00")):
        part = rows[rows["is_sync"].astype(bool) == is_sync]
        if part.empty:
            continue
        fig.add_bar(
            y=[plain(v) for v in part["name"]],
            x=part["total_ns"] / 1e6,
            name=name,
            orientation="h",
            marker={"color": colour},
            hovertext=[
                f"{plain(r.name)}<br>{r.count} calls, {duration(r.total_ns)}"
                for r in part.rename_axis(None).itertuples(index=False)
            ],
            hoverinfo="text",
        )
    fig.update_yaxes(categoryorder="array", categoryarray=[plain(v) for v in rows["name"]])
    return fig


def idle_causes(gaps: pd.DataFrame) -> go.Figure:
    """Draw idle time by cause; wants cause, total_ns, count."""
    rows = gaps.sort_values("total_ns")
    fig = figure(height=bar_height(len(rows)), x_title="idle time (ms)", legend=False)
    fig.add_bar(
        y=rows["cause"],
        x=rows["total_ns"] / 1e6,
        orientation="h",
        marker={"color": HOST},
        hovertext=[
            f"{r.cause}: {duration(r.total_ns)} in {r.count} gaps" for r in rows.itertuples()
        ],
        hoverinfo="text",
    )
    return fig
