"""The table by operator: what each framework operator launched, in which pass, for how long.

A kernel belongs to the innermost operator around its launching call on that thread. An operator's
own (`self`) kernels are those; its `total` ones are also those of the operators that it calls.
Operators are not phases: those are what the program itself marks.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.tables import OPERATOR_COLUMNS, OPERATOR_KERNEL_COLUMNS
from analysis.trace.attribution import Attribution
from analysis.trace.flops import operator_elements, operator_flops
from analysis.trace.model import (
    MISSING,
    Bools,
    HostRanges,
    Int32s,
    Int64s,
    OpKind,
    RangeKind,
    Trace,
)
from analysis.trace.ranges import levels
from analysis.trace.steps import Steps

PASSES = ("forward", "backward", "optimizer", "other")
FORWARD, BACKWARD, OPTIMIZER, OTHER = range(4)
MAX_SHAPES = 5
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$")
_OPTIMIZER = re.compile(r"^(Optimizer\.step#.*|optimi[sz]er([._ ]?step)?|opt[._ ]step)$", re.I)
_OTHER = re.compile(r"^(Optimizer\.zero_grad#.*|enumerate\(DataLoader\).*)$")
OfCall = Callable[[str, Sequence[Any] | None], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """The operators of a capture."""

    frame: pd.DataFrame
    "OPERATOR_COLUMNS."
    kernels: pd.DataFrame
    "OPERATOR_KERNEL_COLUMNS."
    of_op: Int32s
    "Row of `frame` of each GPU operation's innermost operator; MISSING if none."


def operator_table(trace: Trace, given: Attribution, steps: Steps) -> Operators | None:
    """Return the table by operator; None where no operators were recorded."""
    ranges = trace.host_ranges
    is_operator = ranges.kind == RangeKind.OPERATOR
    if not is_operator.any():
        return None
    nearest = _nearest(ranges, is_operator)
    passes = _passes(trace)
    rows = np.flatnonzero(is_operator)
    keys, group = np.unique(
        ranges.name[rows].astype(np.int64) * len(PASSES) + passes[rows], return_inverse=True
    )
    group_of = np.full(len(ranges) + 1, MISSING, np.int32)
    group_of[rows] = group
    operator = nearest[given.innermost]
    table = _Table(trace, rows, group_of, operator, num_groups=len(keys))
    forward = _forward_rows(trace, rows, passes)
    frame = pd.DataFrame(
        {
            "name": [trace.names[k // len(PASSES)] for k in keys.tolist()],
            "pass": [PASSES[k % len(PASSES)] for k in keys.tolist()],
            **table.sums(np.ones(len(trace.gpu_ops), bool), np.ones(len(ranges), bool)),
            **_per_step(trace, table, steps),
            "flops": table.by_shapes(operator_flops),
            "elements": table.by_shapes(operator_elements),
            "shapes": table.shapes(),
            "forward_name": _forward_names(trace, table, forward),
            "module": _modules(trace, table, forward),
        }
    )
    order = np.lexsort((-frame["total_kernel_ns"], -frame["self_kernel_ns"]))
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order))
    place[-1] = MISSING
    frame = frame.iloc[order].reset_index(drop=True)[list(OPERATOR_COLUMNS)]
    of_op = place[group_of[operator]]
    return Operators(frame=frame, kernels=_kernels(trace, frame, of_op), of_op=of_op)


class _Table:
    """Sums over operator ranges, by group (name and pass)."""

    def __init__(
        self, trace: Trace, rows: Int64s, group_of: Int32s, operator: Int32s, *, num_groups: int
    ) -> None:
        ops = trace.gpu_ops
        self.trace, self.rows, self.group_of, self.num = trace, rows, group_of, num_groups
        self.operator = operator
        self.runs = (ops.kind == OpKind.KERNEL) | (ops.kind == OpKind.GRAPH)
        self.duration = ops.end_ns - ops.start_ns
        self.is_outer = _is_outermost(trace.host_ranges, group_of)
        everything = self.runs & (operator >= 0)
        self.own_ns = self._by_range(everything, self.duration)
        self.total_ns = _up(trace.host_ranges, self.own_ns)

    def _by_range(self, chosen: Bools, values: Int64s | None = None) -> Int64s:
        sums = np.zeros(len(self.trace.host_ranges), np.int64)
        np.add.at(sums, self.operator[chosen], 1 if values is None else values[chosen])
        return sums

    def by_group(self, values: NDArray[Any], chosen: Bools) -> Int64s:
        """Return the sum of a value of ranges over the chosen ones, by group."""
        rows = self.rows[chosen[self.rows]]
        sums = np.zeros(self.num, values.dtype)
        np.add.at(sums, self.group_of[rows], values[rows])
        return sums

    def sums(self, ops: Bools, ranges: Bools) -> dict[str, Int64s]:
        """Return counts and times over some operations and ranges."""
        host = self.trace.host_ranges
        chosen = ops & self.runs & (self.operator >= 0)
        count, time_ns = self._by_range(chosen), self._by_range(chosen, self.duration)
        every = np.ones(len(host), bool)
        return {
            "count": self.by_group(np.ones(len(host), np.int64), ranges),
            "num_kernels": self.by_group(_up(host, count), self.is_outer),
            "self_num_kernels": self.by_group(count, every),
            "self_kernel_ns": self.by_group(time_ns, every),
            "total_kernel_ns": self.by_group(_up(host, time_ns), self.is_outer),
            "host_ns": self.by_group(host.end_ns - host.start_ns, ranges & self.is_outer),
        }

    def by_shapes(self, of_call: OfCall) -> list[float | None]:
        """Return the sum of a figure of each group's calls by their shapes; None where not known.

        A call inside one of its own name (autocast calls an operator again) is the same work.
        """
        host, names = self.trace.host_ranges, self.trace.names
        rows = self.rows[self.is_outer[self.rows]]
        width = len(names) + 1
        pairs = host.name[rows].astype(np.int64) * width + host.detail[rows] + 1
        kinds, which = np.unique(pairs, return_inverse=True)
        known = np.full(len(kinds), np.nan)
        for i, pair in enumerate(kinds.tolist()):
            name, detail = divmod(pair, width)
            if detail:
                value = of_call(names[name], _shape_list(names[detail - 1]))
                known[i] = np.nan if value is None else value
        total = np.zeros(self.num)
        np.add.at(total, self.group_of[rows], known[which])
        return [None if np.isnan(v) else float(v) for v in total.tolist()]

    def shapes(self) -> list[str | None]:
        """Return the shapes with most kernel time of each group, as a JSON list."""
        detail = self.trace.host_ranges.detail
        largest = self.largest(np.where(detail[self.rows] >= 0, detail[self.rows], MISSING))
        texts = [
            list(dict.fromkeys(_shapes_only(self.trace.names[c]) for c in cs)) for cs in largest
        ]
        return [json.dumps(own) if own else None for own in texts]

    def largest(self, codes: Int64s, most: int = MAX_SHAPES) -> list[list[int]]:
        """Return, of each group, the codes of `rows` with most kernel time; MISSING is none."""
        weight = self.total_ns[self.rows] + 1
        has = codes >= 0
        frame = pd.DataFrame(
            {"group": self.group_of[self.rows][has], "code": codes[has], "weight": weight[has]}
        )
        sums = frame.groupby(["group", "code"], sort=False)["weight"].sum().reset_index()
        sums = sums.sort_values("weight", ascending=False, kind="stable")
        by_group: list[list[int]] = [[] for _ in range(self.num)]
        for group, code in zip(sums["group"].tolist(), sums["code"].tolist(), strict=True):
            if len(by_group[group]) < most:
                by_group[group].append(code)
        return by_group


def _nearest(ranges: HostRanges, flag: Bools) -> Int32s:
    """Return the nearest flagged range at or around each range; one more, MISSING, at the end."""
    own = np.where(flag, np.arange(len(ranges)), MISSING).astype(np.int32)
    nearest = np.append(own, np.int32(MISSING))
    for members in levels(ranges):
        above = nearest[ranges.parent[members]]
        nearest[members] = np.where(own[members] >= 0, own[members], above)
    return nearest


def _up(ranges: HostRanges, values: Int64s) -> Int64s:
    """Return, for each range, the sum over itself and all ranges inside it."""
    total = values.copy()
    for members in reversed(list(levels(ranges))):
        np.add.at(total, ranges.parent[members], total[members])
    return total


_MAX_ABOVE = 2048
"""No program nests its calls deeper; a file made to keep us busy does."""


def _is_outermost(ranges: HostRanges, group_of: Int32s) -> Bools:
    """Mark the ranges that are outermost in their group, among `_MAX_ABOVE` around each."""
    is_outer = np.ones(len(ranges), bool)
    above = ranges.parent.copy()
    todo = np.flatnonzero(above >= 0)
    for _ in range(_MAX_ABOVE):
        if not len(todo):
            break
        is_outer[todo] &= group_of[above[todo]] != group_of[todo]
        above[todo] = ranges.parent[above[todo]]
        todo = todo[above[todo] >= 0]
    return is_outer


def _passes(trace: Trace) -> NDArray[np.int64]:
    """Return the pass of every range: that of the nearest range that tells, else forward."""
    ranges = trace.host_ranges
    tells = np.full(len(trace.names), MISSING, np.int64)
    for code in np.unique(ranges.name).tolist():
        name = trace.names[code]
        for number, rule in ((OPTIMIZER, _OPTIMIZER), (OTHER, _OTHER), (BACKWARD, _BACKWARD)):
            if rule.search(name):
                tells[code] = number
    autograd = np.array([t.is_autograd for t in trace.sources.threads], bool)
    top = np.where(autograd[ranges.thread], BACKWARD, FORWARD)
    own = tells[ranges.name]
    of_range = np.where(own >= 0, own, top)
    for members in levels(ranges):
        above = of_range[ranges.parent[members]]
        of_range[members] = np.where(own[members] >= 0, own[members], above)
    return of_range


def _per_step(trace: Trace, table: _Table, steps: Steps) -> dict[str, Any]:
    """Return the means over the regular steps; missing without steps."""
    names = ("count", "num_kernels", "self_kernel_ns", "total_kernel_ns", "host_ns")
    regular = steps.frame[steps.frame["is_regular"].astype(bool)]
    if not len(regular):
        nothing = pd.array([pd.NA] * table.num, dtype="Float64")
        return {f"step_{name}": nothing for name in names}
    counts = np.append(steps.frame["is_regular"].to_numpy(bool), False)
    sums = table.sums(counts[steps.op_step], _ranges_within(trace, regular))
    return {f"step_{n}": pd.array(sums[n] / len(regular), dtype="Float64") for n in names}


def _ranges_within(trace: Trace, regular: pd.DataFrame) -> Bools:
    """Tell which ranges start within a step of their process."""
    ranges = trace.host_ranges
    process = trace.thread_process()[ranges.thread]
    within = np.zeros(len(ranges), bool)
    for owner, own in regular.groupby("process"):
        start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        mine = np.ones(len(ranges), bool) if owner == MISSING else process == owner
        at = np.searchsorted(start, ranges.start_ns, side="right") - 1
        within |= mine & (at >= 0) & (ranges.start_ns < end[np.maximum(at, 0)])
    return within


def _forward_rows(trace: Trace, rows: Int64s, passes: NDArray[np.int64]) -> Int64s:
    """Return, for each range of the backward pass, its forward operator's, by sequence number.

    `rows`: the operators. MISSING where there is none and in the other passes.
    """
    ranges = trace.host_ranges
    process = trace.thread_process()[ranges.thread]
    has = ranges.sequence[rows] >= 0
    key = (process[rows].astype(np.int64) << 40) | ranges.sequence[rows]
    is_forward = has & (passes[rows] == FORWARD)
    # Whoever starts before the node exists bears its number; the last to start makes it.
    made = rows[is_forward][::-1]
    numbers, last = np.unique(key[is_forward][::-1], return_index=True)
    forward = np.full(len(ranges), MISSING, np.int64)
    if len(numbers):
        nodes = has & (passes[rows] == BACKWARD)
        at = np.minimum(np.searchsorted(numbers, key[nodes]), len(numbers) - 1)
        forward[rows[nodes]] = np.where(numbers[at] == key[nodes], made[last][at], MISSING)
    # What a node calls has no number of its own that the forward pass knows.
    known = np.append(forward, MISSING)
    for members in levels(ranges):
        above = known[ranges.parent[members]]
        known[members] = np.where(known[members] >= 0, known[members], above)
    return np.where(passes == BACKWARD, known[:-1], MISSING)


def _forward_names(trace: Trace, table: _Table, forward: Int64s) -> list[str | None]:
    """Return the forward operator of each group of the backward pass."""
    names = np.append(trace.host_ranges.name, MISSING).astype(np.int64)
    largest = table.largest(names[forward[table.rows]], 1)
    return [trace.names[c[0]] if c else None for c in largest]


def _modules(trace: Trace, table: _Table, forward: Int64s) -> list[str | None]:
    """Return the module, else the Python function, above each group with most kernel time.

    What runs backward on autograd's own thread belongs to the module of its forward operator.
    """
    ranges = trace.host_ranges
    # A built-in is the operator itself as Python calls it.
    own = np.array([not n.startswith("<built-in ") for n in trace.names], bool)
    is_python = (ranges.kind == RangeKind.PYTHON) & own[ranges.name]
    if not is_python.any():
        return [None] * table.num
    modules = np.array([n.startswith("nn.Module: ") for n in trace.names], bool)[ranges.name]
    module, function = _nearest(ranges, is_python & modules), _nearest(ranges, is_python)
    rows, before = table.rows, forward[table.rows]
    chosen = np.full(len(rows), MISSING, np.int64)
    for candidate in (module[rows], module[before], function[rows], function[before]):
        chosen = np.where(chosen >= 0, chosen, candidate)
    codes = np.append(ranges.name, MISSING)[chosen].astype(np.int64)
    return [trace.names[c[0]] if c else None for c in table.largest(codes, 1)]


def _kernels(trace: Trace, frame: pd.DataFrame, of_op: Int32s) -> pd.DataFrame:
    """Return which kernels each operator itself launched."""
    ops = trace.gpu_ops
    runs = ((ops.kind == OpKind.KERNEL) | (ops.kind == OpKind.GRAPH)) & (of_op >= 0)
    names = [x.name for x in trace.labels]
    texts = {n: i for i, n in enumerate(dict.fromkeys(names))}
    name_of = np.array([texts[n] for n in names], np.int64)
    pairs = pd.DataFrame(
        {
            "row": of_op[runs],
            "kernel": name_of[ops.label[runs]] if len(names) else [],
            "ns": (ops.end_ns - ops.start_ns)[runs],
        }
    )
    sums = pairs.groupby(["row", "kernel"])["ns"].agg(["size", "sum"]).reset_index()
    sums = sums.sort_values(["row", "sum"], ascending=[True, False], kind="stable")
    known = list(texts)
    return pd.DataFrame(
        {
            "name": frame["name"].to_numpy()[sums["row"]],
            "pass": frame["pass"].to_numpy()[sums["row"]],
            "kernel": [known[k] for k in sums["kernel"].tolist()],
            "count": sums["size"].to_numpy(),
            "total_ns": sums["sum"].to_numpy(),
        },
        columns=list(OPERATOR_KERNEL_COLUMNS),
    )


def _shapes_only(text: str) -> str:
    """Return shapes without the values that stand between those of a convolution."""
    inputs = _shape_list(text) if '"' in text else None
    if inputs is None:
        return text
    return json.dumps([[] if isinstance(x, str) else x for x in inputs])


def _shape_list(text: str) -> list[Any] | None:
    try:
        shapes = json.loads(text)
    except ValueError:
        return None
    return shapes if isinstance(shapes, list) else None


def operators_document(frame: pd.DataFrame) -> list[Mapping[str, Any]]:
    """Return the `operators` of `show --json`; what is unknown is absent."""
    rows: list[Mapping[str, Any]] = []
    for row in frame.astype(object).to_dict("records"):
        known = {k: v for k, v in row.items() if v is not None and not pd.isna(v)}
        if "shapes" in known:
            known["shapes"] = json.loads(known["shapes"])
        rows.append(known)
    return rows
