"""A run's operators, the kernels of each, and its time by stack.

A box of the stacks that is clicked fills the width, and its kernels stay chosen in the tables and
the timeline until all are wanted.
"""

import json
from typing import Any

import pandas as pd
import streamlit as st

from analysis.per_step import basis_of, ranked_kernels
from analysis.roofline import flops_peak
from analysis.runview import RunView
from analysis.verdict import is_cpu_run
from app.charts.flame import FLAME_METRICS, TOP, Tree, flame
from app.ui import style
from app.ui.format import duration
from app.ui.kernel_detail import kernel_link, open_operator
from app.ui.run.kernels import kernel_table
from app.ui.run.steps import why_no_steps
from app.ui.stack_choice import click, keep_kernels, open_stack
from app.ui.tables import choose_row
from app.ui.widgets import choose_point, plain_markdown


def stacks(view: RunView) -> None:
    """Draw GPU time by stack, and idle time by what the host was in."""
    nodes = view.by_step.flame
    if not len(nodes):
        style.empty_state("No stacks recorded", why_no_steps(view))
        return
    known = [label for label, metric in FLAME_METRICS.items() if (nodes["metric"] == metric).any()]
    bar = st.columns([1, 2, 2], vertical_alignment="bottom")
    chosen = str(
        bar[0].segmented_control("Show", known, default=known[0], key="flame_of", required=True)
    )
    own = nodes[nodes["metric"] == FLAME_METRICS[chosen]]
    looked = bar[1].text_input(
        "Only stacks with", key="flame_find", placeholder="attention, aten::mm"
    )
    if looked:
        own = _within(own, looked)
    if own.empty:
        st.caption("No stack contains that text.")
        return
    a_step = "a step" if "source" in view.by_step.facts else "in all"
    whole = f"{chosen} {a_step}: {duration(float(own['self_ns'].sum()))}"
    tree = Tree.of(own, whole=whole)
    place = f"{view.run.id}_{FLAME_METRICS[chosen]}_{looked}"
    with bar[2]:
        root = open_stack(tree, place)
    clicked = choose_point(flame(tree, root), alt=f"{chosen} by stack", key=f"flame_{place}_{root}")
    if clicked is not None:
        click(tree, place, clicked, root)
    st.caption("Width is time. Click a box to zoom in, and a box above to zoom out.")
    if chosen == "GPU time":
        _kernels_of_stacks(view, tree, root, is_part=bool(looked) or root != TOP)


def _kernels_of_stacks(view: RunView, tree: Tree, root: int, *, is_part: bool) -> None:
    """List the kernels under the stacks that the reader looks at, and keep them chosen."""
    inside = tree.boxes.loc[tree.inside(root)]
    names = set(inside["name"][(inside["kind"] == "kernel") & (inside["self_ns"] > 0)])
    rows = ranked_kernels(view)
    rows = rows[rows["name"].isin(names)]
    if rows.empty or not is_part:
        keep_kernels(view, "", [])
        return
    label = str(tree.boxes.at[root, "name"]) if root != TOP else "the stacks with that text"
    keep_kernels(view, label, rows["name"].to_list())
    st.markdown("**Kernels under these stacks**, all of their launches")
    chosen = kernel_table(
        rows,
        basis_of(view),
        key="stack_kernels",
        most_px=420,
        is_chosen=pd.Series(False, index=rows.index),
    )
    if chosen is not None:
        kernel_link(str(chosen["name"]), "Open it in the table of kernels", key="kernel_of_stack")


def _within(nodes: pd.DataFrame, text: str) -> pd.DataFrame:
    """Return the nodes with the text in their name, with what is around and inside them."""
    parent = nodes["parent"].fillna(-1).astype(int).to_numpy()
    place = {int(n): i for i, n in enumerate(nodes["node"])}
    above = [place.get(p, -1) for p in parent.tolist()]
    hit = nodes["name"].str.contains(text, case=False, regex=False).to_list()
    inside = list(hit)
    order = sorted(range(len(nodes)), key=lambda i: _depth(i, above))
    for i in order:
        inside[i] = inside[i] or (above[i] >= 0 and inside[above[i]])
    kept = list(inside)
    for i in reversed(order):
        if kept[i] and above[i] >= 0:
            kept[above[i]] = True
    return nodes.assign(self_ns=nodes["self_ns"].where(inside, 0.0))[kept]


def _depth(row: int, above: list[int]) -> int:
    depth = 0
    while above[row] >= 0:
        row, depth = above[row], depth + 1
    return depth


def operators(view: RunView) -> None:
    """Draw the table by operator; a chosen one shows its kernels."""
    frame = view.by_step.operators
    if not len(frame):
        style.empty_state(
            "No operators recorded",
            "This tab divides GPU time; the operators of a CPU run are in the first tab."
            if is_cpu_run(view)
            else "They come from a PyTorch trace, or from nsys with --pytorch=autograd-nvtx.",
        )
        return
    per_step = frame["step_count"].notna().any()
    scope = "A step"
    if per_step:
        scope = st.segmented_control(
            "Figures of", ["A step", "Whole capture"], default="A step", key="op_scope",
            required=True,
        )  # fmt: skip
    table = _operator_table(frame, view, per_step=per_step and scope == "A step")
    place = choose_row(
        table,
        key="operator_table",
        first=open_operator(frame),
        most_px=520,
        helps=_HELPS,
        alt="Operators by own kernel time",
    )
    _kernels_of(view, frame.iloc[place or 0])


def _operator_table(frame: pd.DataFrame, view: RunView, *, per_step: bool) -> pd.DataFrame:
    head = "step_" if per_step else ""
    total_ns = frame["total_kernel_ns"].astype(float)
    flops = frame["flops"].astype(float)
    rate = flops / total_ns.where(total_ns > 0)  # FLOP per ns is GFLOP/s
    peak = _best_peak(view)
    table = pd.DataFrame(
        {
            "operator": frame["name"],
            "pass": frame["pass"],
            "own kernel ms": frame[f"{head}self_kernel_ns"].astype(float) / 1e6,
            "kernel ms": frame[f"{head}total_kernel_ns"].astype(float) / 1e6,
            "launches": frame[f"{head}num_kernels"].astype(float),
            "calls": frame[f"{head}count"].astype(float),
            "host ms": frame[f"{head}host_ns"].astype(float) / 1e6,
            "TFLOP/s": rate / 1e3,
            "% of peak": 100 * rate * 1e9 / peak if peak else None,
            "backward of": frame["forward_name"],
            "under": frame["module"],
            "shapes": [_first_shape(s) for s in frame["shapes"]],
        }
    )
    unknown = [c for c in table.columns if table[c].isna().all()]
    return table.drop(columns=unknown)


def _best_peak(view: RunView) -> float | None:
    """Return the peak that matrix products are compared with: that of bf16."""
    peak = flops_peak(view.peaks, view.run.gpu_model, "bfloat16")
    return peak.value if peak else None


def _first_shape(text: Any) -> str | None:
    shapes = json.loads(text) if isinstance(text, str) else []
    return str(shapes[0]) if shapes else None


_HELPS = {
    "pass": "forward, backward (autograd nodes and what they call), optimizer, or other",
    "own kernel ms": "kernels launched by the operator itself",
    "kernel ms": "including those of the operators it calls",
    "TFLOP/s": "operations from the recorded shapes over kernel time",
    "% of peak": "share of this GPU's bf16 peak",
    "backward of": "the forward operator with the same sequence number",
    "under": "the module or Python function that accounts for most of its kernel time",
}


def _kernels_of(view: RunView, row: pd.Series) -> None:
    links = view.by_step.operator_kernels
    mine = links[(links["name"] == row["name"]) & (links["pass"] == row["pass"])]
    st.markdown(plain_markdown(f"Kernels of {row['name']}, {row['pass']}"))
    if mine.empty:
        st.caption("It launches no kernels itself; these belong to the operators it calls.")
        return
    shown = mine.merge(
        view.kernels[["name", "category"]].drop_duplicates("name"),
        left_on="kernel",
        right_on="name",
        how="left",
    )
    place = choose_row(
        pd.DataFrame(
            {
                "kernel": shown["kernel"],
                "category": shown["category"],
                "share of the operator %": 100
                * shown["total_ns"]
                / (float(shown["total_ns"].sum()) or 1.0),
                "total ms": shown["total_ns"] / 1e6,
                "launches": shown["count"],
            }
        ),
        key=f"kernels_of_{row['name']}_{row['pass']}",
        first=None,
        most_px=320,
        alt="Kernels that the chosen operator launched",
    )
    if place is not None:
        name = str(shown["kernel"].iloc[place])
        kernel_link(name, "Open this kernel in the table of kernels", key="kernel_of_operator")
