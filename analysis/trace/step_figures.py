"""What a regular step is made of: its kernels, idle time by cause, phases and transfers."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.iterations import normalise
from analysis.tables import STEP_KERNEL_COLUMNS
from analysis.trace.attribution import Attribution
from analysis.trace.gaps import gaps_within
from analysis.trace.host_time import HostTime
from analysis.trace.idle_host import leading_windows
from analysis.trace.labels import dims_text, transfer_name
from analysis.trace.model import MISSING, Bools, Int32s, Int64s, OpKind, Trace
from analysis.trace.ranges import PhaseRanges
from analysis.trace.steps import Steps
from core.trace_rules import PATH_SEPARATOR


def step_kernels(trace: Trace, steps: Steps) -> pd.DataFrame:
    """Return STEP_KERNEL_COLUMNS; empty without steps."""
    ops = trace.gpu_ops
    chosen, num = regular_ops(trace, steps)
    chosen &= ops.runs_kernels
    if not num or not chosen.any():
        return pd.DataFrame({name: [] for name in STEP_KERNEL_COLUMNS})
    is_opaque = ops.kind[chosen] == OpKind.GRAPH
    codes = 2 * ops.label[chosen].astype(np.int64) + is_opaque
    code, first, group, count = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    total = np.zeros(len(code), np.int64)
    np.add.at(total, group, (ops.end_ns - ops.start_ns)[chosen])
    sums: dict[tuple[str, str | None, str | None, bool], tuple[int, int]] = {}
    for i in np.argsort(first).tolist():  # two labels may differ in what is not shown here
        label = trace.labels[int(code[i]) // 2]
        key = (label.name, dims_text(label.grid), dims_text(label.block), bool(code[i] % 2))
        before = sums.get(key, (0, 0))
        sums[key] = (before[0] + int(count[i]), before[1] + int(total[i]))
    rows = [(*key, n / num, ns / num) for key, (n, ns) in sums.items()]
    rows.sort(key=lambda row: -row[-1])
    names = ("name", "grid", "block", "is_opaque", "count", "total_ns")
    columns: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    columns |= {name: pd.Series(columns[name], dtype=object) for name in ("grid", "block")}
    return pd.DataFrame({name: columns[name] for name in STEP_KERNEL_COLUMNS})


def regular_ops(trace: Trace, steps: Steps) -> tuple[Bools, int]:
    """Return the operations in regular steps of the leading process, and those steps."""
    if not len(steps.frame):
        return np.zeros(len(trace.gpu_ops), bool), 0
    counts = steps.frame["is_regular"].to_numpy(bool)
    counts = counts & (steps.frame["process"].to_numpy() == steps.process)
    return np.append(counts, False)[steps.op_step], int(counts.sum())


def step_parts(
    trace: Trace,
    steps: Steps,
    ranges: PhaseRanges,
    given: Attribution,
    host: HostTime | None,
) -> dict[str, list[dict[str, Any]]]:
    """Return gaps, phases, calls and transfers of a regular step, as means over those steps."""
    chosen, num = regular_ops(trace, steps)
    if not num:
        return {}
    return {
        "gaps": _gaps(trace, steps, host),
        "phases": _phases(trace, steps, ranges, given, chosen, num),
        "api_calls": _calls(trace, steps, num),
        "transfers": _transfers(trace, chosen, num),
    }


def _starts_in_step(trace: Trace, steps: Steps, start_ns: Int64s, thread: Int32s) -> Bools:
    """Mark the host events of the leading process that started in a regular step.

    Those of threads with loops of their own are in none.
    """
    process = trace.thread_process()[thread]
    own = steps.frame[(steps.frame["process"] == steps.process) & steps.frame["is_regular"]]
    first, last = own["start_ns"].to_numpy(np.int64), own["end_ns"].to_numpy(np.int64)
    place = np.searchsorted(first, start_ns, side="right") - 1
    is_inside = (place >= 0) & (start_ns < last[np.maximum(place, 0)])
    is_own = steps.threads[thread] & ((process == steps.process) | (steps.process == MISSING))
    return np.asarray(is_inside & is_own)


def _calls(trace: Trace, steps: Steps, num: int) -> list[dict[str, Any]]:
    calls = trace.host_calls
    if not len(calls):
        return []
    inside = _starts_in_step(trace, steps, calls.start_ns, calls.thread)
    name, ns = calls.name[inside], (calls.end_ns - calls.start_ns)[inside]
    count, total = np.bincount(name), np.bincount(name, ns)
    order = np.argsort(-total, kind="stable")
    return [
        {"name": trace.names[i], "count": int(count[i]) / num, "total_ns": int(total[i]) / num}
        for i in order[count[order] > 0].tolist()
    ]


def _gaps(trace: Trace, steps: Steps, host: HostTime | None) -> list[dict[str, Any]]:
    device, windows, num = leading_windows(trace, steps)
    if not num:
        return []
    by_cause = gaps_within(trace, host, device, windows)
    rows = [(cause, ns) for cause, ns in by_cause.items() if ns > 0]
    rows.sort(key=lambda row: -row[1])
    return [{"cause": cause, "total_ns": ns / num} for cause, ns in rows]


def _phases(
    trace: Trace,
    steps: Steps,
    ranges: PhaseRanges,
    given: Attribution,
    chosen: Bools,
    num: int,
) -> list[dict[str, Any]]:
    """Return the three kinds of time by path, running numbers as one; a path holds what is in it.

    A range that began before the step, such as one around all steps, has kernel time alone.
    """
    ops = trace.gpu_ops
    sums: dict[str, dict[str, float]] = {}

    def add(path: str, name: str, value: float) -> None:
        of_path = sums.setdefault(path, dict.fromkeys(_PHASE_SUMS, 0.0))
        of_path[name] += value

    is_kernel = chosen & (ops.kind == OpKind.KERNEL)
    path = ranges.path[given.phase[is_kernel]]
    has = path >= 0
    duration = (ops.end_ns - ops.start_ns)[is_kernel][has]
    ns = np.bincount(path[has], duration, minlength=len(ranges.paths))
    count = np.bincount(path[has], minlength=len(ranges.paths))
    for code in np.flatnonzero(count).tolist():
        parts = normalise(ranges.paths[code]).split(PATH_SEPARATOR)
        for depth in range(len(parts)):
            around = PATH_SEPARATOR.join(parts[: depth + 1])
            add(around, "num_kernels", float(count[code]))
            add(around, "kernel_ns", float(ns[code]))
    opaque = ranges.path[given.phase[chosen & (ops.kind == OpKind.GRAPH)]]
    for code in np.unique(opaque[opaque >= 0]).tolist():  # a sum would look complete without them
        parts = normalise(ranges.paths[code]).split(PATH_SEPARATOR)
        for depth in range(len(parts)):
            add(PATH_SEPARATOR.join(parts[: depth + 1]), "kernel_ns", np.nan)
    host, projected_ns = ranges.ranges, _projections(trace, ranges, given, chosen)
    rows = ranges.rows
    inside = _starts_in_step(trace, steps, host.start_ns[rows], host.thread[rows])
    began = rows[inside]
    path, length = ranges.path[began], host.end_ns[began] - host.start_ns[began]
    num_ranges, host_ns = np.bincount(path), np.bincount(path, length)
    projected = np.bincount(path, projected_ns[began])
    for code in np.flatnonzero(num_ranges).tolist():
        around = normalise(ranges.paths[code])
        add(around, "num_ranges", float(num_ranges[code]))
        add(around, "host_ns", float(host_ns[code]))
        add(around, "projected_ns", float(projected[code]))
    return [
        {"path": path}
        | {
            k: v / num
            for k, v in of_path.items()
            if of_path["num_ranges"] or k in _KERNEL_SUMS
            if v == v
        }
        for path, of_path in sorted(sums.items())
    ]


_KERNEL_SUMS = ("num_kernels", "kernel_ns")
_PHASE_SUMS = (*_KERNEL_SUMS, "num_ranges", "host_ns", "projected_ns")


def _projections(trace: Trace, ranges: PhaseRanges, given: Attribution, chosen: Bools) -> Int64s:
    """Return the time from the first start to the last end of the work of each range."""
    ops = trace.gpu_ops
    first = np.full(len(ranges.path), np.iinfo(np.int64).max)
    last = np.full(len(ranges.path), np.iinfo(np.int64).min)
    row, start, end = given.phase[chosen], ops.start_ns[chosen], ops.end_ns[chosen]
    while len(row):
        known = row >= 0
        row, start, end = row[known], start[known], end[known]
        np.minimum.at(first, row, start)
        np.maximum.at(last, row, end)
        row = ranges.parent[row]
    return np.where(first <= last, last - first, 0)


def _transfers(trace: Trace, chosen: Bools, num: int) -> list[dict[str, Any]]:
    ops = trace.gpu_ops
    moved = chosen & np.isin(ops.kind, (OpKind.MEMCPY, OpKind.MEMSET))
    sums: dict[tuple[str, str, str | None, str | None], list[float]] = {}
    for number in np.unique(ops.label[moved]).tolist():
        rows = moved & (ops.label == number)
        label = trace.labels[number]
        name = transfer_name(label, OpKind(int(ops.kind[rows][0])))
        total = sums.setdefault((name, label.name, label.src, label.dst), [0.0, 0.0, 0.0])
        total[0] += float(rows.sum())
        total[1] += float(np.maximum(ops.num_bytes[rows], 0).sum())
        total[2] += float((ops.end_ns - ops.start_ns)[rows].sum())
    return [
        {"name": name, "kind": kind, "src": src, "dst": dst}
        | {"count": n / num, "bytes": size / num, "total_ns": ns / num}
        for (name, kind, src, dst), (n, size, ns) in sorted(sums.items(), key=lambda r: -r[1][2])
    ]
