"""Steps one after the other, what the host did while the GPU waited, and time by stack."""

import pandas as pd

from analysis.colours import IDLE, KERNEL_SUM, SERIES_COLOURS
from app.charts.base import NARROW_CHARS, Chart, figure, name_rows, plain, unique_labels
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
