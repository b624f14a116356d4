"""Split a trace's idle GPU time by cause, by the same rule as an nsys capture's."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_chunks import Chunks
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, TID_BITS
from analysis.readers.nsys_gaps import NO_TIME, DeviceTime, DeviceWindow, gaps_frame
from analysis.readers.nsys_groups import Groups
from analysis.readers.nsys_host import NOTHING, HostTime, host_time
from analysis.readers.nsys_tables import is_waiting_call
from analysis.readers.torch_trace_events import TraceEvents
from analysis.readers.torch_trace_gpu import GpuOps
from analysis.readers.torch_trace_phases import process_of_threads
from analysis.readers.torch_trace_tables import device_of

CHUNK_ROWS = 1 << 16


def gap_table(events: TraceEvents, ops: GpuOps, calls: pd.DataFrame) -> pd.DataFrame:
    """Return GAP_COLUMNS; the times add up to span - busy outside the first profiler step."""
    threads = calls["thread"].to_numpy(np.int64)
    process_of = process_of_threads(events)
    tid = (process_of[threads] << TID_BITS) | threads
    host = _host_time(events, calls, tid) if len(calls) else None
    kept = np.flatnonzero(~ops.is_first_step)
    kept = kept[np.argsort(ops.start[kept], kind="stable")]
    launch = ops.launch[kept]
    thread = np.where(launch >= 0, np.append(tid, MISSING)[launch], MISSING)
    starts = np.append(calls["start"].to_numpy(np.int64), NO_TIME)
    launch_ns = np.where(launch >= 0, starts[launch], NO_TIME)
    device = device_of(events)[ops.stream[kept]]
    runs = (ops.kind[kept] == KERNEL) | (ops.kind[kept] == GRAPH)
    devices = {}
    for number in np.unique(device[runs]).tolist():
        mine = np.flatnonzero((device == number) & runs)
        beside = kept[(device == number) & ~runs]
        owners = np.unique(thread[mine][launch[mine] >= 0] >> TID_BITS)
        devices[number] = DeviceTime(host, host.waits_of(owners) if host else NOTHING)
        devices[number].add(
            DeviceWindow(
                start_ns=ops.start[kept][mine],
                end_ns=ops.end[kept][mine],
                is_kernel=ops.kind[kept][mine] == KERNEL,
                launch_ns=launch_ns[mine],
                thread=thread[mine],
                copies=(ops.start[beside], ops.end[beside]),
            )
        )
    return gaps_frame(devices)


def _host_time(events: TraceEvents, calls: pd.DataFrame, tid: Ints) -> HostTime:
    names = [str(n) for n in events.names.values]
    waiting = {i for i in calls["name"].unique() if is_waiting_call(names[i])}
    is_wait = calls["name"].isin(waiting).to_numpy(bool)
    is_launch = calls["is_launch"].to_numpy(bool)
    kinds, kind = np.unique(np.stack([is_wait, is_launch, tid]), axis=1, return_inverse=True)
    found = ApiCalls(
        rows=_chunks(calls, kind.reshape(-1).astype(np.int32)),
        kinds=kinds.T,
        sums=Groups(),
        last_end_ns=int(calls["end"].max()),
    )
    return host_time(found, kinds[0].astype(bool), kinds[1].astype(bool))


def _chunks(calls: pd.DataFrame, kind: NDArray[np.int32]) -> Chunks:
    start, end = calls["start"].to_numpy(np.int64), calls["end"].to_numpy(np.int64)
    found = Chunks(None)
    for first in range(0, len(start), CHUNK_ROWS):
        part = slice(first, first + CHUNK_ROWS)
        found.append({"start": start[part], "end": end[part], "kind": kind[part]})
    return found
