"""A run's time by stack: a box that is clicked fills the width, and its kernels are what is shown.

The kernels under the chosen box stay chosen in the tables and the timeline until all are wanted.
"""

import pandas as pd
import streamlit as st

from analysis.per_step import basis_of, ranked_kernels
from analysis.runview import RunView
from app.charts.flame import FLAME_METRICS, TOP, Tree, flame
from app.ui import style
from app.ui.format import duration
from app.ui.kernel_detail import kernel_link
from app.ui.run.kernels import kernel_table
from app.ui.run.steps import why_no_steps
from app.ui.stack_choice import click, keep_kernels, open_stack
from app.ui.widgets import choose_point


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
