"""Time and memory of the ranks' numbers against how many ranks and kernels there are.

`python -m bench.ranks [RANKS:KERNELS ...]`: simulated captures, one per rank; every 40th kernel is
a collective, in groups of 8 and of all ranks. Prints a table and, last, one JSON line.
"""

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from analysis.ranks import records
from analysis.trace.model import (
    Allocations,
    Collectives,
    GpuOps,
    HostCalls,
    HostRanges,
    OpLabel,
    Process,
    Sources,
    Trace,
    empty_columns,
    make_columns,
)
from analysis.trace.rank_numbers import RankPart
from analysis.trace.rank_times import join_ranks
from analysis.trace.ranks import rank_tables

DEFAULT = ("8:1500000", "64:20000", "512:2500")
EVERY = 40
GROUP = 8
LABELS = ("ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()")


def main() -> int:
    rows = [measure(*map(int, size.split(":"))) for size in sys.argv[1:] or DEFAULT]
    for row in rows:
        print("  ".join(f"{name} {value:g}" for name, value in row.items()))
    print(json.dumps({"bench": "ranks", "rows": rows}))
    return 0


def measure(num_ranks: int, num_kernels: int) -> dict[str, Any]:
    read_s, parts = 0.0, []
    for rank in range(num_ranks):
        made, op_step = simulated(rank, num_ranks, num_kernels)
        started = time.process_time()
        tables = rank_tables(made, op_step)
        read_s += time.process_time() - started
        parts.append(
            RankPart(file_name=f"rank{rank}", ranks=tables.ranks, collectives=tables.collectives)
        )
    started = time.process_time()
    joined = join_ranks(parts)
    join_s = time.process_time() - started
    assert joined is not None and joined.is_joined
    document = json.dumps([records(joined.ranks), records(joined.collectives)])
    return {
        "ranks": num_ranks,
        "kernels": num_kernels,
        "read_s": round(read_s, 2),
        "us_a_kernel": round(read_s / num_ranks / num_kernels * 1e6, 3),
        "join_s": round(join_s, 2),
        "ms_a_rank": round(join_s / num_ranks * 1e3, 2),
        "document_kb": len(document) // 1024,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def simulated(rank: int, num_ranks: int, num_kernels: int) -> tuple[Trace, Any]:
    """Return one rank's trace: kernels of 5 us, every 40th a collective that all end together."""
    start = np.arange(num_kernels, dtype=np.int64) * 6_000
    end = start + 5_000
    talks = np.arange(EVERY - 1, num_kernels, EVERY)
    start[talks] += (rank * 37) % 900
    label = np.zeros(num_kernels, np.int32)
    label[talks] = 1
    is_whole = np.arange(len(talks)) % 4 == 0
    shift = rank * 1_000_003
    trace = Trace(
        gpu_ops=make_columns(
            GpuOps,
            num_kernels,
            start_ns=start + shift,
            end_ns=end + shift,
            label=label,
            device=np.full(num_kernels, rank),
            stream=np.full(num_kernels, 7),
            process=np.zeros(num_kernels),
        ),
        host_calls=empty_columns(HostCalls),
        host_ranges=empty_columns(HostRanges),
        allocations=empty_columns(Allocations),
        labels=tuple(OpLabel(name=name) for name in LABELS),
        names=("allreduce", "Float", "world", f"part{rank // GROUP}"),
        sources=Sources(processes=(Process(pid=rank, rank=rank),)),
        collectives=make_columns(
            Collectives,
            len(talks),
            op=talks,
            name=np.zeros(len(talks)),
            element_type=np.ones(len(talks)),
            group=np.where(is_whole, 2, 3),
            group_size=np.where(is_whole, num_ranks, min(GROUP, num_ranks)),
            num_elements_in=np.full(len(talks), 1 << 18),
            num_elements_out=np.full(len(talks), 1 << 18),
            sequence=np.arange(len(talks)),
        ),
    )
    return trace, np.arange(num_kernels, dtype=np.int64) * 20 // num_kernels


if __name__ == "__main__":
    sys.exit(main())
