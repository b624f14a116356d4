"""The run's headline numbers; what is unknown has no key.

kernel_time_ns is the sum of kernel durations; busy_ns the union of kernel (and opaque graph)
intervals of each device, summed over devices; span_ns first start to last end of each device,
summed likewise, so that idle_frac = 1 - busy / span holds for several devices too.
"""

from collections.abc import Mapping
from typing import Any

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_events import GRAPH, KERNEL
from analysis.readers.nsys_gaps import DeviceTime
from analysis.readers.nsys_launches import GpuWork


def device_rows(devices: Mapping[int, DeviceTime]) -> list[dict[str, int]]:
    """Return the figures of each device that ran kernels or graphs."""
    return [
        {
            "device": device,
            "num_kernels": found.num_kernels,
            "kernel_time_ns": found.kernel_time_ns,
            "busy_ns": found.busy_ns,
            "span_ns": found.span_ns,
        }
        for device, found in sorted(devices.items())
    ]


def summarise(
    work: GpuWork,
    calls: ApiCalls,
    *,
    num_unanswered: int,
    num_graph_calls: int,
    are_graphs_lost: bool,
    devices: list[dict[str, int]],
) -> dict[str, Any]:
    """Return the summary keys of `CaptureTables` that this capture can fill.

    `num_unanswered`: launch calls without any GPU operation. `are_graphs_lost`: graphs were
    launched and none left a GPU record, so their time is unknown.
    """
    summary: dict[str, Any] = {}
    if len(calls):
        summary["num_api_calls"] = len(calls)
    if not devices:
        return summary
    if work.num_kernels:
        summary["num_kernels"] = work.num_kernels
        summary["kernel_time_ns"] = work.total_ns(KERNEL)
    summary["busy_ns"] = sum(d["busy_ns"] for d in devices)
    summary["span_ns"] = sum(d["span_ns"] for d in devices)
    if summary["span_ns"]:
        summary["idle_frac"] = 1 - summary["busy_ns"] / summary["span_ns"]
    if not are_graphs_lost:
        summary["opaque_graph_ns"] = work.total_ns(GRAPH)
    if work.num_graphs or len(calls):
        summary["num_graph_launches"] = work.num_graphs or num_graph_calls
    if len(calls):
        summary["num_kernels_without_launch"] = work.num_unlaunched
        summary["num_launches_without_kernel"] = num_unanswered
    return summary
