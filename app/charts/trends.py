"""One metric of a job over time: its runs, levels and change points."""

from collections.abc import Sequence

from analysis.history.line import Change, Line
from app.charts.base import Chart, figure, plain, short
from app.ui.colours import BAD, GOOD, NEUTRAL
from app.ui.format import when


def over_time(line: Line, colour: str) -> Chart:
    """Draw a point per run, the level of each segment, and a mark at each change."""
    unit = f" ({line.trend.unit})" if line.trend.unit else ""
    fig = figure(height=290, y_title=f"{line.trend.label.lower()}{unit}", legend=False)
    places = _places(line)
    fig.add(
        "scatter",
        x=places,
        y=[point.value for point in line.points],
        name="runs",
        mode="markers",
        marker={"size": 7, "color": colour, "opacity": 0.75},
        hovertext=[f"{short(p.name, 70)}<br>{plain(when(p.at))}" for p in line.points],
        hovertemplate="%{hovertext}<br>%{y:.4~r}" + unit + "<extra></extra>",
    )
    edges = [0, *(change.index for change in line.changes), len(line.points)]
    for i, level in enumerate(line.levels):
        first, last = edges[i], edges[i + 1] - 1
        fig.add(
            "scatter",
            x=[places[first], places[last]],
            y=[level, level],
            mode="lines",
            line={"color": NEUTRAL, "width": 2},
            hoverinfo="skip",
        )
    for change in line.changes:
        _mark(fig, change, places, colour=BAD if change.is_worse else GOOD)
    values = [point.value for point in line.points]
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.02 * high
    fig.update_yaxes(range=[low - margin, high + 3 * margin])  # room for the marks' texts
    return fig


def _mark(fig: Chart, change: Change, places: Sequence[str | int], *, colour: str) -> None:
    fig.add_vline(x=places[change.index], line={"color": colour, "width": 1.5, "dash": "dot"})  # type: ignore[arg-type]
    fig.add_annotation(
        x=places[change.index],
        xref="x",
        y=1,
        yref="y domain",
        text=f"{change.percent:+.1f} %",
        font={"color": colour, "size": 12},
        showarrow=False,
        xanchor="left",
        yanchor="top",
        xshift=3,
    )


def _places(line: Line) -> list[str | int]:
    """Return where the runs lie: at their times, where each has one of its own; else in order."""
    times = [point.at for point in line.points]
    if len(set(times)) == len(times):
        return list(times)
    return list(range(1, len(times) + 1))
