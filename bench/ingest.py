"""Time the nsys reader on a real capture grown 500-fold, against the floor and against a peer.

    python -m bench.ingest [--copies N] [--repeats N] [--nsys-ai] [--larger N] [--file FILE]
                           [--keep DIR]

Grows tests/data/h100/nsys/train_bf16.sqlite (every event copied N times, shifted in time, with
fresh correlation ids) and measures, each in a process of its own with its peak memory:

  scan        SQLite alone decodes every needed cell (count(column), no Python object): the floor
  read        analysis.readers.nsys.export.read_nsys_sqlite, to complete tables
  import      the command line's whole import: read, classify, scrub, store
  nsys-ai     its `nvtx_kernel_map` skill, in an environment of its own from PyPI (--nsys-ai)
  read xN     the same reading of a file N times as large (--larger N): its peak memory is what
              counts, its ratios are to the scan of the smaller file

Prints a table and, as the last line, one JSON document. The best of the repeats counts: other
programs on the machine only ever add time. The second ratio is of CPU time, which a busy machine
disturbs less; reading uses two cores, so on a quiet machine its wall ratio is the lower one.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CAPTURE = ROOT / "tests" / "data" / "h100" / "nsys" / "train_bf16.sqlite"
GOAL_WALL, GOAL_CPU = 3.0, 4.0
"""Times the scan, on two free cores."""
GOAL_BYTES = 1_000_000_000
GOAL_LARGER_BYTES = 4_000_000_000
"""Of a file ten times as large."""
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid "
    "demangledName shortName gridX gridY gridZ blockX blockY blockZ registersPerThread "
    "staticSharedMemory dynamicSharedMemory",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId returnValue",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId streamId correlationId globalPid copyKind "
    "srcKind dstKind bytes",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId streamId correlationId globalPid memKind "
    "bytes",
    "NVTX_EVENTS": "start end eventType textId globalTid endGlobalTid domainId text",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "start deviceId bytes memKind memoryOperationType globalPid "
    "address",
}
"""What the reader takes from each table that grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The best of the repeats of one command."""

    name: str
    wall_s: float
    cpu_s: float
    peak_bytes: int


def grow(
    target: Path, copies: int, *, capture: Path = CAPTURE, period_ns: int | None = None
) -> dict[str, int]:
    """Write the grown capture and return the rows of each table.

    A copy begins `period_ns` after the one before: 1 ms after its end if not given.
    """
    shutil.copyfile(capture, target)
    with closing(sqlite3.connect(target, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode=OFF")
        conn.execute("PRAGMA synchronous=OFF")
        conn.execute("BEGIN")
        if period_ns is None:
            (length,) = conn.execute("SELECT max(duration) FROM ANALYSIS_DETAILS").fetchone()
            period_ns = length + 1_000_000
        ids = "SELECT max(correlationId) + 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        (num_ids,) = conn.execute(ids).fetchone()
        tables = [name for name in COLUMNS if _has_table(conn, name)]
        for table in tables:
            _copy_rows(conn, table, copies, period_ns, num_ids)
        conn.execute("COMMIT")
        return {t: conn.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}


def _has_table(conn: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return conn.execute(query, [name]).fetchone() is not None


def _copy_rows(
    conn: sqlite3.Connection, table: str, copies: int, period_ns: int, num_ids: int
) -> None:
    shifted = {
        "start": f't."start" + n.i * {period_ns}',
        "end": f't."end" + n.i * {period_ns}',
        "correlationId": f"t.correlationId + n.i * {num_ids}",
    }
    columns = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
    chosen = ", ".join(shifted.get(c, f't."{c}"') for c in columns)
    ranges_only = "WHERE eventType = 59" if table == "NVTX_EVENTS" else ""
    conn.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {copies - 1}) "
        f"INSERT INTO {table} SELECT {chosen} FROM n CROSS JOIN "
        f"(SELECT * FROM {table} {ranges_only}) AS t"
    )


def scan(path: Path) -> None:
    """Decode every needed cell inside SQLite."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as conn:
        for table, columns in COLUMNS.items():
            if not _has_table(conn, table):
                continue
            counted = ", ".join(f'count("{c}")' for c in columns.split())
            conn.execute(f"SELECT {counted} FROM {table}").fetchall()


def read(path: Path) -> None:
    """Read to complete tables and print the headline sums."""
    from analysis.readers.nsys.export import read_nsys_sqlite

    tables = read_nsys_sqlite(path)
    print(json.dumps({k: tables.summary[k] for k in ("num_kernels", "kernel_time_ns")}))


def measure(name: str, command: list[str], repeats: int) -> Measurement:
    """Run a command `repeats` times and return its best time and its largest peak memory."""
    runs = []
    for _ in range(repeats):
        started = time.perf_counter()
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"bench: {name} failed with code {child.returncode}")
        runs.append((wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024))
    print(f"{name}: {min(runs)[0]:.1f} s", file=sys.stderr, flush=True)
    return Measurement(
        name=name,
        wall_s=round(min(f[0] for f in runs), 2),
        cpu_s=round(min(f[1] for f in runs), 2),
        peak_bytes=max(f[2] for f in runs),
    )


def measure_nsys_ai(path: Path, folder: Path) -> Measurement:
    """Install nsys-ai and let it map the kernels of a copy of the file to ranges."""
    venv.create(folder / "nsys-ai", with_pip=True)
    binaries = folder / "nsys-ai" / "bin"
    install = [str(binaries / "pip"), "install", "-q", "nsys-ai"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    copy = folder / "for-nsys-ai.sqlite"
    shutil.copyfile(path, copy)
    # `nsys-ai warm` needs a DuckDB extension from the network; the skill also works without.
    command = [str(binaries / "nsys-ai"), "skill", "run", "nvtx_kernel_map", str(copy)]
    return measure("nsys-ai", command, repeats=1)


def _run(path: Path, folder: Path, options: argparse.Namespace) -> list[Measurement]:
    ourselves = [sys.executable, "-m", "bench.ingest", "--file", str(path), "--child"]
    measurements = [measure(n, [*ourselves, n], options.repeats) for n in ("scan", "read")]
    data = folder / "data"
    importing = [sys.executable, "-m", "app.cli", "--data", str(data), "import", str(path)]
    measurements.append(measure("import", [*importing, "--json"], repeats=1))
    if options.nsys_ai:
        measurements.append(measure_nsys_ai(path, folder))
    if options.larger:
        larger = folder / "larger.sqlite"
        grow(larger, options.copies * options.larger)
        command = [*ourselves[:-2], str(larger), "--child", "read"]
        measurements.append(measure(f"read x{options.larger}", command, repeats=1))
        larger.unlink()
    return measurements


def report(measurements: list[Measurement], rows: dict[str, int], file_bytes: int) -> None:
    """Print the table, then the JSON line."""
    floor = measurements[0].wall_s
    print(f"{file_bytes / 1e6:.0f} MB; " + ", ".join(f"{n} {t}" for t, n in rows.items()))
    print(f"{'':10} {'wall s':>8} {'x scan':>7} {'CPU s':>7} {'x scan':>7} {'peak MB':>8}")
    for m in measurements:
        ratio, cpu_ratio = m.wall_s / floor, m.cpu_s / measurements[0].cpu_s
        print(
            f"{m.name:10} {m.wall_s:8.2f} {ratio:7.1f} {m.cpu_s:7.2f} {cpu_ratio:7.1f} "
            f"{m.peak_bytes / 1e6:8.0f}"
        )
    ours = [m for m in measurements if m.name in ("read", "import")]
    larger = [m for m in measurements if m.name.startswith("read x")]
    document = {
        "bench": "ingest",
        "file_bytes": file_bytes,
        "rows": rows,
        "measurements": [asdict(m) for m in measurements],
        "goal": {"wall": GOAL_WALL, "cpu": GOAL_CPU, "peak_bytes": GOAL_BYTES},
        "is_goal_met": all(
            m.wall_s <= GOAL_WALL * floor
            and m.cpu_s <= GOAL_CPU * measurements[0].cpu_s
            and m.peak_bytes < GOAL_BYTES
            for m in ours
        )
        and all(m.peak_bytes < GOAL_LARGER_BYTES for m in larger),
    }
    print(json.dumps(document))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--nsys-ai", action="store_true", help="install and time nsys-ai too")
    parser.add_argument("--larger", type=int, help="read a file N times as large too")
    parser.add_argument("--file", type=Path, help="use this grown capture instead of making one")
    parser.add_argument("--keep", type=Path, help="leave the grown capture in this folder")
    parser.add_argument("--child", choices=("scan", "read"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        {"scan": scan, "read": read}[options.child](options.file)
        return
    with tempfile.TemporaryDirectory(prefix="warpboard-bench-") as temporary:
        folder = Path(temporary)
        path = options.file or (options.keep or folder) / "grown.sqlite"
        if options.file:
            with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as conn:
                query = "SELECT count(*) FROM {}"
                rows = {t: conn.execute(query.format(t)).fetchone()[0] for t in COLUMNS}
        else:
            rows = grow(path, options.copies)
        report(_run(path, folder, options), rows, path.stat().st_size)


if __name__ == "__main__":
    main()
