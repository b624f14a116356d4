"""Small traces of ranks made by hand: (start, end, kernel name) of one GPU, times in ns."""

from collections.abc import Sequence

from analysis.trace.model import Allocations as _Allocations
from analysis.trace.model import (
    Collectives,
    GpuOps,
    HostCalls,
    HostRanges,
    OpLabel,
    Process,
    Sources,
    Thread,
    Trace,
    empty_columns,
    make_columns,
)
from analysis.trace.ranges import nested

GEMM = "ampere_sgemm_128x64_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
Kernel = tuple[int, int, str]


def rank_trace(
    kernels: Sequence[Kernel],
    *,
    rank: int | None = 0,
    num_elements: Sequence[int] = (),
    sequence: Sequence[int] = (),
    group_size: int = 2,
    ranges: Sequence[tuple[str, int, int]] = (),
    utc_origin_ns: int | None = None,
) -> Trace:
    """Return one rank's trace; `num_elements` are those of its collectives, float32, in order."""
    names = ["allreduce", "Float", "0", "[0, 1]"]
    labels = list(dict.fromkeys(k[2] for k in kernels))
    talks = [i for i, k in enumerate(kernels) if "nccl" in k[2]]
    described = talks[: len(num_elements)]
    num = len(described)
    made = {"name": [0] * num, "element_type": [1] * num, "group": [2] * num, "ranks": [3] * num}
    made |= {"op": described, "group_size": [group_size] * num}
    made |= {"num_elements_in": list(num_elements), "num_elements_out": list(num_elements)}
    if sequence:
        made["sequence"] = list(sequence)
    host_ranges = make_columns(
        HostRanges,
        len(ranges),
        name=[len(names) + i for i in range(len(ranges))],
        start_ns=[r[1] for r in ranges],
        end_ns=[r[2] for r in ranges],
        thread=[0] * len(ranges),
    )
    return Trace(
        gpu_ops=make_columns(
            GpuOps,
            len(kernels),
            start_ns=[k[0] for k in kernels],
            end_ns=[k[1] for k in kernels],
            label=[labels.index(k[2]) for k in kernels],
            device=[rank or 0] * len(kernels),
            stream=[7] * len(kernels),
            process=[0] * len(kernels),
        ),
        host_calls=empty_columns(HostCalls),
        host_ranges=nested(host_ranges),
        allocations=empty_columns(_Allocations),
        labels=tuple(OpLabel(name=name) for name in labels),
        names=(*names, *(r[0] for r in ranges)),
        sources=Sources(
            processes=(Process(pid=100 + (rank or 0), rank=rank),),
            threads=(Thread(process=0, tid=1),),
            utc_origin_ns=utc_origin_ns,
        ),
        collectives=make_columns(Collectives, num, **made),
    )
