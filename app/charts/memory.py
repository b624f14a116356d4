"""Device memory over time, and live allocations at the peak."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.colours import NEUTRAL, SERIES_COLOURS, phase_colours, stable_colour
from analysis.memory_curve import rows_to_keep
from app.charts.base import Chart, figure, plain, short
from app.ui.format import bytes_

_MOST_POINTS = 4000
_ON_THE_BAND: dict[str, Any] = {
    **{"xref": "x", "yref": "y domain", "y": 0},
    **{"xanchor": "left", "yanchor": "bottom", "showarrow": False},
}


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    return points.iloc[rows_to_keep([points["allocated_bytes"]], _MOST_POINTS)]


def memory_timeline(
    points: pd.DataFrame,
    *,
    phases: Sequence[tuple[str, float, float]] = (),
    oom: tuple[float, str] | None = None,
    name: str = "allocated",
) -> Chart:
    """Draw allocated and reserved over time with the peak marked.

    `points`: MEMORY_POINT_COLUMNS of one device. `phases`: (name, start_ns, end_ns) bands.
    `oom`: time and label of the allocation that failed. `name`: of the main curve.
    """
    points = points.reset_index(drop=True)
    origin = points["time_ns"].iloc[0]
    peak = points.loc[points["allocated_bytes"].idxmax()]
    shown = _thinned(points)
    x = (shown["time_ns"] - origin) / 1e6
    length = points["time_ns"].iloc[-1] - origin
    fig = figure(height=420, x_title="time (ms)", y_title="memory")
    colours = phase_colours(phase for phase, _, _ in phases)
    for phase, start, end in phases:
        x0 = (start - origin) / 1e6
        fig.add_vrect(x0, (end - origin) / 1e6, colours[phase], 0.12)
        if end - start > 0.06 * length:
            fig.add_annotation(x=x0, text=plain(phase), font={"size": 11}, **_ON_THE_BAND)
    if shown["reserved_bytes"].notna().any():
        reserved = shown["reserved_bytes"].astype(float)
        line = {"color": NEUTRAL, "shape": "hv", "dash": "dot", "width": 1.5}
        fig.add("scatter", x=x, y=reserved, name="reserved", line=line, mode="lines")
    fig.add(
        "scatter",
        x=x,
        y=shown["allocated_bytes"],
        name=name,
        mode="lines",
        line={"color": SERIES_COLOURS[0], "shape": "hv", "width": 1.5},
        fill="tozeroy",
        fillcolor="rgba(0,114,178,0.16)",
        hovertemplate="%{y:.4s}B at %{x:.3f} ms",
    )
    _mark(fig, (peak["time_ns"] - origin) / 1e6, peak["allocated_bytes"], "peak ", length / 1e6)
    if oom:
        fig.add_vline(x=(oom[0] - origin) / 1e6, line={"color": "#d55e00", "width": 2})
        fig.add_annotation(
            x=(oom[0] - origin) / 1e6, y=1, yref="paper", text=plain(oom[1]), showarrow=False,
            xanchor="right", yanchor="top", xshift=-4, font={"color": "#d55e00"},
        )  # fmt: skip
    highest = points[["allocated_bytes", "reserved_bytes"]].astype(float).max().max()
    fig.update_yaxes(tickformat="~s", ticksuffix="B", range=[0, 1.14 * highest])
    return fig


def _mark(fig: Chart, x: float, y: float, prefix: str, length: float) -> None:
    """Point at the peak from the side where there is room."""
    side = -46 if x > length / 2 else 46
    fig.add_annotation(
        x=x, y=y, text=f"{prefix}{bytes_(y)}", arrowhead=2, ax=side, ay=26, font={"size": 12}
    )


def memory_overlay(curves: Sequence[tuple[str, str, pd.DataFrame]]) -> Chart:
    """Draw allocated bytes of several runs from their own first point; (label, colour, points)."""
    fig = figure(height=380, x_title="time since the first event (ms)", y_title="allocated")
    for label, colour, points in curves:
        shown = _thinned(points.reset_index(drop=True))
        fig.add(
            "scatter",
            x=(shown["time_ns"] - shown["time_ns"].iloc[0]) / 1e6,
            y=shown["allocated_bytes"],
            name=short(label, 32),
            mode="lines",
            line={"color": colour, "shape": "hv", "width": 1.6},
            hovertemplate="%{y:.4s}B",
        )
    fig.update_yaxes(tickformat="~s", ticksuffix="B", rangemode="tozero")
    return fig


_ROLE_COLOURS = {
    "parameters": "#0072b2",
    "optimizer state": "#a8429a",
    "gradients": "#8a6a00",
    "activations": "#00795a",
    "workspace": "#b35900",
}


def at_peak(sites: pd.DataFrame, *, by: str = "phase") -> Chart:
    """Draw live allocations at the peak as a treemap by phase or role, then site.

    Wants site, bytes and the column that `by` names.
    """
    rows = sites.nlargest(150, "bytes")
    phases = rows[by].fillna(f"no {by}").astype(str).str.split("/").str[0]
    known = phase_colours(phases)
    if by == "role":
        known = {p: _ROLE_COLOURS.get(p, NEUTRAL) for p in phases}
    totals = rows.groupby(phases)["bytes"].sum()
    labels = [plain(p) for p in totals.index] + [short(s, 60) for s in rows["site"]]
    colours = [known[str(p)] for p in totals.index] + [
        stable_colour(str(s)) if len(totals) == 1 else known[str(p)]
        for s, p in zip(rows["site"], phases, strict=True)
    ]
    fig = figure(height=460, legend=False)
    fig.add(
        "treemap",
        ids=[f"phase:{p}" for p in totals.index] + [f"site:{i}" for i in range(len(rows))],
        labels=labels,
        parents=[""] * len(totals) + [f"phase:{p}" for p in phases],
        values=totals.to_list() + rows["bytes"].to_list(),
        branchvalues="total",
        marker={"colors": colours},
        text=[bytes_(v) for v in [*totals.to_list(), *rows["bytes"].to_list()]],
        textinfo="label+text",
        hovertemplate="%{label}<br>%{text}<extra></extra>",
        tiling={"pad": 1},
        textfont={"color": "#ffffff"},
        pathbar={"visible": False},
    )
    fig.update_layout(margin={"t": 8, "l": 0, "r": 0, "b": 0})
    return fig
