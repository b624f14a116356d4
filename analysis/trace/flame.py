"""Time by stack: what a flame graph shows, of GPU time and of idle time, as a tree of few nodes.

GPU time lies under what was around each launch (ranges, modules or frames, operators) with
the kernel's name as the leaf. Idle time lies under what the host was in, with the API
call as the leaf. Nodes that are too narrow to see are added to what holds them.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.tables import FLAME_COLUMNS
from analysis.trace.attribution import Attribution
from analysis.trace.idle_host import GROUPS, IdleHost
from analysis.trace.model import MISSING, Bools, Int64s, OpKind, RangeKind, Trace
from analysis.trace.stacks import Stacks, range_stacks, with_frames
from analysis.trace.steps import Steps

MIN_FRAC = 0.001
MAX_NODES = 4_000
_KINDS = {
    RangeKind.ANNOTATION: "range",
    RangeKind.OPERATOR: "operator",
    RangeKind.PYTHON: "python",
    RangeKind.LIBRARY: "library",
}
NO_CALL = "(no API call)"


def flame_table(
    trace: Trace, given: Attribution, steps: Steps, idle: IdleHost | None
) -> pd.DataFrame:
    """Return the nodes of both trees (FLAME_COLUMNS)."""
    stacks = range_stacks(trace)
    parts = [_gpu(trace, stacks, given, steps)]
    if idle is not None:
        parts.append(_idle(trace, stacks, idle))
    kept = [p for p in parts if len(p)]
    if not kept:
        return pd.DataFrame({name: [] for name in FLAME_COLUMNS})
    return pd.concat(kept, ignore_index=True)[list(FLAME_COLUMNS)]


def _gpu(trace: Trace, stacks: Stacks, given: Attribution, steps: Steps) -> pd.DataFrame:
    ops = trace.gpu_ops
    chosen = (ops.kind == OpKind.KERNEL) | (ops.kind == OpKind.GRAPH)
    regular = steps.frame["is_regular"].to_numpy(bool) if len(steps.frame) else np.zeros(0, bool)
    own = steps.frame["process"].to_numpy() == steps.process if len(regular) else regular
    num = int((regular & own).sum())
    if num:
        chosen &= np.append(regular & own, False)[steps.op_step]
    texts = {n: i for i, n in enumerate(dict.fromkeys(x.name for x in trace.labels))}
    code = np.array([texts[x.name] for x in trace.labels], np.int64)
    stack = stacks.of_range[given.innermost[chosen]]
    if trace.backtraces is not None:
        frame = trace.backtraces.of_call[ops.launch[chosen]]
        stacks, stack = with_frames(trace, stacks, stack, frame)
    return _tree(
        "gpu",
        stacks,
        stack,
        code[ops.label[chosen]] if len(code) else np.empty(0, np.int64),
        list(texts),
        ((ops.end_ns - ops.start_ns)[chosen] / max(num, 1)),
        "kernel",
    )


def _idle(trace: Trace, stacks: Stacks, idle: IdleHost) -> pd.DataFrame:
    names = [*trace.names, NO_CALL, *GROUPS.values()]
    no_call = len(trace.names)
    leaf = np.where(idle.call >= 0, idle.call, no_call)
    stacks, stack = with_frames(trace, stacks, stacks.of_range[idle.stack], idle.frame_of)
    others = idle.frame[idle.frame["group"].isin(("latency", "queued", "unknown", "transfer"))]
    extra = [no_call + 1 + list(GROUPS).index(g) for g in others["group"]]
    return _tree(
        "idle",
        stacks,
        np.append(stack, np.full(len(extra), MISSING)),
        np.append(leaf, np.array(extra, np.int64)),
        names,
        np.append(idle.piece_ns, others["idle_ns"].to_numpy(np.int64)) / max(idle.num_steps, 1),
        "call",
    )


def _tree(
    metric: str,
    stacks: Stacks,
    stack: Int64s,
    leaf: Int64s,
    leaf_names: Sequence[str],
    value: np.ndarray,
    leaf_kind: str,
) -> pd.DataFrame:
    if not len(value) or not value.sum():
        return pd.DataFrame({name: [] for name in FLAME_COLUMNS})
    num = len(stacks.parent)
    width = len(leaf_names)
    keys, group = np.unique((stack + 1) * width + leaf, return_inverse=True)
    leaf_ns = np.bincount(group, value)
    leaf_parent = keys // width - 1
    parent = np.concatenate([stacks.parent, leaf_parent])
    own = np.concatenate([np.zeros(num), leaf_ns])
    total = own.copy()
    for row in range(len(parent) - 1, -1, -1):
        if parent[row] >= 0:
            total[parent[row]] += total[row]
    kept = _wide(total, float(value.sum()))
    # What is too narrow counts as its parent's own.
    for row in np.flatnonzero(~kept & (total > 0)).tolist():
        above = parent[row]
        if above >= 0 and kept[above]:
            own[above] += total[row]
    rows = np.flatnonzero(kept)
    number = np.full(len(parent) + 1, MISSING, np.int64)
    number[rows] = np.arange(len(rows))
    above = number[parent[rows]]
    leaves = rows >= num
    of_leaf = keys[rows[leaves] - num] % width
    names = [stacks.name[r] for r in rows[~leaves].tolist()]
    kinds = [_KINDS[RangeKind(k)] for k in stacks.kind[rows[~leaves]].tolist()]
    return pd.DataFrame(
        {
            "metric": metric,
            "node": np.arange(len(rows)),
            "parent": pd.arrays.IntegerArray(np.maximum(above, 0), above < 0),
            "name": names + [leaf_names[i] for i in of_leaf.tolist()],
            "kind": kinds + [leaf_kind] * len(of_leaf),
            "self_ns": own[rows],
        }
    )


def _wide(total: np.ndarray, whole: float) -> Bools:
    """Tell which nodes are wide enough to be kept, and few enough."""
    least = MIN_FRAC * whole
    if int((total >= least).sum()) > MAX_NODES:
        least = float(np.partition(total, -MAX_NODES)[-MAX_NODES])
    return np.asarray(total >= max(least, 1e-9))
