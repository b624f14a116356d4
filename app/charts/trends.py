"""One metric of a job over time: its runs, levels and change points."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from analysis.colours import BAD, GOOD, NEUTRAL
from analysis.history.line import Change, Line
from app.charts.base import Chart, figure, plain, short
from app.ui.format import when

LEAST_SPAN = timedelta(minutes=10)
_FEW_TICKS, _FEW_RUNS = 6, 12


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
    if line.trend.is_exact and not line.trend.unit:  # a count: no ticks between whole numbers
        is_few = high - low < _FEW_TICKS
        margin = 1.0 if is_few else margin
        fig.update_yaxes(tickformat=",d", **({"dtick": 1} if is_few else {}))
    fig.update_yaxes(range=[max(0.0, low - margin), high + 3 * margin])  # room for marks' texts
    if places and not isinstance(places[0], str):
        few = {"dtick": 1} if len(places) <= _FEW_RUNS else {}
        fig.update_xaxes(title={"text": "run, in order"}, tickformat=",d", **few)
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
    """Return where the runs lie: at their times where those say something, else in order.

    Runs that were imported in one go are moments apart: that is not history.
    """
    times = [point.at for point in line.points]
    known = [moment for text in times if (moment := _moment(text)) is not None]
    is_told = len(known) == len(times) and max(known) - min(known) >= LEAST_SPAN
    if is_told and len(set(times)) == len(times):
        return list(times)
    return list(range(1, len(times) + 1))


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
