"""PyTorch traces of several ranks made by hand: a step computes, then all-reduces 4 MB together."""

import gzip
import json
from pathlib import Path
from typing import Any

STEP_US = 2_000.0
GEMM_US = 400.0
REDUCE_END_US = 1_000.0
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def write_trace(
    path: Path, rank: int, *, num_ranks: int = 2, num_steps: int = 6, late_us: float = 0.0
) -> Path:
    """Write rank's trace; each step it is `late_us` later, asleep in `load_batch`.

    The all-reduce of a step ends on all ranks at the same time, 1 ms into it.
    """
    events: list[dict[str, Any]] = []
    for step in range(num_steps):
        base = 1_000.0 + step * STEP_US
        events += _step(rank, num_ranks, step, base, late_us)
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": rank, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 1}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": num_ranks},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": events,
    }
    with gzip.open(path, "wt") as file:
        json.dump(trace, file)
    return path


def _step(
    rank: int, num_ranks: int, step: int, base: float, late_us: float
) -> list[dict[str, Any]]:
    pid = 4_000 + rank
    gemm = base + 100 + late_us
    reduce = gemm + GEMM_US
    arguments = {
        "Collective name": "allreduce",
        "In msg nelems": 1_000_000,
        "Out msg nelems": 1_000_000,
        "dtype": "Float",
        "Group size": num_ranks,
        "Process Group Name": "0",
        "Process Group Ranks": str(list(range(num_ranks))),
        "Seq": step,
    }
    return [
        _host("user_annotation", f"ProfilerStep#{step}", base, STEP_US - 10, pid),
        _host("user_annotation", "load_batch", base + 10, 60 + late_us, pid),
        _launch(base + 75 + late_us, pid, 2 * step + 1),
        _launch(base + 85 + late_us, pid, 2 * step + 2),
        _kernel("ampere_sgemm_128x64_tn", gemm, GEMM_US, rank, 7, 2 * step + 1, {}),
        _kernel(
            ALL_REDUCE, reduce, base + REDUCE_END_US - reduce, rank, 20, 2 * step + 2, arguments
        ),
    ]


def _host(kind: str, name: str, ts: float, dur: float, pid: int) -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": pid}


def _launch(ts: float, pid: int, correlation: int) -> dict[str, Any]:
    arguments = {"correlation": correlation, "External id": correlation}
    call = _host("cuda_runtime", "cudaLaunchKernel", ts, 5.0, pid)
    return {**call, "args": arguments}


def _kernel(
    name: str,
    ts: float,
    dur: float,
    rank: int,
    stream: int,
    correlation: int,
    more: dict[str, Any],
) -> dict[str, Any]:
    arguments = {"device": rank, "stream": stream, "correlation": correlation, **more}
    event = {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur}
    return {**event, "pid": rank, "tid": stream, "args": arguments}
