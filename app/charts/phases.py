"""Kernel time of one run by kernel and by class, and three kinds of phase time, never summed."""

from collections import Counter

import pandas as pd

from analysis.classify import distinct_labels
from analysis.colours import (
    HOST,
    KERNEL_SUM,
    PROJECTED,
    category_colour,
    category_order,
    origin_colour,
)
from app.charts.base import (
    NARROW_CHARS,
    Chart,
    bar_height,
    figure,
    name_rows,
    plain,
    time_unit,
    unique_labels,
    whole,
)
from app.ui.format import duration, percent
from core.numbers import decimal


def top_kernels(kernels: pd.DataFrame, *, of: str = "kernel time") -> Chart:
    """Draw the total time of each kernel; `of` names the whole of the shares.

    Wants name, grid, category, origin, total_ns, count, share_frac.
    """
    size_ns, unit = time_unit(float(kernels["total_ns"].max()))
    fig = figure(x_title=f"time ({unit})", legend=False)
    calls = "launches" if of == "kernel time" else "calls"
    hover = [
        f"{whole(r.name)}<br>{r.category}, {r.origin}<br>"
        f"{duration(r.total_ns)} in {r.count} "
        f"{calls} ({percent(r.share_frac)} of {of})"
        for r in kernels.itertuples()
    ]
    labels = unique_labels(_row_labels(kernels), NARROW_CHARS)
    fig.add_bars(
        labels,
        kernels["total_ns"] / size_ns,
        colour=[category_colour(c) for c in kernels["category"]],
        hovertext=hover,
    )
    name_rows(fig, labels, bars_px=14)
    return fig


def _row_labels(kernels: pd.DataFrame) -> list[str]:
    """Return a label a row; a kernel that was launched in several shapes has them in it."""
    blocks = kernels["block"] if "block" in kernels else kernels["grid"]
    places = list(zip(kernels["name"], kernels["grid"], blocks, strict=True))
    num_grids = Counter(name for name, _, _ in places)
    num_blocks = Counter((name, grid) for name, grid, _ in places)
    shapes = [
        ""
        if num_grids[name] < 2
        else f" [{grid}]"
        if num_blocks[name, grid] < 2
        else f" [{grid} x {block}]"
        for name, grid, block in places
    ]
    room = NARROW_CHARS - max(map(len, shapes), default=0)
    of_name = distinct_labels(tuple(kernels["name"]), room)
    return [of_name[name] + shape for (name, _, _), shape in zip(places, shapes, strict=True)]


def shares(frame: pd.DataFrame, *, by: str, of: str = "kernel time") -> Chart:
    """Draw one bar per class with its share `of` the whole.

    Wants the columns `by`, total_ns and share_frac, largest first.
    """
    colour = category_colour if by == "category" else origin_colour
    rows = frame.iloc[::-1]
    fig = figure(height=bar_height(len(rows)), x_title=f"share of {of} (%)", legend=False)
    fig.add_bars(
        rows[by],
        100 * rows["share_frac"],
        colour=[colour(c) for c in rows[by]],
        text=[percent(v) for v in rows["share_frac"]],
        textposition="outside",
        cliponaxis=False,
        hovertext=[f"{c}: {duration(t)}" for c, t in zip(rows[by], rows["total_ns"], strict=True)],
    )
    fig.update_xaxes(range=[0, 118 * rows["share_frac"].max()])
    return fig


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
