"""Time by stack of two runs, put together: what a difference flame graph shows."""

import pandas as pd

from analysis.runview import RunView

STACK_DIFF_COLUMNS = ("node", "parent", "name", "kind", "a_self_ns", "b_self_ns", "a_ns", "b_ns")
"""One row a stack that either run has; `a_ns` and `b_ns` are with all that lies in it."""

Path = tuple[str, ...]


def stack_difference(a: RunView, b: RunView, metric: str) -> pd.DataFrame:
    """Return STACK_DIFF_COLUMNS of one metric (`gpu` or `idle`), per step; empty without both."""
    own_a, own_b = _by_path(a.by_step.flame, metric), _by_path(b.by_step.flame, metric)
    if not own_a or not own_b:
        return pd.DataFrame({name: [] for name in STACK_DIFF_COLUMNS})
    number: dict[Path, int] = {}
    for path in sorted({*own_a, *own_b}, key=len):
        number.setdefault(path, len(number))
    total_a, total_b = _totals(own_a, number), _totals(own_b, number)
    nothing = ("", 0.0)
    rows = [
        (
            place,
            number.get(path[:-1], -1),
            path[-1],
            (own_b.get(path) or own_a.get(path) or nothing)[0],
            own_a.get(path, nothing)[1],
            own_b.get(path, nothing)[1],
            total_a.get(path, 0.0),
            total_b.get(path, 0.0),
        )
        for path, place in number.items()
    ]
    return pd.DataFrame(rows, columns=list(STACK_DIFF_COLUMNS))


def _by_path(nodes: pd.DataFrame, metric: str) -> dict[Path, tuple[str, float]]:
    """Return kind and own time of each stack, by its names from the top."""
    if not len(nodes):
        return {}
    own = nodes[nodes["metric"] == metric]
    paths: dict[int, Path] = {}
    found: dict[Path, tuple[str, float]] = {}
    parents = own["parent"].fillna(-1).astype(int).tolist()
    for node, parent, name, kind, time_ns in zip(
        own["node"], parents, own["name"], own["kind"], own["self_ns"], strict=True
    ):
        path = (*paths.get(parent, ()), str(name))
        paths[int(node)] = path
        found[path] = (str(kind), found.get(path, ("", 0.0))[1] + float(time_ns))
    return found


def _totals(own: dict[Path, tuple[str, float]], number: dict[Path, int]) -> dict[Path, float]:
    totals = {path: time_ns for path, (_, time_ns) in own.items()}
    for path in sorted(number, key=len, reverse=True):
        if path in totals and len(path) > 1:
            totals[path[:-1]] = totals.get(path[:-1], 0.0) + totals[path]
    return totals
