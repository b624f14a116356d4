"""Real exports, edited copies of them, and a slow second reading that shares no code with ours."""

import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

NSYS = Path(__file__).parents[2] / "data" / "h100" / "nsys"


def edited(name: str, folder: Path, statements: Iterable[str]) -> Path:
    """Return a copy of a capture after these SQL statements."""
    target = folder / f"edited_{name}"
    shutil.copyfile(NSYS / name, target)
    with closing(sqlite3.connect(target)) as conn, conn:
        for statement in statements:
            conn.execute(statement)
    return target


def rows(path: Path, sql: str) -> list[tuple]:
    """Return the rows of a query on the raw file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as conn:
        return conn.execute(sql).fetchall()


def slow_phases(path: Path) -> dict[str, tuple[int, int, int]]:
    """Return {range name: (kernels, kernel ns, ranges)} by nested loops over raw rows.

    A kernel counts once in each range that encloses its launch on the launching thread; a kernel of
    a thread without any range counts in the ranges of its process that enclose the launch in time.
    """
    ranges = rows(
        path, 'SELECT start, "end", globalTid, text FROM NVTX_EVENTS WHERE eventType IN (59, 60)'
    )
    launches = {
        (tid >> 24, corr): (a, b, tid)
        for a, b, tid, corr in rows(
            path, 'SELECT start, "end", globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME'
        )
    }
    threads = {tid for _, _, tid, _ in ranges}
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for _, _, _, text in ranges:
        found[text][2] += 1
    for start, end, pid, corr in rows(
        path, 'SELECT start, "end", globalPid, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL'
    ):
        a, b, tid = launches[(pid >> 24, corr)]
        names = set()
        for r_start, r_end, r_tid, text in ranges:
            same = r_tid == tid if tid in threads else r_tid >> 24 == tid >> 24
            if same and r_start <= a and b <= r_end:
                names.add(text)
        for text in names:
            found[text][0] += 1
            found[text][1] += end - start
    return {name: tuple(values) for name, values in found.items()}
