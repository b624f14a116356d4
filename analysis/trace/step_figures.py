"""What a regular step is made of: its kernels, idle time by cause, phases and transfers."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.tables import STEP_KERNEL_COLUMNS
from analysis.trace.aggregates import transfer_name
from analysis.trace.attribution import Attribution
from analysis.trace.gaps import gaps_within
from analysis.trace.idle_host import leading_windows
from analysis.trace.model import Bools, OpKind, Trace
from analysis.trace.ranges import PhaseRanges
from analysis.trace.stacks import stack_name
from analysis.trace.steps import Steps
from core.trace_rules import PATH_SEPARATOR


def step_kernels(trace: Trace, steps: Steps) -> pd.DataFrame:
    """Return STEP_KERNEL_COLUMNS; empty without steps."""
    ops = trace.gpu_ops
    chosen, num = regular_ops(trace, steps)
    chosen &= (ops.kind == OpKind.KERNEL) | (ops.kind == OpKind.GRAPH)
    if not num or not chosen.any():
        return pd.DataFrame({name: [] for name in STEP_KERNEL_COLUMNS})
    frame = pd.DataFrame(
        {
            "label": ops.label[chosen],
            "is_opaque": ops.kind[chosen] == OpKind.GRAPH,
            "ns": (ops.end_ns - ops.start_ns)[chosen],
        }
    )
    sums = frame.groupby(["label", "is_opaque"])["ns"].agg(["size", "sum"]).reset_index()
    sums["name"] = [trace.labels[i].name for i in sums["label"].tolist()]
    sums = sums.groupby(["name", "is_opaque"], sort=False)[["size", "sum"]].sum().reset_index()
    sums = sums.rename(columns={"size": "count", "sum": "total_ns"})
    sums[["count", "total_ns"]] = sums[["count", "total_ns"]] / num
    sums = sums.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return sums[list(STEP_KERNEL_COLUMNS)]


def regular_ops(trace: Trace, steps: Steps) -> tuple[Bools, int]:
    """Return which operations lie in regular steps of the leading process, and those steps."""
    if not len(steps.frame):
        return np.zeros(len(trace.gpu_ops), bool), 0
    counts = steps.frame["is_regular"].to_numpy(bool)
    counts = counts & (steps.frame["process"].to_numpy() == steps.process)
    return np.append(counts, False)[steps.op_step], int(counts.sum())


def step_parts(
    trace: Trace, steps: Steps, ranges: PhaseRanges, given: Attribution
) -> dict[str, list[dict[str, Any]]]:
    """Return gaps, phases and transfers of a regular step, as means over those steps."""
    chosen, num = regular_ops(trace, steps)
    if not num:
        return {}
    return {
        "gaps": _gaps(trace, steps),
        "phases": _phases(trace, ranges, given, chosen, num),
        "transfers": _transfers(trace, chosen, num),
    }


def _gaps(trace: Trace, steps: Steps) -> list[dict[str, Any]]:
    device, windows, num = leading_windows(trace, steps)
    if not num:
        return []
    found = gaps_within(trace, device, windows)
    rows = [(cause, ns) for cause, ns in found.items() if ns > 0]
    rows.sort(key=lambda row: -row[1])
    return [{"cause": cause, "total_ns": ns / num} for cause, ns in rows]


def _phases(
    trace: Trace, ranges: PhaseRanges, given: Attribution, chosen: Bools, num: int
) -> list[dict[str, Any]]:
    """Return kernel time by path, running numbers as one; a path holds what lies in it."""
    ops = trace.gpu_ops
    is_kernel = chosen & (ops.kind == OpKind.KERNEL)
    path = ranges.path[given.phase[is_kernel]]
    has = path >= 0
    duration = (ops.end_ns - ops.start_ns)[is_kernel][has]
    ns = np.bincount(path[has], duration, minlength=len(ranges.paths))
    count = np.bincount(path[has], minlength=len(ranges.paths))
    sums: dict[str, list[float]] = {}
    for code in np.flatnonzero(count).tolist():
        parts = [stack_name(p) for p in ranges.paths[code].split(PATH_SEPARATOR)]
        for depth in range(len(parts)):
            total = sums.setdefault(PATH_SEPARATOR.join(parts[: depth + 1]), [0.0, 0.0])
            total[0] += float(count[code])
            total[1] += float(ns[code])
    return [
        {"path": path, "num_kernels": n / num, "kernel_ns": total / num}
        for path, (n, total) in sorted(sums.items())
    ]


def _transfers(trace: Trace, chosen: Bools, num: int) -> list[dict[str, Any]]:
    ops = trace.gpu_ops
    moved = chosen & np.isin(ops.kind, (OpKind.MEMCPY, OpKind.MEMSET))
    sums: dict[str, list[float]] = {}
    for label, kind in {
        (int(a), int(b)) for a, b in zip(ops.label[moved], ops.kind[moved], strict=True)
    }:
        rows = moved & (ops.label == label) & (ops.kind == kind)
        name = transfer_name(trace.labels[label], OpKind(kind))
        total = sums.setdefault(name, [0.0, 0.0, 0.0])
        total[0] += float(rows.sum())
        total[1] += float(np.maximum(ops.num_bytes[rows], 0).sum())
        total[2] += float((ops.end_ns - ops.start_ns)[rows].sum())
    return [
        {"name": name, "count": n / num, "bytes": size / num, "total_ns": ns / num}
        for name, (n, size, ns) in sorted(sums.items(), key=lambda row: -row[1][2])
    ]
