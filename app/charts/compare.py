"""What changed between two sides."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.colours import CATEGORY_COLOURS, NEUTRAL, RUN_A, RUN_B
from app.charts.base import NARROW_CHARS, Chart, figure, name_rows, short, unique_labels
from app.charts.roofline import add_kernels
from app.ui.format import duration
from core.numbers import decimal

_LEAST_MS_NS = 2e6
_WIDE = 30.0
"A ratio, or its interval, beyond this is drawn on a logarithmic axis."
_ROOM_FOR_NUMBER = 1.2
"The axis is longer than the longest bar by the number behind it."
_LEAST_STEP = 0.004
"""A step below this share of the larger total is joined with others: it would be a hairline."""


def waterfall(
    steps: Sequence[tuple[str, float]], *, start_ns: float, labels: tuple[str, str], what: str
) -> Chart:
    """Draw the steps from A's time to B's, top down, with a number at every bar.

    `steps` are (name, delta_ns).
    """
    shown = _readable(steps, start_ns)
    end_ns = start_ns + sum(delta for _, delta in steps)
    unit_ns, unit = (1e6, "ms") if max(start_ns, end_ns) >= _LEAST_MS_NS else (1e3, "\u00b5s")
    fig = figure(x_title=f"{what} ({unit})", legend=False)
    names = [short(labels[0], 48), *(short(n, NARROW_CHARS) for n, _ in shown)]
    names.append(short(labels[1], 48))
    if names[0] == names[-1]:
        names[0], names[-1] = f"A: {names[0]}", f"B: {names[-1]}"
    base, bars, running = [0.0], [start_ns], start_ns
    for _, delta in shown:
        base.append(min(running, running + delta))
        bars.append(abs(delta))
        running += delta
    base.append(0.0)
    bars.append(end_ns)
    texts = [
        duration(start_ns),
        *(("+" if d > 0 else "\u2212") + duration(abs(d)) for _, d in shown),
        duration(end_ns),
    ]
    fig.add(
        "bar",
        y=names,
        x=[b / unit_ns for b in bars],
        base=[b / unit_ns for b in base],
        orientation="h",
        marker={
            "color": [RUN_A, *(CATEGORY_COLOURS.get(n, NEUTRAL) for n, _ in shown), RUN_B],
        },
        text=texts,
        textposition="outside",
        constraintext="none",
        cliponaxis=False,
        hovertext=[f"{n}: {t}" for n, t in zip(names, texts, strict=True)],
    )
    # Plotly would hide a number that is wider than its bar is high: each bar has its own.
    fig.update_layout(uniformtext={"mode": False})
    most = max(b + size for b, size in zip(base, bars, strict=True))
    fig.update_xaxes(range=[0, _ROOM_FOR_NUMBER * most / unit_ns or 1.0])
    name_rows(fig, names, bars_px=16)
    return fig


def _readable(steps: Sequence[tuple[str, float]], start_ns: float) -> list[tuple[str, float]]:
    """Return the steps one can see, and the sum of the others as one step: the total stays."""
    end_ns = start_ns + sum(delta for _, delta in steps)
    least = _LEAST_STEP * max(start_ns, end_ns)
    shown = [s for s in steps if abs(s[1]) >= least]
    rest = sum(delta for _, delta in steps if abs(delta) < least)
    return [*shown, ("the rest", rest)] if rest else shown


def interval(ratio: float, ci95: tuple[float, float], noise_floor_frac: float | None) -> Chart:
    """Draw the ratio B / A with its interval, the line of equality and the noise floor."""
    low, high = ci95
    fig = figure(height=130, x_title="ratio B / A", legend=False)
    if noise_floor_frac:
        fig.add_vrect(1 - noise_floor_frac, 1 + noise_floor_frac, NEUTRAL, 0.2)
    fig.add_vline(x=1, line={"color": NEUTRAL, "dash": "dot"})
    fig.add(
        "scatter",
        x=[ratio],
        y=[""],
        mode="markers",
        marker={"size": 11, "color": RUN_B},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [high - ratio],
            "arrayminus": [ratio - low],
            "thickness": 3,
            "width": 8,
            "color": RUN_B,
        },
        hovertext=[f"{decimal(ratio)} ({decimal(low)} to {decimal(high)})"],
    )
    floor = noise_floor_frac or 0.0
    left, right = min(low, 1 - floor, 0.98), max(high, 1 + floor, 1.02)
    if right > _WIDE * left:
        _wide_axis(fig, min(ratio, 1.0), max(ratio, 1.0), left, right)
    else:
        margin = 0.12 * (right - left)
        fig.update_xaxes(range=[left - margin, right + margin])
    fig.update_yaxes(showticklabels=False, showgrid=False)
    return fig


def _wide_axis(fig: Chart, least: float, most: float, left: float, right: float) -> None:
    """Give ratios that lie far apart a logarithmic axis, cut where an interval tells no more."""
    ends = max(left, least / _WIDE), min(right, most * _WIDE)
    low, high = math.log10(ends[0]), math.log10(ends[1])
    margin = 0.06 * (high - low)
    fig.update_xaxes(type="log", range=[low - margin, high + margin], dtick=1)


def intervals(rows: Sequence[tuple[str, float, tuple[float, float] | None, str]]) -> Chart:
    """Draw one ratio per line; a measurement is (label, ratio, 95 % interval, colour)."""
    fig = figure(x_title="ratio B / A", legend=False)
    fig.add_vline(x=1, line={"color": NEUTRAL, "dash": "dot"})
    labels = unique_labels([label for label, *_ in rows], 110, width=NARROW_CHARS)
    for label, (_, ratio, ci95, colour) in zip(labels, rows, strict=True):
        low, high = ci95 or (ratio, ratio)
        bar = {"array": [high - ratio], "arrayminus": [ratio - low], "thickness": 3, "width": 6}
        fig.add(
            "scatter",
            x=[ratio],
            y=[label],
            mode="markers",
            marker={"size": 11, "color": colour},
            error_x={"type": "data", "symmetric": False, "color": colour, **bar},
            hovertext=[f"{label}: {decimal(ratio)} ({decimal(low)} to {decimal(high)})"],
        )
    ends = [v for _, ratio, ci95, _ in rows for v in (ratio, *(ci95 or ()))]
    if max(ends) > _WIDE:
        ratios = [1.0, *(ratio for _, ratio, _, _ in rows)]
        _wide_axis(fig, min(ratios), max(ratios), min(ends), max(ends))
    else:
        fig.update_xaxes(rangemode="tozero")
    name_rows(fig, labels, bars_px=14)
    return fig


def throughputs(points: pd.DataFrame) -> Chart:
    """Draw kernels by compute and memory throughput (% of peak); a marker's area is its time.

    `points`: label, category, sm_pct, memory_pct, duration_ns, side, run, colour.
    """
    x, y = "compute throughput (% of peak)", "memory throughput (% of peak)"
    fig = figure(height=460, x_title=x, y_title=y)
    add_kernels(fig, points, x="sm_pct", y="memory_pct", told=_shares)
    fig.update_xaxes(range=[0, 104])
    fig.update_yaxes(range=[0, 104])
    return fig


def _shares(row: Any) -> str:
    return f"compute {row.sm_pct:.1f} %, memory {row.memory_pct:.1f} %"
