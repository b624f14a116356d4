"""Time by stack: what a flame graph shows, of GPU time and of idle time, as a tree of few nodes.

GPU time lies under what was around each launch (ranges, modules or frames, operators) with
the kernel's name as the leaf. Idle time lies under what the host was in, with the API
call as the leaf. Nodes that are too narrow to see are added to what holds them.
Ranges with the same names around them share one stack; running numbers count as one name, so that
the iterations of a loop fall together.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.tables import FLAME_COLUMNS
from analysis.trace.attribution import Attribution
from analysis.trace.idle_host import GROUPS, IdleHost
from analysis.trace.model import MISSING, Bools, Int32s, Int64s, RangeKind, Trace
from analysis.trace.ranges import levels
from analysis.trace.steps import Steps

_NUMBER = re.compile(r"(?<=[A-Za-z_#: ])\d+$|(?<=#)\d+")
_ADDRESS = re.compile(r" of [^<>]* at 0x[0-9a-f]+(?=>)")
_PYTHON_PATH = re.compile(r"^.*/(?=[^/]+\.py\(\d+\): )")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stacks:
    """Distinct stacks; a row is one range name under the stack of another row."""

    parent: Int64s
    "Row of the stack around it; MISSING at the top. A parent comes before what it holds."
    name: tuple[str, ...]
    kind: Int64s
    "RangeKind."
    of_range: Int64s
    "Stack of each host range; one more, MISSING, at the end."


def range_stacks(trace: Trace) -> Stacks:
    """Return the stack of every host range."""
    ranges = trace.host_ranges
    texts: dict[str, int] = {}
    name_of = np.array([texts.setdefault(stack_name(n), len(texts)) for n in trace.names], np.int64)
    of_range = np.full(len(ranges) + 1, MISSING, np.int64)
    parents: list[Int64s] = []
    names: list[Int64s] = []
    kinds: list[Int64s] = []
    num = 0
    for members in (np.flatnonzero(ranges.parent < 0), *levels(ranges)):
        if not len(members):
            continue
        above = of_range[ranges.parent[members]]
        key = (above + 1) * max(len(texts), 1) + name_of[ranges.name[members]]
        kept, row, stack = np.unique(key, return_index=True, return_inverse=True)
        of_range[members] = num + stack
        parents.append(above[row])
        names.append(name_of[ranges.name[members[row]]])
        kinds.append(ranges.kind[members[row]].astype(np.int64))
        num += len(kept)
    known = list(texts)
    return Stacks(
        parent=_joined(parents),
        name=tuple(known[i] for i in _joined(names).tolist()),
        kind=_joined(kinds),
        of_range=of_range,
    )


def with_frames(
    trace: Trace, stacks: Stacks, stack: Int64s, frame: Int64s
) -> tuple[Stacks, Int64s]:
    """Return stacks with the frames of backtraces in them, and the new stack of each pair.

    The program's own ranges lie outside the frames, operators inside: a frame calls the operator.
    """
    known = trace.backtraces
    if known is None or not (frame >= 0).any():
        return stacks, stack
    parent, name, kind = stacks.parent.tolist(), list(stacks.name), stacks.kind.tolist()
    rows: dict[tuple[int, str], int] = {}

    def below(above: int, text: str, of_kind: int) -> int:
        row = rows.setdefault((above, text), len(parent))
        if row == len(parent):
            parent.append(above)
            name.append(text)
            kind.append(of_kind)
        return row

    pairs, which = np.unique(np.stack([stack, frame]), axis=1, return_inverse=True)
    frame_of = np.empty(pairs.shape[1], np.int64)
    for i, (row, innermost) in enumerate(pairs.T.tolist()):
        ranges = [(stacks.name[r], int(stacks.kind[r])) for r in _up(stacks.parent, row)]
        frames = [trace.names[int(known.name[r])] for r in _up(known.parent, innermost)]
        inner = next((n for n, (_, k) in enumerate(ranges) if k == RangeKind.OPERATOR), len(ranges))
        calls = [(stack_name(f), int(RangeKind.PYTHON)) for f in _told(frames)]
        at = MISSING
        for text, of_kind in (*ranges[:inner], *calls, *ranges[inner:]):
            at = below(at, text, of_kind)
        frame_of[i] = at
    grown = Stacks(
        parent=np.array(parent, np.int64),
        name=tuple(name),
        kind=np.array(kind, np.int64),
        of_range=stacks.of_range,
    )
    return grown, frame_of[which.reshape(-1)]


def _up(parent: Int64s, row: int) -> list[int]:
    """Return the rows from the top down to one."""
    rows: list[int] = []
    while row >= 0:
        rows.append(row)
        row = int(parent[row])
    return rows[::-1]


def _told(frames: list[str]) -> list[str]:
    """Leave out remarks of the profiler (`[Broken backtraces]`), and repeats one after another."""
    named = [f for f in frames if not f.startswith("[")]
    return [f for i, f in enumerate(named) if not i or f != named[i - 1]]


def stack_name(name: str) -> str:
    """Return a range's name without a running number, an address, or folders of a Python file."""
    return _NUMBER.sub("*", _ADDRESS.sub("", _PYTHON_PATH.sub("", name)))


def _joined(parts: Sequence[Int64s | Int32s]) -> Int64s:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


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
    chosen = ops.runs_kernels
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
