"""How database answers grow with the number of runs: `python -m bench.scale 1000 10000 100000`.

Runs are inserted as the product stores them (headline numbers, tags, a few log lines). Times are
medians of seven calls of what the pages and the API call, in CPU time, so that other work on the
host does not count; waiting for the disk is not in it. Prints a table and one JSON line.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from core.config import DataDir, data_dir
from core.ids import new_id
from core.spec import JobSpec
from db import handover, queue, runs, status
from db.clock import utc_now
from db.connection import opened
from db.runs import spec_fields

REPEATS = 7
GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090")


def fill(data: DataDir, num_runs: int) -> list[str]:
    """Insert finished runs of varying parameters; return their ids."""
    generator = random.Random(1)
    rows, tags, events = [], [], []
    for i in range(num_runs):
        params = {"compile": ("none", "default")[i % 2], "batch": 2 ** (i % 7), "seed": i}
        spec = JobSpec(workload="decode", params=params, gpu=GPUS[i % 2])
        latency = generator.uniform(0.5, 5)
        row: dict[str, Any] = {
            "id": new_id(),
            "name": f"decode {i}",
            "source": "submitted",
            "status": "done",
        }
        row |= spec_fields(spec) | {"position": i, "created_at": utc_now(), "latency_ms": latency}
        row |= {"latency_lo_ms": latency * 0.98, "latency_hi_ms": latency * 1.02}
        row |= {"num_samples": 60, "idle_frac": generator.random(), "gemm_frac": 0.7}
        rows.append(row)
        tags += [(row["id"], tag) for tag in (("nightly",), ("paper", "nightly"))[i % 3 == 0]]
        events += [(row["id"], utc_now(), "log", f"line {n}") for n in range(5)]
    with opened(data.ensure().db_path) as db, db.atomic():
        marks = ", ".join("?" * len(rows[0]))
        db.conn.executemany(
            f"INSERT INTO runs ({', '.join(rows[0])}) VALUES ({marks})",
            [tuple(row.values()) for row in rows],
        )
        db.conn.executemany("INSERT INTO tags (run_id, tag) VALUES (?, ?)", tags)
        db.conn.executemany(
            "INSERT INTO events (run_id, at, kind, message) VALUES (?, ?, ?, ?)", events
        )
    return [str(row["id"]) for row in rows]


def calls(db: Database, run_ids: list[str]) -> dict[str, Callable[[], object]]:
    """Return what is timed."""
    wide = "compile:none latency<2 tag:paper"
    job = JobSpec(workload="decode", params={"seed": 1}, gpu="cpu")

    def submit_and_claim() -> None:
        run_id = runs.insert_run(db, spec=job, name="a job")
        queue.front_of_queue(db, run_id)
        queue.claim_run(db, run_id, worker_id="w1", gpu_id=None, task_id=None)
        handover.start_running(db, run_id, 1, {})

    return {
        "runs: first page": lambda: runs.list_runs(db, limit=100),
        "runs: last page": lambda: runs.list_runs(db, limit=100, offset=len(run_ids) - 100),
        "runs: by latency": lambda: runs.list_runs(db, sort="latency_ms", limit=100),
        "runs: filtered": lambda: runs.list_runs(db, wide, limit=100),
        "runs: count, filtered": lambda: runs.count_runs(db, wide),
        "runs: free text": lambda: runs.list_runs(db, "decode 77", limit=100),
        "runs: unknown field check": lambda: runs.unknown_fields(db, "batch:4"),
        "queue": lambda: status.queue(db),
        "gpus": lambda: status.gpus(db),
        "baselines: newest": lambda: status.newest_against_baselines(db),
        "submit, claim, start one": submit_and_claim,
        "delete one": lambda: runs.delete_runs(db, [run_ids.pop()]),
    }


def measure(num_runs: int) -> dict[str, float]:
    """Return milliseconds of each call, and the size of the database, at one number of runs."""
    folder = Path(tempfile.mkdtemp())
    try:
        data = data_dir(folder)
        run_ids = fill(data, num_runs)
        result: dict[str, float] = {}
        with opened(data.db_path) as db:
            for run_id in run_ids[:3]:
                runs.pin(db, run_id)
            for name, call in calls(db, run_ids).items():
                times = []
                for _ in range(REPEATS):
                    begin = time.process_time()
                    call()
                    times.append((time.process_time() - begin) * 1e3)
                result[name] = statistics.median(times)
        result["database, MiB"] = data.db_path.stat().st_size / 2**20
        return result
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("runs", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    sizes = parser.parse_args().runs
    by_size = {size: measure(size) for size in sizes}
    print(f"{'CPU ms at ... runs':28}" + "".join(f"{size:>10}" for size in sizes))
    for name in by_size[sizes[0]]:
        print(f"{name:28}" + "".join(f"{by_size[size][name]:10.1f}" for size in sizes))
    print(json.dumps({"bench": "scale", "median_cpu_ms": by_size}))


if __name__ == "__main__":
    main()
