"""Time and memory of importing a job of many ranks, against a scan of its files.

    python -m bench.ranks.imports [--ranks 8] [--kernels 1500000] [--keep DIR]

Takes the two nsys exports of a measured job on two GPUs (example data), grows each until it has
that many kernels, and writes them in turn as rank 0, 1, 2, ... Then, each in a process of its own:

  scan        SQLite alone decodes every needed cell of every file: the floor
  import      `warpboard import FOLDER`: read, classify, align clocks, scrub, store

Prints a table and, as the last line, one JSON document. Memory is the largest sum over all
processes of the import that were alive at once (what they share is counted in each).
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
from contextlib import closing
from pathlib import Path
from typing import Any

from app.demo.load import unpack
from bench.ingest import ROOT, grow, scan
from core.supervisor import descendants

EXAMPLES = "ranks-2xh200.tar.xz"
JOB = "ddp-medium-strong-2-gpus"
GOAL_RATIO, GOAL_BYTES = 6.0, 4_000_000_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--kernels", type=int, default=1_500_000)
    parser.add_argument("--keep", type=Path, help="work here and leave the files")
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scan:
        for path in sorted(options.scan.glob("*.sqlite")):
            scan(path)
        return
    with tempfile.TemporaryDirectory(dir=options.keep) as folder:
        measure(Path(folder), options.ranks, options.kernels)


def measure(folder: Path, num_ranks: int, num_kernels: int) -> None:
    files = folder / "job"
    files.mkdir()
    rows = make_job(files, num_ranks, num_kernels)
    num_bytes = sum(path.stat().st_size for path in files.iterdir())
    python = [sys.executable, "-m"]
    scanned = timed([*python, "bench.ranks.imports", "--scan", str(files)])
    data = ["--data", str(folder / "data")]
    imported = timed([*python, "app.cli", *data, "import", str(files), "--json"])
    run_id = json.loads(imported["out"])["run_id"]
    shown = timed([*python, "app.cli", *data, "show", run_id, "--json"])
    ranks = json.loads(shown["out"])["ranks"]
    assert [row["num_kernels"] for row in ranks] == rows, ranks
    assert all(row["clock"] in ("same", "collectives") for row in ranks), ranks
    print(f"{num_ranks} ranks, {sum(rows)} kernels, {num_bytes / 1e6:.0f} MB")
    parts = {"scan": scanned, "import": imported, "show": shown}
    for name, part in parts.items():
        ratio = part["wall_s"] / scanned["wall_s"]
        print(
            f"{name:8} {part['wall_s']:8.1f} s {ratio:6.1f} x  {part['peak_bytes'] / 1e6:8.0f} MB"
        )
    is_met = (
        imported["wall_s"] <= GOAL_RATIO * scanned["wall_s"] and imported["peak_bytes"] < GOAL_BYTES
    )
    numbers = {n: {k: v for k, v in part.items() if k != "out"} for n, part in parts.items()}
    print(json.dumps({"bench": "ranks_import", **numbers, "is_goal_met": is_met}))


def make_job(files: Path, num_ranks: int, num_kernels: int) -> list[int]:
    """Write a file per rank and return how many kernels each has.

    The copies of both exports follow each other equally fast, so collectives stay together.
    """
    bases = []
    with tempfile.TemporaryDirectory() as unpacked:
        job = unpack(EXAMPLES, Path(unpacked)) / JOB
        bases = [job / f"nsys-0-rank{rank}.sqlite" for rank in (0, 1)]
        period_ns = max(map(_length_ns, bases)) + 1_000_000
        rows = []
        for rank in range(num_ranks):
            base = _of_its_own(bases[rank % len(bases)], rank // len(bases))
            copies = max(1, num_kernels // _num_kernels(base))
            target = files / f"nsys-rank{rank}.sqlite"
            grown = grow(target, copies, capture=base, period_ns=period_ns)
            rows.append(grown["CUPTI_ACTIVITY_KIND_KERNEL"])
    return rows


def _of_its_own(base: Path, late_ns: int) -> Path:
    """Return the export with kernels that begin so much later: files that are alike count once."""
    target = base.with_name(f"{late_ns}-{base.name}")
    shutil.copyfile(base, target)
    with closing(sqlite3.connect(target)) as conn, conn:
        conn.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + ?", [late_ns])
    return target


def _length_ns(path: Path) -> int:
    return int(_answer(path, "SELECT max(duration) FROM ANALYSIS_DETAILS"))


def _num_kernels(path: Path) -> int:
    return int(_answer(path, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"))


def _answer(path: Path, query: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        (value,) = conn.execute(query).fetchone()
    return int(value)


def timed(command: list[str]) -> dict[str, Any]:
    """Run a command; return its output, wall and CPU time and the peak memory of its processes."""
    with tempfile.TemporaryFile() as out:
        started, peak = time.perf_counter(), 0
        child = subprocess.Popen(command, cwd=ROOT, stdout=out)
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            peak = max(peak, sum(map(_resident, [child.pid, *descendants(child.pid)])))
            time.sleep(1.0)
        wall_s = time.perf_counter() - started
        _, status, used = ended
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if child.returncode:
            raise SystemExit(f"bench: {' '.join(command)} failed with code {child.returncode}")
        return {
            "out": out.read().decode(),
            "wall_s": round(wall_s, 1),
            "cpu_s": round(used.ru_utime + used.ru_stime, 1),
            "peak_bytes": max(peak, used.ru_maxrss * 1024),
        }


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    main()
