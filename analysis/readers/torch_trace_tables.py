"""Summaries of a trace: kernels by shape, host calls, transfers, spans, headline numbers."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from analysis.intervals import union_ns
from analysis.readers.short_name import short_name
from analysis.readers.torch_trace_cpu import Operators
from analysis.readers.torch_trace_events import KERNEL, MEMCPY, MEMSET, TraceEvents, stream_ids
from analysis.readers.torch_trace_gpu import GpuOps
from analysis.readers.torch_trace_phases import RangeTree
from analysis.tables import (
    API_CALL_COLUMNS,
    KERNEL_COLUMNS,
    SPAN_COLUMNS,
    TRANSFER_COLUMNS,
    empty,
)

_SYNC = re.compile(r"Synchronize|^(?:cuda|cu|hip)Memcpy(?!.*Async)")
_COPY = re.compile(r"(HtoD|DtoH|DtoD|PtoP|HtoH)(?: \((\w+) -> (\w+)\))?")
_OTHER_COPY = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)|\b([HMD])2([HMD])\b")
"""AMD's and Intel's names; Intel calls the host's memory M."""
_SIDES = {"Host": "H", "Device": "D", "Peer": "P", "M": "H"}
_SPAN_KINDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}


def kernel_table(events: TraceEvents, ops: GpuOps) -> pd.DataFrame:
    """Return KERNEL_COLUMNS of the kernels outside the first profiler step, the largest first."""
    chosen = (ops.kind == KERNEL) & ~ops.is_first_step
    frame = pd.DataFrame(
        {
            "name": ops.name[chosen],
            "grid": ops.grid[chosen],
            "block": ops.block[chosen],
            "registers": ops.registers[chosen],
            "shared_bytes": ops.shared[chosen],
            "dur": (ops.end - ops.start)[chosen],
        }
    )
    names, dims = events.names.values, events.dims.values
    table = _grouped(frame, ["name", "grid", "block"])
    table["name"] = [names[i] for i in table["name"]]
    for column in ("grid", "block"):
        table[column] = pd.Series([dims[i] for i in table[column]], dtype=object)
    return _finished(table)


def operator_table(events: TraceEvents, ops: Operators) -> pd.DataFrame:
    """Return KERNEL_COLUMNS with a row for each operator name: its own time on the CPU."""
    names = events.names.values
    frame = pd.DataFrame(
        {"name": ops.name, "dur": ops.self_ns, "registers": -1, "shared_bytes": -1}
    )
    table = _grouped(frame, ["name"])
    table["name"] = [names[i] for i in table["name"]]
    table["grid"] = table["block"] = None
    finished = _finished(table)
    finished["short_name"] = finished["name"]
    return finished


def _grouped(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    grouped = frame.groupby(keys, sort=False).agg(
        registers=("registers", "max"),
        shared_bytes=("shared_bytes", "max"),
        count=("dur", "size"),
        total_ns=("dur", "sum"),
        min_ns=("dur", "min"),
        max_ns=("dur", "max"),
    )
    return grouped.reset_index()


def _finished(table: pd.DataFrame) -> pd.DataFrame:
    if table.empty:
        return empty(KERNEL_COLUMNS)
    table["short_name"] = [short_name(n) for n in table["name"]]
    table["is_opaque"] = False
    for column in ("registers", "shared_bytes"):
        table[column] = table[column].astype("Int64").where(table[column] >= 0, pd.NA)
    ordered = table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return ordered[list(KERNEL_COLUMNS)]


def call_table(events: TraceEvents, calls: pd.DataFrame, since_ns: int | None) -> pd.DataFrame:
    """Return API_CALL_COLUMNS of calls begun after `since_ns`; PyTorch notes no failures."""
    chosen = calls if since_ns is None else calls[calls["start"] >= since_ns]
    if chosen.empty:
        return empty(API_CALL_COLUMNS)
    names = [re.sub(r"_v\d+$", "", str(n)) for n in events.names.values]
    frame = pd.DataFrame(
        {"name": [names[i] for i in chosen["name"]], "dur": chosen["end"] - chosen["start"]}
    )
    table = (
        frame.groupby("name", sort=False)["dur"].agg(["size", "sum", "min", "max"]).reset_index()
    )
    table.columns = pd.Index(["name", "count", "total_ns", "min_ns", "max_ns"])
    table["num_failed"] = 0
    table["is_sync"] = [_SYNC.search(n) is not None for n in table["name"]]
    ordered = table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return ordered[list(API_CALL_COLUMNS)]


def transfer_table(events: TraceEvents, ops: GpuOps) -> pd.DataFrame:
    """Return TRANSFER_COLUMNS of copies and memsets outside the first profiler step."""
    chosen = (ops.kind != KERNEL) & ~ops.is_first_step
    if not chosen.any():
        return empty(TRANSFER_COLUMNS)
    names = events.names.values
    kinds = [
        _transfer_kind(str(names[i]), int(k))
        for i, k in zip(ops.name[chosen], ops.kind[chosen], strict=True)
    ]
    frame = pd.DataFrame(kinds, columns=["kind", "src", "dst"], dtype=object)
    sizes = pd.Series(ops.bytes[chosen]).astype("Int64")
    frame["bytes"] = sizes.where(sizes >= 0, pd.NA)
    frame["dur"] = (ops.end - ops.start)[chosen]
    grouped = frame.groupby(["kind", "src", "dst"], sort=False, dropna=False)
    table = grouped.agg(
        count=("dur", "size"),
        bytes=("bytes", lambda b: b.sum() if b.notna().all() else pd.NA),
        total_ns=("dur", "sum"),
    ).reset_index()
    table["bytes"] = table["bytes"].astype("Int64")
    return table[list(TRANSFER_COLUMNS)]


def _transfer_kind(name: str, kind: int) -> tuple[str, str | None, str | None]:
    if kind == MEMSET:
        return "memset", None, None
    found = _COPY.search(name)
    if not found:
        other = _OTHER_COPY.search(name)
        ends = [_SIDES.get(end, end) for end in other.groups() if end] if other else []
        return "to".join(ends) or "unknown", None, None
    return found[1], (found[2] or "").lower() or None, (found[3] or "").lower() or None


def gpu_summary(
    events: TraceEvents, ops: GpuOps, calls: pd.DataFrame, since_ns: int | None
) -> dict[str, Any]:
    """Return counts and times of kernels outside the first profiler step.

    busy: union of kernel intervals on each device, added up; span: first start to last end
    likewise.
    """
    chosen = (ops.kind == KERNEL) & ~ops.is_first_step
    start, end = ops.start[chosen], ops.end[chosen]
    devices = device_of(events)[ops.stream[chosen]]
    busy = span = 0
    for device in np.unique(devices):
        here = devices == device
        busy += union_ns(start[here], end[here])
        span += int(end[here].max() - start[here].min())
    late = calls if since_ns is None else calls[calls["start"] >= since_ns]
    launches = late[late["is_launch"]]
    used = np.isin(launches.index.to_numpy(), ops.launch)
    names = events.names.values
    graphs = [i for i in launches["name"] if "GraphLaunch" in str(names[i])]
    times = {"kernel_time_ns": int((end - start).sum()), "busy_ns": busy, "span_ns": span}
    summary: dict[str, Any] = {
        "num_kernels": int(chosen.sum()),
        **(times if chosen.any() else {}),
        "num_kernels_without_launch": int((ops.launch[chosen] < 0).sum()),
        "num_launches_without_kernel": int((~used).sum()),
        "num_kernels_before_launch": ops.num_before_launch,
        "num_quarantined": ops.num_impossible,
        "num_graph_launches": len(graphs),
    }
    if span:
        summary["idle_frac"] = 1 - busy / span
    return summary


def device_of(events: TraceEvents) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the device of each stream number."""
    return np.array([device for device, _ in stream_ids(events)], np.int64)


def span_table(
    events: TraceEvents, ops: GpuOps, calls: pd.DataFrame, tree: RangeTree, rows: Sequence[int]
) -> pa.Table:
    """Return SPAN_COLUMNS: every GPU operation, the first profiler step's included."""
    streams = np.array(stream_ids(events) or [(0, 0)], np.int64)
    has = ops.launch >= 0
    launched = np.zeros(len(ops.start), np.int64)
    launched[has] = calls["start"].to_numpy()[ops.launch[has]]
    columns = {
        "start_ns": pa.array(ops.start, pa.int64()),
        "end_ns": pa.array(ops.end, pa.int64()),
        "device": pa.array(streams[ops.stream, 0].astype(np.int32), pa.int32()),
        "stream": pa.array(streams[ops.stream, 1].astype(np.int32), pa.int32()),
        "process": pa.array(np.zeros(len(ops.start), np.int32), pa.int32()),
        "kind": _chosen([_SPAN_KINDS[i] for i in range(3)], ops.kind),
        "name": _chosen(events.names.values, ops.name),
        "grid": _chosen(events.dims.values, ops.grid),
        "block": _chosen(events.dims.values, ops.block),
        "path": _chosen([None, *tree.paths], np.asarray(rows, np.int64) + 1),
        "launch_start_ns": pa.array(launched, pa.int64(), mask=~has),
        "bytes": pa.array(ops.bytes, pa.int64(), mask=ops.bytes < 0),
    }
    return pa.table({c: columns[c] for c in SPAN_COLUMNS})


def _chosen(values: Sequence[str | None], rows: Any) -> pa.Array:
    picked = pa.array(values, pa.string()).take(pa.array(rows, pa.int64()))
    return picked.dictionary_encode()
