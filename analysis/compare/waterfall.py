"""Where the time went: steps from A to B that add up to the nanosecond; kernels by operator.

The span of a capture (first to last GPU operation) is the kernels' time by category, less what ran
at the same time (overlap), plus the idle time by cause; a copy that no kernel hides is idle time
of cause `transfer`. Whatever a capture's own tables leave unexplained is a bar of its own, so that
nothing is spread over the others. By stack, the same is what a difference flame graph shows.

An eager run launches a kernel an operator. Inductor fuses several into one and names the kernel
after them (`triton_poi_fused_add_mul_3`); its time can't be split among them. So operators that
some kernel of either run fuses are compared together, as one row; all others by name. Views cost
nothing and are named in fusions all the same: they join nothing.
"""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import pandas as pd

from analysis.compare.records import Bar, Waterfall
from analysis.per_step import basis_of, common_basis, num_of
from analysis.runview import RunView
from core.plain_text import some_of

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


MAX_BARS = 16
OTHERS = "other operators"
Key = tuple[str, frozenset[str]]
"""Pass, operators."""

_FUSED = re.compile(r"^triton_(?P<kind>[a-z]+)_fused_(?P<names>.+?)(?:_\d+)?$")
_FREE = frozenset(
    [
        "view",
        "reshape",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "detach",
        "alias",
        "as_strided",
        "split",
        "unbind",
        "getitem",
    ]
)
_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
"""A pointwise fusion names the product that it comes after."""
_KNOWN = frozenset(
    [
        "_to_copy",
        "_softmax",
        "_softmax_backward_data",
        "_log_softmax",
        "_log_softmax_backward_data",
        "_unsafe_view",
        "native_layer_norm",
        "native_layer_norm_backward",
        "native_dropout",
        "native_dropout_backward",
        "gelu_backward",
        "silu_backward",
        "threshold_backward",
        "masked_fill",
        "index_put",
        "embedding",
        "embedding_dense_backward",
        "nll_loss_forward",
        "nll_loss_backward",
        "as_strided",
        "mean",
        "rsqrt",
        "pow",
        "add",
        "sub",
        "mul",
        "div",
        "sum",
        "relu",
        "sigmoid",
        "tanh",
        "gelu",
        "silu",
        "neg",
        "exp",
        "sqrt",
        "cat",
        "clone",
        "where",
    ]
)
_SAME = {"copy": "_to_copy", "native_batch_norm": "batch_norm"}


def operator_waterfall(a: RunView, b: RunView) -> Waterfall | None:
    """Return kernel time by operator from A to B; None unless both runs recorded operators."""
    if not len(a.by_step.operators) or not len(b.by_step.operators):
        return None
    known = _KNOWN | {
        operator_name(n) for v in (a, b) for n in v.by_step.operators["name"].tolist()
    }
    per_a, per_b = _by_operators(a, known), _by_operators(b, known)
    joined = _components([*per_a, *per_b])
    rows_a, rows_b = _rows(per_a, joined), _rows(per_b, joined)
    names = sorted({*rows_a, *rows_b}, key=lambda n: -abs(rows_b.get(n, 0) - rows_a.get(n, 0)))
    bars = [Bar(kind="kernel", name=n, a_ns=rows_a.get(n, 0), b_ns=rows_b.get(n, 0)) for n in names]
    kept, rest = bars[:MAX_BARS], bars[MAX_BARS:]
    if rest:
        rest_a, rest_b = sum(r.a_ns for r in rest), sum(r.b_ns for r in rest)
        kept.append(Bar(kind="other", name=OTHERS, a_ns=rest_a, b_ns=rest_b))
    return Waterfall(
        mode="operators",
        per="step",
        run_a=a.run.id,
        run_b=b.run.id,
        total_a_ns=sum(rows_a.values()),
        total_b_ns=sum(rows_b.values()),
        bars=tuple(kept),
    )


def operator_name(name: str) -> str:
    """Return an operator's name as inductor writes it: no namespace, overload or in-place sign."""
    short = name.rsplit("::", 1)[-1].split(".", 1)[0]
    short = short.rstrip("_") or short
    return _SAME.get(short, short)


def fused_operators(kernel: str, known: Iterable[str] = _KNOWN) -> frozenset[str]:
    """Return the operators that an inductor kernel fuses, by its name; empty for other kernels."""
    match = _FUSED.match(kernel)
    if not match:
        return frozenset()
    words = sorted(known, key=len, reverse=True)
    rest, names = match["names"], set()
    while rest:
        fits = (w for w in words if rest.startswith(w) and rest[len(w) : len(w) + 1] in ("", "_"))
        word = next(fits, None) or rest.split("_", 1)[0]
        if word:
            names.add(_SAME.get(word, word))
        rest = rest[len(word) :].removeprefix("_")
    real = {n for n in names if n not in _FREE}
    if real - _PRODUCTS:
        real -= _PRODUCTS
    return frozenset(real or names)


def _by_operators(view: RunView, known: Iterable[str]) -> dict[Key, float]:
    """Return kernel time [ns] of a step (without steps: of the capture) by pass and operators."""
    step = view.by_step
    share = _step_shares(step.operators)
    time_by_key: dict[Key, float] = {}
    linked: dict[str, float] = {}
    for row in step.operator_kernels.itertuples():
        time_ns = row.total_ns * share.get((row.name, row[2]), 1.0)
        names = fused_operators(row.kernel, known) or frozenset((operator_name(row.name),))
        time_by_key[row[2], names] = time_by_key.get((row[2], names), 0.0) + time_ns
        linked[row.kernel] = linked.get(row.kernel, 0.0) + time_ns
    kernels = step.kernels if len(step.kernels) else view.kernels
    for row in kernels.itertuples():
        left = float(row.total_ns) - linked.get(row.name, 0.0)
        linked[row.name] = max(linked.get(row.name, 0.0) - float(row.total_ns), 0.0)
        if left > 0.01 * float(row.total_ns):
            names = fused_operators(row.name, known) or frozenset((f"({row.category})",))
            time_by_key["forward", names] = time_by_key.get(("forward", names), 0.0) + left
    return time_by_key


def _step_shares(operators: pd.DataFrame) -> Mapping[tuple[str, str], float]:
    """Return which part of each operator's own time one step has; {} without steps."""
    known = operators[operators["step_self_kernel_ns"].notna() & (operators["self_kernel_ns"] > 0)]
    share = known["step_self_kernel_ns"].astype(float) / known["self_kernel_ns"].astype(float)
    return dict(zip(zip(known["name"], known["pass"], strict=True), share, strict=True))


def _components(keys: Iterable[Key]) -> dict[tuple[str, str], frozenset[str]]:
    """Return, for each pass and operator, all operators that some kernel joins it with."""
    joined: dict[tuple[str, str], frozenset[str]] = {}
    for where, names in keys:
        whole = frozenset(names.union(*(joined.get((where, n), frozenset()) for n in names)))
        joined |= {(where, n): whole for n in whole}
    return joined


def _rows(
    time_by_key: Mapping[Key, float], joined: Mapping[tuple[str, str], frozenset[str]]
) -> dict[str, int]:
    sums: dict[str, float] = {}
    for (where, names), time_ns in time_by_key.items():
        label = _label(where, joined[where, next(iter(names))])
        sums[label] = sums.get(label, 0.0) + time_ns
    return {label: round(time_ns) for label, time_ns in sums.items()}


def _label(where: str, names: frozenset[str]) -> str:
    ordered = sorted(names, key=lambda n: (n.startswith("_"), n))
    shown = some_of(ordered, 4, " + ")
    return shown if where == "forward" else f"{shown} ({where})"
