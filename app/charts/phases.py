"""Three kinds of phase time side by side, never summed."""

import pandas as pd

from analysis.colours import HOST, KERNEL_SUM, PROJECTED, category_colour, category_order
from app.charts.base import (
    NARROW_CHARS,
    Chart,
    bar_height,
    figure,
    name_rows,
    plain,
    time_unit,
    unique_labels,
)
from app.ui.format import duration
from core.numbers import decimal

KINDS = (
    ("host_ns", "host range", HOST),
    ("projected_ns", "GPU projection", PROJECTED),
    ("kernel_ns", "kernel sum", KERNEL_SUM),
)


def phase_times(phases: pd.DataFrame, *, what: str = "kernel") -> Chart:
    """Draw host range time, GPU projection and the sum of `what` time, where known.

    Wants `label` and the three columns in ns.
    """
    labels = unique_labels(list(phases["label"]), 110, width=NARROW_CHARS)
    phases = phases.assign(text=labels)
    fig = figure(x_title="time (ms)", barmode="group")
    for column, kind, colour in KINDS:
        known = phases[phases[column].notna()]
        if known.empty:
            continue
        name = kind.replace("kernel", what)
        fig.add_bars(
            known["text"],
            known[column].astype(float) / 1e6,
            name=name,
            colour=colour,
            hovertext=[
                f"{plain(label)}<br>{name}: {duration(value)}"
                for label, value in zip(known["label"], known[column], strict=True)
            ],
        )
    name_rows(fig, labels, bars_px=34)
    return fig


def classes_by_phase(sums: pd.DataFrame) -> Chart:
    """Draw one stacked bar per phase; needs phase, category, total_ns in drawing order."""
    phases = list(dict.fromkeys(sums["phase"]))[:MAX_PHASES]
    labels = dict(zip(phases, unique_labels(phases, 110, width=NARROW_CHARS), strict=True))
    fig = figure(x_title="kernel time (ms)", barmode="stack")
    fig.update_layout(legend={"traceorder": "normal"})
    for category in category_order(list(dict.fromkeys(sums["category"]))):
        rows = sums[(sums["category"] == category) & sums["phase"].isin(phases)]
        if rows.empty:
            continue
        fig.add_bars(
            [labels[p] for p in rows["phase"]],
            rows["total_ns"] / 1e6,
            name=plain(category),
            colour=category_colour(category),
            hovertext=[
                f"{plain(phase)}<br>{plain(category)}: {duration(total)}"
                for phase, total in zip(rows["phase"], rows["total_ns"], strict=True)
            ],
        )
    name_rows(fig, list(labels.values()), bars_px=18)
    return fig


MAX_PHASES = 20


def host_calls(calls: pd.DataFrame) -> Chart:
    """Draw time in host API calls; needs name, total_ns, count, is_sync."""
    size_ns, unit = time_unit(float(calls["total_ns"].max()))
    fig = figure(x_title=f"time ({unit})", barmode="overlay")
    for is_sync, name, colour in ((False, "returns at once", HOST), (True, "waits", "#d55e00")):
        part = calls[calls["is_sync"].astype(bool) == is_sync]
        if part.empty:
            continue
        fig.add_bars(
            [plain(v) for v in part["name"]],
            part["total_ns"] / size_ns,
            name=name,
            colour=colour,
            hovertext=[
                f"{plain(r.name)}<br>{decimal(r.count)} calls, {duration(r.total_ns)}"
                for r in part.rename_axis(None).itertuples(index=False)
            ],
        )
    name_rows(fig, [plain(v) for v in calls["name"]], bars_px=14)
    return fig


def idle_causes(gaps: pd.DataFrame) -> Chart:
    """Draw idle time by cause; needs cause, total_ns, count."""
    rows = gaps.sort_values("total_ns")
    fig = figure(height=bar_height(len(rows)), x_title="idle time (ms)", legend=False)
    fig.add_bars(
        rows["cause"],
        rows["total_ns"] / 1e6,
        colour=HOST,
        hovertext=[
            f"{r.cause}: {duration(r.total_ns)}" + (f" in {r.count} gaps" if r.count else "")
            for r in rows.itertuples()
        ],
    )
    return fig
