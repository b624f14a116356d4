"""Split a trace's idle GPU time by cause, by the same rule as an nsys capture's."""

import numpy as np
import pandas as pd

from analysis.readers.nsys_columns import MISSING
from analysis.readers.nsys_events import TID_BITS, ApiCalls
from analysis.readers.nsys_gaps import HostCalls, gaps_frame
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_tables import is_waiting_call
from analysis.readers.torch_trace_events import TraceEvents
from analysis.readers.torch_trace_gpu import GpuOps
from analysis.readers.torch_trace_phases import process_of_threads
from analysis.readers.torch_trace_tables import device_of


def gap_table(events: TraceEvents, ops: GpuOps, calls: pd.DataFrame) -> pd.DataFrame:
    """Return GAP_COLUMNS; the times add up to span - busy outside the first profiler step."""
    process = process_of_threads(events)
    threads = calls["thread"].to_numpy(np.int64)
    keep = ~ops.is_first_step
    launch = ops.launch[keep]
    owner = process[threads[np.maximum(launch, 0)]] if len(threads) else np.zeros(len(launch))
    work = GpuWork(
        ops=(),
        kind=ops.kind[keep].astype(np.int8),
        start_ns=ops.start[keep],
        end_ns=ops.end[keep],
        device=device_of(events)[ops.stream[keep]].astype(np.int32),
        process=np.where(launch >= 0, owner, -1).astype(np.int32),
        launch=launch.astype(np.int32),
        processes=np.unique(process),
        num_duplicate_ids=0,
    )
    names = [str(n) for n in events.names.values]
    waiting = {i for i in calls["name"].unique() if is_waiting_call(names[i])}
    tids, kind = np.unique((process[threads] << TID_BITS) | threads, return_inverse=True)
    host = HostCalls(
        calls=ApiCalls(
            start_ns=calls["start"].to_numpy(np.int64),
            end_ns=calls["end"].to_numpy(np.int64),
            correlation=np.zeros(0, np.uint32),
            kind=kind.astype(np.int32),
            kinds=np.column_stack((np.full((len(tids), 2), MISSING), tids)),
        ),
        is_wait=calls["name"].isin(waiting).to_numpy(),
        is_launch=calls["is_launch"].to_numpy(bool),
    )
    return gaps_frame(work, host)
