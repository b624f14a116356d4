"""Time by stack as boxes: each as wide as the time under it, below what called it.

Boxes are bars, so that a click selects a box: plotly reports no clicks in icicle charts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.classify import classify, distinct_labels
from analysis.colours import HOST, category_colour
from app.charts.base import Chart, figure, plain, short
from app.ui.format import duration, percent

TOP = -1
"""The box over all stacks."""
MAX_DEPTH = 40
MIN_FRAC = 0.0008
"""Share of the whole below which a box is not drawn: less than a pixel."""
_ROW_PX = 22
KERNEL = "kernel"
FLAME_METRICS = {"GPU time": "gpu", "Idle time": "idle"}
"""Kind of a box that is a kernel: it has the colour of its class."""
_NODE_COLOURS = {
    "range": HOST,
    "operator": "#56b4e9",
    "python": "#009e73",
    "library": "#7a68c8",
    "call": "#d55e00",
    "other": "#6b7280",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The stacks of one metric, and where each box lies when one of them fills the width."""

    boxes: pd.DataFrame
    "node, parent (TOP over all), name, kind, self_ns, total_ns, by node."
    children: dict[int, list[int]]
    "Of each box, the widest first."

    @classmethod
    def of(cls, nodes: pd.DataFrame, *, whole: str) -> "Tree":
        """Return the tree of FLAME_COLUMNS of one metric; `whole` names the box over all."""
        top = pd.DataFrame(
            [{"node": TOP, "parent": pd.NA, "name": whole, "kind": "range", "self_ns": 0.0}]
        )
        own = nodes.assign(parent=nodes["parent"].fillna(TOP).astype(int))
        boxes = pd.concat([top, own[[*top.columns]]], ignore_index=True).set_index("node")
        total = boxes["self_ns"].astype(float).to_dict()
        above = boxes["parent"].to_dict()
        children: dict[int, list[int]] = {int(n): [] for n in boxes.index}
        for node in reversed([int(n) for n in boxes.index]):  # a parent comes before its parts
            if node != TOP:
                total[above[node]] += total[node]
                children[int(above[node])].append(node)
        for parts in children.values():
            parts.sort(key=lambda n: -total[n])
        return cls(boxes=boxes.assign(total_ns=pd.Series(total)), children=children)

    def path(self, node: int) -> list[int]:
        """Return the boxes from the one over all down to a node."""
        nodes = [node]
        while nodes[-1] != TOP:
            nodes.append(int(self.boxes.at[nodes[-1], "parent"]))
        return nodes[::-1]

    def inside(self, node: int) -> list[int]:
        """Return a node with all boxes under it."""
        nodes = [node]
        for at in nodes:
            nodes.extend(self.children[at])
        return nodes

    def laid_out(self, root: int) -> pd.DataFrame:
        """Return node, depth, x_ns, width_ns of the boxes that are seen where `root` is widest."""
        total = self.boxes["total_ns"].to_dict()
        whole = float(total[root]) or 1.0
        over = self.path(root)
        rows = [(node, depth, 0.0, whole) for depth, node in enumerate(over)]
        for node, depth, x_ns, _ in rows[-1:]:
            self._below(rows, total, node, depth, x_ns, MIN_FRAC * whole)
        return pd.DataFrame(rows, columns=["node", "depth", "x_ns", "width_ns"])

    def _below(
        self,
        rows: list[tuple[int, int, float, float]],
        total: dict[int, float],
        node: int,
        depth: int,
        x_ns: float,
        least: float,
    ) -> None:
        if depth >= MAX_DEPTH:
            return
        for part in self.children[node]:
            if total[part] < least:
                return  # those after it are narrower
            rows.append((part, depth + 1, x_ns, total[part]))
            self._below(rows, total, part, depth + 1, x_ns, least)
            x_ns += total[part]


def flame(tree: Tree, root: int) -> Chart:
    """Draw the stacks under a box, with those over it above; each point's customdata is its box."""
    boxes = tree.boxes
    shown = tree.laid_out(root)
    own = boxes.loc[shown["node"]]
    whole = float(boxes.at[TOP, "total_ns"]) or 1.0
    hover = [
        f"{plain(name)}<br>{duration(ns)}, {percent(ns / whole)} of all"
        for name, ns in zip(own["name"], own["total_ns"], strict=True)
    ]
    kinds = list(zip(own["name"], own["kind"], strict=True))
    colours = [
        category_colour(classify(name).category)
        if kind == KERNEL
        else _NODE_COLOURS.get(kind, HOST)
        for name, kind in kinds
    ]
    return _boxes(shown, _told(kinds), colours, hover, "time (ms)")


def _told(kinds: Sequence[tuple[str, str]]) -> list[str]:
    """Return each box's text: a kernel's distinguishing label, else the name."""
    labels = distinct_labels([name for name, kind in kinds if kind == KERNEL])
    return [labels[name] if kind == KERNEL else name for name, kind in kinds]


def flame_difference(rows: pd.DataFrame, root: int, *, labels: tuple[str, str]) -> Chart:
    """Draw two runs' time by stack in one: width is the longer of both, colour what changed.

    Wants STACK_DIFF_COLUMNS. Blue took less in B, orange more; grey is the same.
    """
    tree = difference_tree(rows)
    shown = tree.laid_out(root)
    by_node = rows.set_index("node")
    hover, colours = [], []
    for node in shown["node"]:
        if node == TOP:
            a_ns, b_ns = float(rows["a_self_ns"].sum()), float(rows["b_self_ns"].sum())
        else:
            a_ns, b_ns = float(by_node.at[node, "a_ns"]), float(by_node.at[node, "b_ns"])
        name = plain(tree.boxes.at[node, "name"])
        times = f"{plain(labels[0])} {duration(a_ns)}, {plain(labels[1])} {duration(b_ns)}"
        hover.append(f"{name}<br>{times}")
        colours.append(_diverging(_change(a_ns, b_ns)))
    own = tree.boxes.loc[shown["node"]]
    names = _told(list(zip(own["name"], own["kind"], strict=True)))
    return _boxes(shown, names, colours, hover, "the longer of both (ms)")


def difference_tree(rows: pd.DataFrame) -> Tree:
    """Return the tree of two runs' stacks put together, as wide as the longer of both."""
    wide = rows[["a_self_ns", "b_self_ns"]].max(axis=1)
    above = rows["parent"].where(rows["parent"] >= 0)
    return Tree.of(rows.assign(self_ns=wide, parent=above), whole="a step")


def _boxes(
    shown: pd.DataFrame,
    names: Sequence[str],
    colours: Sequence[str],
    hover: Sequence[str],
    x_title: str,
) -> Chart:
    num_rows = int(shown["depth"].max()) + 1
    fig = figure(
        height=max(160, _ROW_PX * num_rows + 70), x_title=x_title, legend=False, barmode="overlay"
    )
    fig.update_layout(bargap=0.06, clickmode="event+select")
    fig.update_yaxes(autorange="reversed", visible=False, fixedrange=True)
    width = shown["width_ns"].to_numpy(float) / 1e6
    fig.update_xaxes(fixedrange=True, range=[0, float(width.max())])
    share = width / (width.max() or 1.0)
    fig.add(
        "bar",
        orientation="h",
        base=shown["x_ns"] / 1e6,
        x=width,
        y=shown["depth"],
        customdata=shown["node"].astype(int).to_list(),
        text=[_fitting(n, s) for n, s in zip(names, share, strict=True)],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        constraintext="none",
        marker={"color": list(colours), "line": {"width": 0.5, "color": "rgba(255,255,255,0.6)"}},
        selected={"marker": {"opacity": 1.0}},
        unselected={"marker": {"opacity": 1.0}},
        hovertext=list(hover),
        hoverinfo="text",
    )
    return fig


def _fitting(name: str, share: float) -> str:
    """Return what of a name fits into a box; a page of usual width holds some 150 characters."""
    return short(name, max(3, int(150 * share))) if share > 0.02 else ""


def _change(a_ns: float, b_ns: float) -> float:
    """Return -1 (only in A) to 1 (only in B)."""
    return (b_ns - a_ns) / (a_ns + b_ns) if a_ns + b_ns else 0.0


def _diverging(share: float) -> str:
    """Return grey at 0, blue towards -1, orange towards 1; a tenth of change is seen."""
    grey, end = (138, 148, 166), (213, 94, 0) if share > 0 else (0, 114, 178)
    strength = min(1.0, abs(share) ** 0.5) if abs(share) > 0.01 else 0.0
    mixed = (round(g + (e - g) * strength) for g, e in zip(grey, end, strict=True))
    return f"rgb({','.join(map(str, mixed))})"
