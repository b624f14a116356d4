"""Split a trace's idle GPU time by cause, by the same rule as an nsys capture's."""

import numpy as np
import pandas as pd

from analysis.readers.torch_trace_events import TraceEvents
from analysis.readers.torch_trace_gpu import GpuOps
from analysis.readers.torch_trace_phases import process_of_threads
from analysis.readers.torch_trace_tables import device_of
from analysis.trace import model
from analysis.trace.gaps import device_use
from analysis.trace.gaps import gap_table as shared_gap_table


def gap_table(events: TraceEvents, ops: GpuOps, calls: pd.DataFrame) -> pd.DataFrame:
    """Return GAP_COLUMNS; the times add up to span - busy outside the first profiler step."""
    order = np.argsort(calls["start"].to_numpy(np.int64), kind="stable")
    place = np.empty(len(order) + 1, np.int64)
    place[order], place[-1] = np.arange(len(order)), model.MISSING
    chosen = calls.iloc[order]
    host_calls = model.make_columns(
        model.HostCalls,
        len(chosen),
        start_ns=chosen["start"],
        end_ns=chosen["end"],
        name=chosen["name"],
        thread=chosen["thread"],
    )
    kept = np.flatnonzero(~ops.is_first_step)
    kept = kept[np.argsort(ops.start[kept], kind="stable")]
    process_of = process_of_threads(events)
    launch = place[ops.launch[kept]]
    thread = np.append(host_calls.thread, model.MISSING)[launch]
    trace = model.Trace(
        gpu_ops=model.make_columns(
            model.GpuOps,
            len(kept),
            start_ns=ops.start[kept],
            end_ns=ops.end[kept],
            kind=ops.kind[kept],
            device=device_of(events)[ops.stream[kept]],
            process=np.append(process_of, model.MISSING)[thread],
            launch=launch,
        ),
        host_calls=host_calls,
        host_ranges=model.empty_columns(model.HostRanges),
        allocations=model.empty_columns(model.Allocations),
        labels=(),
        names=tuple(str(n) for n in events.names.values),
        sources=model.Sources(
            threads=tuple(model.Thread(process=p, tid=i) for i, p in enumerate(process_of.tolist()))
        ),
    )
    return shared_gap_table(device_use(trace))
