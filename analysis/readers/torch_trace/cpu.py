"""Operators of a trace without GPU work, as if each were an operation of a device.

An operator lasts as long as it ran itself, its callees left out. In this form the rules for kernels
and phases hold for operators too.
"""

from dataclasses import replace

import numpy as np

from analysis.readers.torch_trace.quarantine import ROUNDING_NS
from analysis.trace.model import (
    GpuOps,
    HostCalls,
    Int32s,
    Int64s,
    OpLabel,
    RangeKind,
    Trace,
    make_columns,
)
from analysis.trace.nesting import parents


def operators_as_work(trace: Trace) -> Trace:
    """Return the trace with its operators in place of GPU operations and of their launches."""
    ranges = trace.host_ranges.take(trace.host_ranges.kind == RangeKind.OPERATOR)
    own_ns = _own_time(ranges.start_ns, ranges.end_ns, parents(
        ranges.end_ns, ranges.thread, start_ns=ranges.start_ns, rounding_ns=ROUNDING_NS
    ))  # fmt: skip
    order = np.argsort(ranges.start_ns, kind="stable")
    names, label = np.unique(ranges.name[order], return_inverse=True)
    start = ranges.start_ns[order]
    return replace(
        trace,
        gpu_ops=make_columns(
            GpuOps,
            len(order),
            start_ns=start,
            end_ns=start + own_ns[order],
            label=label,
            device=np.zeros(len(order)),
            stream=np.zeros(len(order)),
            process=trace.thread_process()[ranges.thread[order]],
            launch=np.arange(len(order)),
        ),
        host_calls=make_columns(
            HostCalls,
            len(order),
            start_ns=start,
            end_ns=start,
            name=ranges.name[order],
            thread=ranges.thread[order],
        ),
        labels=tuple(
            OpLabel(name=trace.names[n], short_name=trace.names[n]) for n in names.tolist()
        ),
    )


def _own_time(start_ns: Int64s, end_ns: Int64s, parent: Int32s) -> Int64s:
    """Return each duration without that of direct callees."""
    own = end_ns - start_ns
    has = parent >= 0
    inside = np.minimum(end_ns[has], end_ns[parent[has]]) - start_ns[has]
    np.subtract.at(own, parent[has], inside)
    return np.maximum(own, 0)
