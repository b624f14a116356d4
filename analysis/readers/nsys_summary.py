"""The run's headline numbers from the loaded arrays; what is unknown has no key.

kernel_time_ns is the sum of kernel durations; busy_ns the union of kernel (and opaque graph)
intervals of each device, summed over devices; span_ns first start to last end of each device,
summed likewise, so that idle_frac = 1 - busy / span holds for several devices too.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.intervals import union_ns
from analysis.readers.nsys_events import GRAPH, KERNEL, ApiCalls
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_warnings import launches_without_work


def device_rows(work: GpuWork) -> list[dict[str, int]]:
    """Return the figures of each device that ran kernels or graphs."""
    runs = (work.kind == KERNEL) | (work.kind == GRAPH)
    rows = []
    for device in np.unique(work.device[runs]).tolist():
        mine = np.flatnonzero(runs & (work.device == device))
        start, end = work.start_ns[mine], work.end_ns[mine]
        is_kernel = work.kind[mine] == KERNEL
        rows.append(
            {
                "device": device,
                "num_kernels": int(is_kernel.sum()),
                "kernel_time_ns": int((end - start)[is_kernel].sum()),
                "busy_ns": union_ns(start, end),
                "span_ns": int(end.max() - start.min()),
            }
        )
    return rows


def summarise(
    work: GpuWork,
    calls: ApiCalls,
    is_launch: NDArray[np.bool_],
    num_graph_calls: int,
    are_graphs_lost: bool,
    devices: list[dict[str, int]],
) -> dict[str, Any]:
    """Return the summary keys of `CaptureTables` that this capture can fill.

    `are_graphs_lost`: graphs were launched and none left a GPU record, so their time is unknown.
    """
    summary: dict[str, Any] = {}
    if len(calls):
        summary["num_api_calls"] = len(calls)
    if not devices:
        return summary
    duration = work.end_ns - work.start_ns
    num_graphs = work.of(GRAPH).stop - work.of(GRAPH).start
    if work.num_kernels:
        summary["num_kernels"] = work.num_kernels
        summary["kernel_time_ns"] = int(duration[work.of(KERNEL)].sum())
    summary["busy_ns"] = sum(d["busy_ns"] for d in devices)
    summary["span_ns"] = sum(d["span_ns"] for d in devices)
    if summary["span_ns"]:
        summary["idle_frac"] = 1 - summary["busy_ns"] / summary["span_ns"]
    if not are_graphs_lost:
        summary["opaque_graph_ns"] = int(duration[work.of(GRAPH)].sum())
    if num_graphs or len(calls):
        summary["num_graph_launches"] = num_graphs or num_graph_calls
    if len(calls):
        summary["num_kernels_without_launch"] = int((work.launch[work.of(KERNEL)] < 0).sum())
        summary["num_launches_without_kernel"] = len(launches_without_work(work, is_launch))
    return summary
