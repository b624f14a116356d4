"""Small nsys exports of several ranks made by hand: a step computes, then all-reduces together."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

US = 1_000
NUM_STEPS = 20
NAMES = ("ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()", "cudaLaunchKernel")


def write_export(
    path: Path,
    places: Sequence[tuple[int, int]],
    *,
    late_us: Sequence[int] = (),
    shift_ns: int = 0,
    num_steps: int = NUM_STEPS,
) -> Path:
    """Write an export in which each (process, GPU) is a rank; those of one process share its ids.

    Every 2 ms a rank computes 400 us, `late_us` of its own late; the all-reduce ends 1 ms into it.
    """
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        conn.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
        conn.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, "
            "contextId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, "
            "shortName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT, "
            "registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT)"
        )
        conn.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, eventClass INT, "
            "globalTid INT, correlationId INT, nameId INT, returnValue INT)"
        )
        for rank, (process, device) in enumerate(places):
            late = late_us[rank] if late_us else 0
            for step in range(num_steps):
                begin = (1_000 + step * 2_000 + late) * US
                end = (1_000 + step * 2_000 + 1_000) * US
                for stream, (a, b) in (
                    (7, (begin, begin + 400 * US)),
                    (20, (begin + 400 * US, end)),
                ):
                    kind = int(stream == 20)
                    own = 2 * (step + num_steps * device) + kind + 1
                    launch = begin - (20 - 10 * kind) * US
                    times = (launch + shift_ns, launch + 5 * US + shift_ns)
                    conn.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 2, 0)",
                        (*times, (process << 24) + process, own),
                    )
                    conn.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
                        "(?, ?, ?, 1, ?, ?, ?, ?, ?, 1, 1, 1, 32, 1, 1, 32, 0, 0)",
                        (
                            a + shift_ns,
                            b + shift_ns,
                            device,
                            stream,
                            own,
                            process << 24,
                            kind,
                            kind,
                        ),
                    )
    return path
