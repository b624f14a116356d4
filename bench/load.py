"""Many workers and many readers at once: `python -m bench.load [--runs 10000] [--seconds 60]`.

A real dashboard (pages and API, one process) over a database with many runs. 16 workers post 20
events a second each, as `worker.tasks` does: 0.4 s after the last answer, all that wait, at most
200. A heartbeat goes out every 3 s. 30
sessions read Runs and a Run in turn, a second of thought between: through the API, and as page data
(the same `db` functions that the pages call, on connections of their own). Prints a table and one
JSON line; exit code 1 for a lock, a server error, or memory that grows by more than a tenth.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from app.api.auth import ensure_token
from app.demo.load import load_demo
from bench.faults.cast import command_line
from bench.scale import fill
from bench.serving import served
from core.config import DataDir, data_dir
from core.spec import JobSpec
from core.supervisor import descendants
from db.connection import connect, opened
from db.fetch import gpu_facts, run_view
from db.runs import count_runs, insert_run, list_runs
from worker.client import KEEP_ALIVE_S
from worker.tasks import MAX_BATCH

NUM_WORKERS, EVENTS_PER_S, BATCH_S, HEARTBEAT_S = 16, 20, 0.4, 3.0
NUM_SESSIONS, THINK_S = 30, 1.0
FILTERS = ("", "compile:none", "gpu:4090 latency<3", "tag:paper")
MAX_GROWTH_FRAC = 0.10


class Meter:
    """Times by name, and what went wrong."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = {}
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        try:
            return call()
        except Exception as error:  # every fault is counted, whatever it is
            with self._lock:
                self.faults.append(f"{name}: {type(error).__name__}: {error}")
            return None
        finally:
            with self._lock:
                self.times_ms.setdefault(name, []).append((time.perf_counter() - begin) * 1e3)

    def row(self, name: str) -> dict[str, float]:
        times = sorted(self.times_ms[name])
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        return {"n": len(times), "p50_ms": cuts[49], "p95_ms": cuts[94], "max_ms": times[-1]}


class Load:
    """The clients of one run of the benchmark."""

    def __init__(self, data: DataDir, url: str, run_ids: list[str], demo_ids: list[str]) -> None:
        self.meter = Meter()
        self.stop = threading.Event()
        self.num_events = 0
        self._data = data
        self._url = url + "/api/v1"
        self._headers = {"Authorization": f"Bearer {ensure_token(data)}"}
        self._run_ids = run_ids
        self._demo_ids = demo_ids

    def _client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self._url,
            headers=self._headers,
            timeout=60,
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
        )

    def work(self, number: int) -> None:
        """Be one worker with one long job."""
        worker_id = f"load{number}"
        with opened(self._data.db_path) as db:
            job = JobSpec(workload="decode", params={"number": number}, gpu="cpu")
            run_id = insert_run(db, spec=job, name=f"load {number}")
        body = {"worker_id": worker_id, "version": "0.1.0", "queues": ["cpu"], "gpus": []}
        beat = {"running": [run_id]}
        with self._client() as client:
            self._post(client, "register", "/workers", body)
            self._post(client, "claim", f"/runs/{run_id}/claim", {"worker_id": worker_id})
            began_s = beaten_s = time.monotonic()
            num_sent = 0
            while not self.stop.wait(BATCH_S):
                waiting = int((time.monotonic() - began_s) * EVENTS_PER_S) - num_sent
                batch = _batch(num_sent, min(waiting, MAX_BATCH))
                self._post(client, "events", f"/runs/{run_id}/events", batch)
                num_sent += len(batch["events"])
                self.num_events += len(batch["events"])
                if time.monotonic() - beaten_s > HEARTBEAT_S:
                    beaten_s = time.monotonic()
                    self._post(client, "heartbeat", f"/workers/{worker_id}/heartbeat", beat)

    def _post(self, client: httpx.Client, name: str, where: str, body: dict[str, Any]) -> None:
        self.meter.time(f"API {name}", lambda: client.post(where, json=body).raise_for_status())

    def read(self, number: int) -> None:
        """Be one person who looks at Runs, then at a run, again and again."""
        rng = random.Random(number)
        db = connect(self._data.db_path)
        with self._client() as client:
            while not self.stop.wait(rng.uniform(0, 2 * THINK_S)):
                query = rng.choice(FILTERS)
                shown = {"filter": query, "limit": 50, "offset": rng.randrange(20) * 50}
                run_id = rng.choice(self._demo_ids if rng.random() < 0.5 else self._run_ids)
                self._get(client, "runs", "/runs", shown)
                self.stop.wait(rng.uniform(0, 2 * THINK_S))
                self._get(client, "run", f"/runs/{run_id}", {})
                self.stop.wait(rng.uniform(0, 2 * THINK_S))
                self.meter.time("page data Runs", partial(self._runs_page, db, query))
                self.stop.wait(rng.uniform(0, 2 * THINK_S))
                self.meter.time("page data Run", partial(self._run_page, db, run_id))
        db.close()

    def _get(self, client: httpx.Client, name: str, where: str, query: dict[str, Any]) -> None:
        self.meter.time(f"API {name}", lambda: client.get(where, params=query).raise_for_status())

    def _runs_page(self, db: Any, query: str) -> None:
        list_runs(db, query, limit=100)
        count_runs(db, query)

    def _run_page(self, db: Any, run_id: str) -> None:
        run_view(db, self._data, run_id)
        gpu_facts(db, run_id)


def _batch(first: int, count: int) -> dict[str, Any]:
    events = [{"kind": "log", "message": f"line {first + i}"} for i in range(count)]
    progress = {"stage": "measure", "done": first, "total": 10**6}
    return {"attempt": 1, "events": events, "progress": progress}


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_load(load: Load, pid: int, seconds: float) -> list[float]:
    """Run all clients for a while; return the server's memory, sampled each second."""
    clients = [threading.Thread(target=load.work, args=(i,)) for i in range(NUM_WORKERS)]
    clients += [threading.Thread(target=load.read, args=(i,)) for i in range(NUM_SESSIONS)]
    for client in clients:
        client.start()
    memory = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(1)
        memory.append(rss_mib(pid))
    load.stop.set()
    for client in clients:
        client.join()
    return memory


def measure(num_runs: int, seconds: float) -> dict[str, Any]:
    """Return the figures of one run of the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        data = data_dir(folder).ensure()
        demo_ids = [r.run_id for r in load_demo(data, lambda name: None)]
        run_ids = fill(data, num_runs - len(demo_ids))
        log = data.root / "serve.log"
        with served(data.root, log) as (url, _):
            pid = next(p for p in descendants(os.getpid()) if "streamlit" in command_line(p))
            load = Load(data, url, run_ids, demo_ids)
            used_s, begin_s = cpu_s(pid), time.monotonic()
            memory = run_load(load, pid, seconds)
            cores = (cpu_s(pid) - used_s) / (time.monotonic() - begin_s)
        text = log.read_text(errors="replace") + "".join(load.meter.faults)
    # The first third fills caches and thread pools.
    early = statistics.median(memory[len(memory) // 3 : 2 * len(memory) // 3])
    late = statistics.median(memory[2 * len(memory) // 3 :])
    return {
        "bench": "load",
        "num_runs": num_runs,
        "seconds": seconds,
        "events_per_s": load.num_events / seconds,
        "calls": {name: load.meter.row(name) for name in sorted(load.meter.times_ms)},
        "server_cores": cores,
        "loadavg": os.getloadavg()[0],
        "num_faults": len(load.meter.faults),
        "first_faults": load.meter.faults[:3],
        "num_locked": text.count("database is locked"),
        "memory_mib": {"middle third": early, "last third": late, "growth_frac": late / early - 1},
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    result = measure(options.runs, options.seconds)
    print(f"{'call':20}{'n':>7}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}")
    for name, row in result["calls"].items():
        times = "".join(f"{row[k]:9.1f}" for k in ("p50_ms", "p95_ms", "max_ms"))
        print(f"{name:20}{row['n']:7}{times}")
    memory = result["memory_mib"]
    print(f"events a second: {result['events_per_s']:.0f} of {NUM_WORKERS * EVENTS_PER_S}")
    print(f"dashboard: {result['server_cores']:.2f} of a core; load {result['loadavg']:.0f}")
    print(f"memory: {memory['middle third']:.0f} MiB, then {memory['last third']:.0f} MiB")
    print(f"database is locked: {result['num_locked']}; other faults: {result['num_faults']}")
    print(json.dumps(result))
    is_steady = memory["growth_frac"] <= MAX_GROWTH_FRAC
    return 0 if is_steady and not result["num_locked"] and not result["num_faults"] else 1


if __name__ == "__main__":
    sys.exit(main())
