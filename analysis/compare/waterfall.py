"""Where the time went: steps from A to B that add up to the nanosecond.

The span of a capture (first to last GPU operation) is the kernels' time by category, less what ran
at the same time (overlap), plus the idle time by cause; a copy that no kernel hides is idle time
of cause `transfer`. Whatever a capture's own tables leave unexplained is a bar of its own, so that
nothing is spread over the others. By stack, the same is what a difference flame graph shows.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import pandas as pd

from analysis.compare.records import Bar, Waterfall
from analysis.per_step import basis_of, common_basis, num_of
from analysis.runview import RunView

K = TypeVar("K", bound=Hashable)


def per_iteration(parts_ns: Mapping[K, int], num_iterations: int) -> dict[K, int]:
    """Return each part divided by the number of iterations, in whole ns.

    The parts of the answer add up to the rounded share of the total: what rounding down leaves
    goes to the largest remainders.
    """
    total = round(sum(parts_ns.values()) / num_iterations)
    shares = {name: value // num_iterations for name, value in parts_ns.items()}
    left = total - sum(shares.values())
    by_remainder = sorted(parts_ns, key=lambda name: parts_ns[name] % num_iterations, reverse=True)
    for name in by_remainder[: max(0, left)]:
        shares[name] += 1
    return shares


OPAQUE_NAME = "CUDA graphs (opaque)"
IDLE_NAMES = {
    "launch": "waiting for launches",
    "synchronisation": "waiting in synchronisation",
    "transfer": "copies not hidden by kernels",
    "host": "host work between launches",
    "unknown": "idle, cause unknown",
}
KIND_ORDER = ("kernel", "overlap", "transfer", "idle", "other")
Parts = dict[tuple[str, str], int]


def representative(views: Sequence[RunView]) -> RunView | None:
    """Return the newest run of a side that has kernels; None if none has."""
    having = [v for v in views if len(v.kernels)]
    return max(having, key=lambda v: v.run.started_at or v.run.created_at) if having else None


def make_waterfall(a: RunView, b: RunView, mode: str) -> Waterfall | None:
    """Return the steps of `span` or `kernel_time` from A to B, None where a total is unknown.

    Of what `common_basis` says. A step lasts from its start on the GPU to the next one's, so the
    idle time before the next is in it.
    """
    per = common_basis((a, b))
    read = _step_parts if per == "step" else _parts
    parts_a, parts_b = read(a, mode), read(b, mode)
    if parts_a is None or parts_b is None:
        return None
    parts_a, parts_b = (
        per_iteration(parts, num_of(view, per)) for parts, view in ((parts_a, a), (parts_b, b))
    )
    bars = [
        Bar(
            kind=kind,
            name=name,
            a_ns=parts_a.get((kind, name), 0),
            b_ns=parts_b.get((kind, name), 0),
        )
        for kind, name in {**parts_a, **parts_b}
    ]
    bars = [bar for bar in bars if bar.a_ns or bar.b_ns]
    bars.sort(key=lambda bar: (KIND_ORDER.index(bar.kind), -max(bar.a_ns, bar.b_ns), bar.name))
    return Waterfall(
        mode=mode,
        per=per,
        run_a=a.run.id,
        run_b=b.run.id,
        total_a_ns=sum(parts_a.values()),
        total_b_ns=sum(parts_b.values()),
        bars=tuple(bars),
    )


def _parts(view: RunView, mode: str) -> Parts | None:
    kernels = _kernel_parts(view.kernels)
    if mode == "kernel_time":
        return kernels or None
    span, busy = view.summary.get("span_ns"), view.summary.get("busy_ns")
    if span is None or busy is None:
        return None
    parts = kernels | {("overlap", "running at the same time"): int(busy) - sum(kernels.values())}
    explained = int(busy)
    for row in view.gaps.itertuples() if len(view.gaps) else ():
        kind = "transfer" if row.cause == "transfer" else "idle"
        name = (kind, IDLE_NAMES.get(row.cause, str(row.cause)))
        parts[name] = parts.get(name, 0) + int(row.total_ns)
        explained += int(row.total_ns)
    return parts | {("other", "not explained by the capture"): int(span) - explained}


def _step_parts(view: RunView, mode: str) -> Parts | None:
    """Return the parts of all regular steps: `span` is the time from each one's start to the next.

    Only steps with a known time count for `span`. Of a program on several GPUs, idle time is that
    of the GPU with the most work; what the others run beside it is running at the same time.
    """
    basis, step = basis_of(view), view.by_step
    assert basis is not None
    num = basis.num
    totals = step.kernels.assign(total_ns=step.kernels["total_ns"] * num)
    kernels = _kernel_parts(totals)
    if mode == "kernel_time":
        return kernels or None
    if view.summary.get("span_ns") is None:  # operators of a CPU
        return None
    own = step.steps[step.steps["is_regular"]]
    own = own[own["process"] == own["process"].iloc[0]].dropna(subset=["period_ns"])
    if own.empty:
        return None
    span, busy = (round(float(own[c].mean()) * num) for c in ("period_ns", "busy_ns"))
    if busy > span:
        return None
    parts = kernels | {("overlap", "running at the same time"): busy - sum(kernels.values())}
    explained = busy
    for row in step.facts.get("gaps", []):
        kind = "transfer" if row["cause"] == "transfer" else "idle"
        name = (kind, IDLE_NAMES.get(row["cause"], str(row["cause"])))
        ns = round(row["total_ns"] * num)
        parts[name] = parts.get(name, 0) + ns
        explained += ns
    return parts | {("other", "not explained by the capture"): span - explained}


def _kernel_parts(kernels: pd.DataFrame) -> Parts:
    if not len(kernels):
        return {}
    is_opaque = kernels["is_opaque"].fillna(False).astype(bool)
    names = kernels["category"].where(~is_opaque, OPAQUE_NAME)
    sums = kernels.groupby(names)["total_ns"].sum()
    return {("kernel", str(name)): round(total) for name, total in sums.items()}


STACK_DIFF_COLUMNS = ("node", "parent", "name", "kind", "a_self_ns", "b_self_ns", "a_ns", "b_ns")
"""One row per stack that either run has; `a_ns` and `b_ns` include its children."""

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
    by_path: dict[Path, tuple[str, float]] = {}
    parents = own["parent"].fillna(-1).astype(int).tolist()
    for node, parent, name, kind, time_ns in zip(
        own["node"], parents, own["name"], own["kind"], own["self_ns"], strict=True
    ):
        path = (*paths.get(parent, ()), str(name))
        paths[int(node)] = path
        by_path[path] = (str(kind), by_path.get(path, ("", 0.0))[1] + float(time_ns))
    return by_path


def _totals(own: dict[Path, tuple[str, float]], number: dict[Path, int]) -> dict[Path, float]:
    totals = {path: time_ns for path, (_, time_ns) in own.items()}
    for path in sorted(number, key=len, reverse=True):
        if path in totals and len(path) > 1:
            totals[path[:-1]] = totals.get(path[:-1], 0.0) + totals[path]
    return totals
