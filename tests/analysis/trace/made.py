"""Small traces made by hand: times in ns, one process and one GPU unless said otherwise."""

from collections.abc import Sequence

import numpy as np

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

Range = tuple[str, int, int, int] | tuple[str, int, int, int, RangeKind]
"(name, start, end, thread[, kind])"
Call = tuple[str, int, int, int]
"(name, start, end, thread)"
Op = tuple[int, int, int] | tuple[int, int, int, OpKind]
"(start, end, row of the call that launched it or -1[, kind])"


def trace(
    *,
    ranges: Sequence[Range] = (),
    calls: Sequence[Call] = (),
    ops: Sequence[Op] = (),
    thread_process: Sequence[int] = (0, 0, 0),
    op_process: Sequence[int] | None = None,
    op_device: Sequence[int] | None = None,
) -> Trace:
    """Return the trace; calls are given in order of start, operations too."""
    names: dict[str, int] = {}

    def code(name: str) -> int:
        return names.setdefault(name, len(names))

    columns = {
        "start_ns": [r[1] for r in ranges],
        "end_ns": [r[2] for r in ranges],
        "thread": [r[3] for r in ranges],
        "name": [code(r[0]) for r in ranges],
        "kind": [r[4] if len(r) > 4 else RangeKind.ANNOTATION for r in ranges],
    }
    host_calls = make_columns(
        HostCalls,
        len(calls),
        name=[code(c[0]) for c in calls],
        start_ns=[c[1] for c in calls],
        end_ns=[c[2] for c in calls],
        thread=[c[3] for c in calls],
        correlation=list(range(1, len(calls) + 1)),
    )
    kinds = [o[3] if len(o) > 3 else OpKind.KERNEL for o in ops]
    owners = op_process or [thread_process[calls[o[2]][3]] if o[2] >= 0 else 0 for o in ops]
    gpu_ops = make_columns(
        GpuOps,
        len(ops),
        start_ns=[o[0] for o in ops],
        end_ns=[o[1] for o in ops],
        launch=[o[2] for o in ops],
        kind=kinds,
        label=kinds,
        device=op_device or [0] * len(ops),
        stream=[7] * len(ops),
        process=owners,
    )
    return Trace(
        gpu_ops=gpu_ops,
        host_calls=host_calls,
        host_ranges=nested(make_columns(HostRanges, len(ranges), **columns)),
        allocations=empty_columns(Allocations),
        labels=tuple(OpLabel(name=n) for n in ("gemm", "HtoD", "memset", "CUDA graph launch")),
        names=tuple(names),
        sources=Sources(
            processes=tuple(Process(pid=100 + p) for p in range(max(thread_process) + 1)),
            threads=tuple(Thread(process=p, tid=i) for i, p in enumerate(thread_process)),
        ),
    )


def launches(*times: tuple[int, int]) -> list[Call]:
    """Return kernel launches of 2 ns, given as (start, thread)."""
    return [("cudaLaunchKernel", start, start + 2, thread) for start, thread in times]


def seeded_trace(seed: int, num_ops: int) -> Trace:
    """Return a trace with nested and overlapping ranges on two threads and random launches."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, 10_000, num_ops))
    calls = launches(*((int(t), int(rng.integers(0, 3))) for t in starts))
    ops = [(int(t) + 50, int(t) + 50 + int(rng.integers(1, 9)), i) for i, t in enumerate(starts)]
    ranges = [
        (f"r{rng.integers(0, 4)}", int(a), int(a + rng.integers(10, 3_000)), int(t))
        for a, t in zip(rng.integers(0, 9_000, 30), rng.integers(0, 2, 30), strict=True)
    ]
    return trace(ranges=ranges, calls=calls, ops=ops)
