"""Where the time went: steps from A to B that add up to the nanosecond.

The span of a capture (first to last GPU operation) is the kernels' time by category, less what ran
at the same time (overlap), plus the idle time by cause; a copy that no kernel hides is idle time
of cause `transfer`. Whatever a capture's own tables leave unexplained is a bar of its own, so that
nothing is spread over the others.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from analysis.compare.records import Bar, Waterfall
from analysis.iterations import num_iterations
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

    Whole captures are compared when both hold the same number of iterations (or one does not
    say); otherwise both are divided by their iterations.
    """
    parts_a, parts_b = _parts(a, mode), _parts(b, mode)
    if parts_a is None or parts_b is None:
        return None
    count_a, count_b = num_iterations(a.phases), num_iterations(b.phases)
    per = "capture"
    if count_a and count_b and count_a != count_b:
        per = "iteration"
        parts_a, parts_b = per_iteration(parts_a, count_a), per_iteration(parts_b, count_b)
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
    kernels = _kernel_parts(view)
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


def _kernel_parts(view: RunView) -> Parts:
    if not len(view.kernels):
        return {}
    is_opaque = view.kernels["is_opaque"].fillna(False).astype(bool)
    names = view.kernels["category"].where(~is_opaque, OPAQUE_NAME)
    sums = view.kernels.groupby(names)["total_ns"].sum()
    return {("kernel", str(name)): int(total) for name, total in sums.items()}
