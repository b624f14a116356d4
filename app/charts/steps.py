"""Steps one after the other, what the host did while the GPU waited, and time by stack."""

import pandas as pd

from app.charts.base import NARROW_CHARS, Chart, figure, name_rows, plain, short, unique_labels
from app.ui.colours import HOST, IDLE, KERNEL_SUM, SERIES_COLOURS
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
            hoverinfo="text",
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
        fig.add(
            "bar",
            y=[label for label, own in zip(labels, mine, strict=True) if own],
            x=part["step_idle_ns"] / 1e6,
            orientation="h",
            name=plain(kind),
            marker={"color": SERIES_COLOURS[kinds.index(kind) % len(SERIES_COLOURS)]},
            hovertext=[
                f"{plain(r.label)}<br>{duration(r.step_idle_ns)} a step, {percent(r.idle_frac)}"
                for r in part.itertuples()
            ],
            hoverinfo="text",
        )
    name_rows(fig, labels, bars_px=14)
    return fig


_NODE_COLOURS = {
    "range": HOST,
    "operator": "#56b4e9",
    "python": "#009e73",
    "library": "#7a68c8",
    "kernel": "#e69f00",
    "call": "#d55e00",
    "other": "#6b7280",
}


def flame(nodes: pd.DataFrame, *, whole: str, depth: int = 12) -> Chart:
    """Draw time by stack from the top down: a box is as wide as the time under it.

    Wants FLAME_COLUMNS of one metric; `whole` names the box over all.
    """
    parents = nodes["parent"].fillna(-1).astype(int)
    fig = figure(height=640, legend=False)
    fig.add(
        "icicle",
        ids=["-1", *nodes["node"].astype(str)],
        parents=["", *parents.astype(str)],
        labels=[plain(whole), *(short(n, 60) for n in nodes["name"])],
        values=[0.0, *(nodes["self_ns"] / 1e6)],
        branchvalues="remainder",
        maxdepth=depth,
        tiling={"orientation": "v"},
        marker={"colors": [HOST, *(_NODE_COLOURS.get(k, HOST) for k in nodes["kind"])]},
        hovertext=["", *(plain(n) for n in nodes["name"])],
        hovertemplate="%{hovertext}<br>%{value:.3f} ms, %{percentRoot:.1%} of all<extra></extra>",
        textposition="middle left",
        leaf={"opacity": 1.0},
        pathbar={"visible": True},
        sort=True,
    )
    return fig


def flame_difference(rows: pd.DataFrame, *, labels: tuple[str, str]) -> Chart:
    """Draw two runs' time by stack in one: width is the longer of both, colour what changed.

    Wants STACK_DIFF_COLUMNS. Blue took less in B, orange more; grey is the same.
    """
    fig = figure(height=640, legend=False)
    wide = rows[["a_self_ns", "b_self_ns"]].max(axis=1)
    shares = [_change(a, b) for a, b in zip(rows["a_ns"], rows["b_ns"], strict=True)]
    told = [
        f"{plain(r.name_)}<br>{plain(labels[0])} {duration(r.a_ns)}, "
        f"{plain(labels[1])} {duration(r.b_ns)}"
        for r in rows.rename(columns={"name": "name_"}).itertuples()
    ]
    fig.add(
        "icicle",
        ids=["-1", *rows["node"].astype(str)],
        parents=["", *rows["parent"].astype(str)],
        labels=["a step", *(short(n, 60) for n in rows["name"])],
        values=[0.0, *(wide / 1e6)],
        branchvalues="remainder",
        maxdepth=12,
        tiling={"orientation": "v"},
        leaf={"opacity": 1.0},
        marker={"colors": [HOST, *map(_diverging, shares)]},
        hovertext=["", *told],
        hovertemplate="%{hovertext}<extra></extra>",
        textposition="middle left",
        pathbar={"visible": True},
    )
    return fig


def _change(a_ns: float, b_ns: float) -> float:
    """Return -1 (only in A) to 1 (only in B)."""
    return (b_ns - a_ns) / (a_ns + b_ns) if a_ns + b_ns else 0.0


def _diverging(share: float) -> str:
    """Return grey at 0, blue towards -1, orange towards 1; a tenth of change is seen."""
    grey, end = (138, 148, 166), (213, 94, 0) if share > 0 else (0, 114, 178)
    strength = min(1.0, abs(share) ** 0.5) if abs(share) > 0.01 else 0.0
    mixed = (round(g + (e - g) * strength) for g, e in zip(grey, end, strict=True))
    return f"rgb({','.join(map(str, mixed))})"
