"""The tree of annotated ranges, and what ran on the GPU for each of them.

An operation belongs to every range that encloses its launch on the launching thread. Autograd
launches the backward pass from threads of its own: those operations belong to the `backward` range
of the process that encloses the launch in time. A trace without launches goes by the operation's
own start.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from analysis.readers.torch_trace_events import KERNEL, TraceEvents
from analysis.readers.torch_trace_gpu import GpuOps
from analysis.tables import PHASE_COLUMNS, RANGE_COLUMNS

Ints = NDArray[np.int64]
_FAR = np.iinfo(np.int64).max
LAUNCH_THREAD, PROCESS_TIME, DEVICE_TIME = "launch_thread", "process_time", "device_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTree:
    """All closed annotations; `parent` is a row or -1, and comes before its children."""

    start: Ints
    end: Ints
    thread: Ints
    process: Ints
    parent: Ints
    depth: Ints
    names: tuple[str, ...]
    paths: tuple[str, ...]

    def innermost(self, rows: Ints, at: Ints, until: Ints) -> Ints:
        """Return, for each time, the deepest of the chosen ranges that encloses it; -1 for none."""
        marks, active = self._timeline(rows)
        found = active[np.searchsorted(marks, at, side="right")]
        while True:
            wrong = (found >= 0) & (self.end[np.maximum(found, 0)] < until)
            if not wrong.any():
                return found
            found = np.where(wrong, self.parent[np.maximum(found, 0)], found)

    def _timeline(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return times, and the deepest open range before, between and after them."""
        timed = [int(r) for r in rows if self.end[r] > self.start[r]]
        edges = sorted(
            [(int(self.start[r]), 1, r) for r in timed] + [(int(self.end[r]), 0, r) for r in timed]
        )
        open_rows: list[int] = []
        active = [-1]
        for _, is_start, row in edges:
            if is_start:
                open_rows.append(row)
            elif row in open_rows:
                open_rows.remove(row)
            active.append(open_rows[-1] if open_rows else -1)
        return np.array([e[0] for e in edges], np.int64), np.array(active, np.int64)


def range_tree(events: TraceEvents) -> RangeTree:
    """Return the annotations as trees, one a thread; a partly overlapping range starts anew."""
    process = process_of_threads(events)
    found = sorted(events.annotations, key=lambda a: (a[2], a[0], -a[1]))
    parent: list[int] = []
    depth: list[int] = []
    paths: list[str] = []
    stack: list[int] = []
    last_thread = -1
    for row, (start, dur, thread, name) in enumerate(found):
        if thread != last_thread:
            stack, last_thread = [], thread
        while stack and found[stack[-1]][0] + found[stack[-1]][1] < start + dur:
            stack.pop()
        above = stack[-1] if stack else -1
        parent.append(above)
        depth.append(len(stack))
        paths.append(f"{paths[above]}/{name}" if above >= 0 else name)
        stack.append(row)
    return RangeTree(
        start=np.array([a[0] for a in found], np.int64),
        end=np.array([a[0] + a[1] for a in found], np.int64),
        thread=np.array([a[2] for a in found], np.int64),
        process=process[[a[2] for a in found]] if found else np.empty(0, np.int64),
        parent=np.array(parent, np.int64),
        depth=np.array(depth, np.int64),
        names=tuple(a[3] for a in found),
        paths=tuple(paths),
    )


def attribute(
    tree: RangeTree, thread: Ints, process: Ints, at: Ints, until: Ints, autograd: frozenset[int]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the deepest range of each host time, and whether it was found by time alone."""
    found = np.full(len(at), -1, np.int64)
    for number in np.unique(thread):
        here = np.flatnonzero(thread == number)
        rows = np.flatnonzero(tree.thread == number)
        found[here] = tree.innermost(rows, at[here], until[here])
    backward = np.array([_is_backward(n) for n in tree.names], bool)
    by_time = np.zeros(len(at), bool)
    is_autograd = np.isin(thread, list(autograd)) if autograd else np.ones(len(at), bool)
    for number in np.unique(process):
        here = np.flatnonzero((found < 0) & (process == number) & is_autograd)
        rows = np.flatnonzero(backward & (tree.process == number)) if len(backward) else here[:0]
        found[here] = tree.innermost(rows, at[here], until[here])
        by_time[here] = found[here] >= 0
    return found, by_time


def _is_backward(name: str) -> bool:
    return "backward" in name.lower()


def autograd_threads(events: TraceEvents) -> frozenset[int]:
    """Return the threads that autograd's engine ran on."""
    engine = {i for i, n in enumerate(events.names.values) if str(n).startswith("autograd::engine")}
    pairs = zip(events.op_name, events.op_thread, strict=True)
    return frozenset(thread for name, thread in pairs if name in engine)


@dataclass(slots=True, kw_only=True)
class Work:
    """Operations with the deepest range of each: of the GPU, or a CPU trace's operators."""

    start: Ints
    end: Ints
    kernel_ns: Ints
    is_kernel: NDArray[np.bool_]
    range_row: Ints
    by_time: NDArray[np.bool_]


def gpu_work(tree: RangeTree, events: TraceEvents, ops: GpuOps, calls: pd.DataFrame) -> Work:
    """Return the GPU operations with the range of each."""
    has = ops.launch >= 0
    launch = np.maximum(ops.launch, 0)
    rows, by_time = np.full(len(ops.start), -1, np.int64), np.zeros(len(ops.start), bool)
    if has.any() and len(tree.start):
        column = {c: calls[c].to_numpy()[launch][has] for c in ("start", "end", "thread")}
        process = process_of_threads(events)[column["thread"]]
        rows[has], by_time[has] = attribute(
            tree,
            column["thread"],
            process,
            column["start"],
            column["end"],
            autograd_threads(events),
        )
    elif len(np.unique(tree.process)) == 1:
        everything = np.arange(len(tree.start))
        rows = tree.innermost(everything, ops.start, ops.start)
    is_kernel = ops.kind == KERNEL
    return Work(
        start=ops.start,
        end=ops.end,
        kernel_ns=np.where(is_kernel, ops.end - ops.start, 0),
        is_kernel=is_kernel,
        range_row=rows,
        by_time=by_time,
    )


def process_of_threads(events: TraceEvents) -> Ints:
    """Return the process ordinal of each thread number."""
    ids: dict[object, int] = {}
    return np.array([ids.setdefault(pid, len(ids)) for pid, _ in events.threads.values], np.int64)


def phase_table(tree: RangeTree, work: Work, attribution: str, *, is_gpu: bool) -> pd.DataFrame:
    """Return PHASE_COLUMNS: a row for each (path, process), in order of the first start."""
    size = len(tree.start)
    kernel_ns, num = np.zeros(size, np.int64), np.zeros(size, np.int64)
    first, last = np.full(size, _FAR), np.full(size, -_FAR)
    timed = np.zeros(size, bool)
    rows = work.range_row.copy()
    while (rows >= 0).any():
        here = rows >= 0
        at = rows[here]
        np.add.at(kernel_ns, at, work.kernel_ns[here])
        np.add.at(num, at, work.is_kernel[here].astype(np.int64))
        np.minimum.at(first, at, work.start[here])
        np.maximum.at(last, at, work.end[here])
        np.logical_or.at(timed, at, work.by_time[here])
        rows[here] = tree.parent[at]
    frame = pd.DataFrame(
        {
            "path": list(tree.paths),
            "process": tree.process,
            "num_ranges": np.ones(size, np.int64),
            "host_ns": tree.end - tree.start,
            "projected_ns": pd.array(np.where(last > first, last - first, 0), dtype="Int64"),
            "kernel_ns": kernel_ns,
            "num_kernels": num,
            "is_timed": timed,
            "has_work": last >= first,
            "first_start_ns": tree.start,
        }
    )
    grouped = (
        frame.groupby(["path", "process"], sort=False)
        .agg(
            {
                c: "sum"
                for c in ("num_ranges", "host_ns", "projected_ns", "kernel_ns", "num_kernels")
            }
            | {"is_timed": "any", "has_work": "any", "first_start_ns": "min"}
        )
        .reset_index()
    )
    grouped["attribution"] = np.where(grouped["is_timed"], PROCESS_TIME, attribution)
    grouped["projected_ns"] = grouped["projected_ns"].where(grouped["has_work"] & is_gpu, pd.NA)
    for column in ("host_ns", "projected_ns", "kernel_ns"):
        grouped[column] = grouped[column].astype("Int64")
    ordered = grouped.sort_values("first_start_ns", kind="stable", ignore_index=True)
    return ordered[list(PHASE_COLUMNS)]


def range_table(tree: RangeTree) -> pa.Table:
    """Return RANGE_COLUMNS for the timeline."""
    columns = {
        "start_ns": pa.array(tree.start, pa.int64()),
        "end_ns": pa.array(tree.end, pa.int64()),
        "process": pa.array(tree.process.astype(np.int32), pa.int32()),
        "thread": pa.array(tree.thread, pa.int64()),
        "depth": pa.array(tree.depth.astype(np.int32), pa.int32()),
        "name": pa.array(tree.names, pa.string()).dictionary_encode(),
        "path": pa.array(tree.paths, pa.string()).dictionary_encode(),
    }
    return pa.table({c: columns[c] for c in RANGE_COLUMNS})
