"""Latency samples by process, and steps one after the other with what the host did meanwhile."""

from collections.abc import Sequence

import pandas as pd

from analysis.colours import IDLE, KERNEL_SUM, SERIES_COLOURS
from app.charts.base import (
    NARROW_CHARS,
    Chart,
    figure,
    name_rows,
    plain,
    short,
    time_unit,
    unique_labels,
)
from app.ui.format import duration, percent

MAX_SHOWN = 2_000


def step_ruler(steps: pd.DataFrame) -> Chart:
    """Draw each step's time as GPU busy and idle; those left out of the averages are pale.

    Wants step, busy_ns, period_ns (GPU time where that is unknown), is_regular, reason.
    """
    shown = steps.head(MAX_SHOWN)
    fig = figure(height=230, x_title="step", y_title="time (ms)", barmode="stack", bargap=0.12)
    whole = shown["period_ns"].astype("Float64").fillna(shown["busy_ns"]).astype(float)
    busy = shown["busy_ns"].astype(float).clip(upper=whole)
    regular = shown["is_regular"].to_numpy(bool)
    for values, name, colour in (
        (busy, "GPU busy", KERNEL_SUM),
        (whole - busy, "GPU idle", IDLE),
    ):
        fig.add(
            "bar",
            x=shown["step"],
            y=values / 1e6,
            name=name,
            marker={
                "color": colour,
                "opacity": [1.0 if r else 0.35 for r in regular],
                "line": {"width": 0},
            },
            hovertext=[_told(row) for row in shown.itertuples()],
        )
    top = float(whole[regular].max() if regular.any() else whole.max()) / 1e6
    if whole.max() / 1e6 > 3 * top:
        # A warm-up step of a hundred times the usual would hide all others.
        fig.update_yaxes(range=[0, 1.6 * top])
    return fig


def _told(row: object) -> str:
    left_out = f"<br>left out: {plain(row.reason)}" if not row.is_regular else ""  # type: ignore[attr-defined]
    period = row.period_ns  # type: ignore[attr-defined]
    time = duration(None if pd.isna(period) else float(period))
    return (
        f"step {row.step}: {time}<br>{row.num_kernels} kernels, "  # type: ignore[attr-defined]
        f"{duration(row.kernel_ns + row.graph_ns)} of GPU work{left_out}"  # type: ignore[attr-defined]
    )


def idle_activities(rows: pd.DataFrame) -> Chart:
    """Draw what the host did while the GPU waited; wants label, words, step_idle_ns, idle_frac."""
    labels = unique_labels(list(rows["label"]), 110, width=NARROW_CHARS)
    fig = figure(x_title="idle time a step (ms)", legend=True)
    kinds = list(dict.fromkeys(rows["words"]))
    for kind in kinds:
        mine = (rows["words"] == kind).to_numpy()
        part = rows[mine]
        fig.add_bars(
            [label for label, own in zip(labels, mine, strict=True) if own],
            part["step_idle_ns"] / 1e6,
            name=plain(kind),
            colour=SERIES_COLOURS[kinds.index(kind) % len(SERIES_COLOURS)],
            hovertext=[
                f"{plain(r.label)}<br>{duration(r.step_idle_ns)} a step, {percent(r.idle_frac)}"
                for r in part.itertuples()
            ],
        )
    name_rows(fig, labels, bars_px=14)
    return fig


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
