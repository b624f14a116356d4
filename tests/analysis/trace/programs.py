"""Traces of made-up programs: what a host launches, one after the other, on one GPU.

A program is a list of entries: a kernel's name, `DtoH` (a copy back), `wait` (the host waits until
the GPU is done), `graph` (a CUDA graph recorded whole), or a tuple of names (a graph replayed node
by node). The host takes 10 us for an entry, each GPU operation 5 us.
"""

from collections.abc import Sequence

from analysis.trace.model import (
    Allocations,
    GpuOps,
    HostCalls,
    HostRanges,
    OpKind,
    OpLabel,
    Process,
    RangeKind,
    Sources,
    Thread,
    Trace,
    empty_columns,
    make_columns,
)
from analysis.trace.ranges import nested

HOST_NS, GPU_NS = 10_000, 5_000
Entry = str | tuple[str, ...]
CALLS = {"wait": "cudaDeviceSynchronize", "DtoH": "cudaMemcpyAsync", "HtoD": "cudaMemcpyAsync"}
KINDS = {
    "DtoH": OpKind.MEMCPY,
    "HtoD": OpKind.MEMCPY,
    "unified HtoD": OpKind.MEMCPY,
    "memset": OpKind.MEMSET,
    "graph": OpKind.GRAPH,
}


def run(
    program: Sequence[Entry],
    *,
    ranges: Sequence[tuple[str, int, int]] = (),
    pauses: dict[int, int] | None = None,
    threads: Sequence[int] | None = None,
    kind: RangeKind = RangeKind.ANNOTATION,
) -> Trace:
    """Return the trace. `ranges`: (name, first entry, entry after the last), on thread 0; `pauses`:
    ns that the host is late at an entry; `threads`: the thread of each entry, 0 or 1.
    """
    names: dict[str, int] = {}
    labels: dict[str, int] = {}
    calls: list[tuple[int, int]] = []
    ops: list[tuple[int, int, int, int, int]] = []
    at, free_at, starts = 0, 0, []
    for i, entry in enumerate(program):
        at += (pauses or {}).get(i, 0)
        starts.append(at)
        call = (
            CALLS.get(entry, "cudaLaunchKernel") if isinstance(entry, str) else "cudaLaunchKernel"
        )
        calls.append((at, names.setdefault(call, len(names))))
        for name in () if entry == "wait" else (entry,) if isinstance(entry, str) else entry:
            start = max(at + HOST_NS, free_at)
            free_at = start + GPU_NS
            label = labels.setdefault(name, len(labels))
            node = -1 if isinstance(entry, str) else label
            ops.append((start, free_at, KINDS.get(name, OpKind.KERNEL), label, node))
            calls_row = len(calls) - 1
            ops[-1] = (*ops[-1], calls_row)  # type: ignore[assignment]
        at = max(at + HOST_NS, free_at if entry == "wait" else 0)
    starts.append(at)
    columns = {
        "start_ns": [starts[a] for _, a, _ in ranges],
        "end_ns": [starts[b] - 1 for _, _, b in ranges],
        "thread": [0] * len(ranges),
        "name": [names.setdefault(n, len(names)) for n, _, _ in ranges],
        "kind": [kind] * len(ranges),
    }
    return Trace(
        gpu_ops=make_columns(
            GpuOps,
            len(ops),
            start_ns=[o[0] for o in ops],
            end_ns=[o[1] for o in ops],
            kind=[o[2] for o in ops],
            label=[o[3] for o in ops],
            graph_node=[o[4] for o in ops],
            launch=[o[5] for o in ops],  # type: ignore[misc]
            device=[0] * len(ops),
            stream=[7] * len(ops),
            process=[0] * len(ops),
        ),
        host_calls=make_columns(
            HostCalls,
            len(calls),
            start_ns=[c[0] for c in calls],
            end_ns=[c[0] + HOST_NS // 2 for c in calls],
            name=[c[1] for c in calls],
            thread=threads or [0] * len(calls),
        ),
        host_ranges=nested(make_columns(HostRanges, len(ranges), **columns)),
        allocations=empty_columns(Allocations),
        labels=tuple(OpLabel(name=n) for n in labels),
        names=tuple(names),
        sources=Sources(
            processes=(Process(pid=1),),
            threads=(Thread(process=0, tid=1), Thread(process=0, tid=2, is_autograd=True)),
        ),
    )
