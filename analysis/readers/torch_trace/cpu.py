"""Operators of a trace without GPU work, as if each were an operation of a device.

An operator lasts as long as it ran itself, its callees left out. In this form the rules for kernels
and phases hold for operators too.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.readers.torch_trace.quarantine import ROUNDING_NS
from analysis.trace.attribution import Attribution
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
from analysis.trace.ranges import PhaseRanges
from analysis.trace.step_figures import step_kernels, step_parts
from analysis.trace.steps import find_steps, steps_document


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


def cpu_steps(work: Trace, ranges: PhaseRanges, given: Attribution) -> dict[str, Any]:
    """Return the tables that are about steps, by `CaptureTables`' names, without a GPU's figures.

    A step's kernels are its operators, each its own time; nothing is idle, launched or copied.
    """
    steps = find_steps(work)
    facts = {k: v for k, v in steps_document(steps).items() if k not in _OF_A_GPU}
    if not len(steps.frame):
        return {"step_facts": facts}
    phases = step_parts(work, steps, ranges, given, None).get("phases", [])
    host_phases = [{k: v for k, v in row.items() if k != "projected_ns"} for row in phases]
    unknown = pd.array([pd.NA] * len(steps.frame), "Int64")
    return {
        "steps": steps.frame.assign(num_api_calls=unknown, api_ns=unknown),
        "step_facts": facts | ({"phases": host_phases} if host_phases else {}),
        "step_kernels": step_kernels(work, steps),
    }


_OF_A_GPU = frozenset(
    {"num_launches", "num_graph_launches", "graph_ns", "busy_ns", "idle_frac", "num_transfers"}
    | {"transfer_bytes", "transfer_ns", "num_api_calls", "api_ns", "kinds"}
)


def _own_time(start_ns: Int64s, end_ns: Int64s, parent: Int32s) -> Int64s:
    """Return the self time of each operator: its duration without direct callees."""
    own = end_ns - start_ns
    has = parent >= 0
    inside = np.minimum(end_ns[has], end_ns[parent[has]]) - start_ns[has]
    np.subtract.at(own, parent[has], inside)
    return np.maximum(own, 0)
