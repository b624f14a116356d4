"""Kernel time by operator, matched across two runs, compiled against eager included.

An eager run launches a kernel an operator. Inductor fuses several into one and names the kernel
after them (`triton_poi_fused_add_mul_3`); its time can't be split among them. So operators that
some kernel of either run fuses are compared together, as one row; all others by name. Views cost
nothing and are named in fusions all the same: they join nothing.
"""

import re
from collections.abc import Iterable, Mapping

import pandas as pd

from analysis.compare.records import Bar, Waterfall
from analysis.runview import RunView

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
    shown = " + ".join(ordered[:4]) + (f" and {len(ordered) - 4} more" if len(ordered) > 4 else "")
    return shown if where == "forward" else f"{shown} ({where})"
