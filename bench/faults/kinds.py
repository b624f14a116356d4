"""The faults. Each returns whether it could be done; the stage is healed afterwards."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable

from app.api.state import EMBEDDED_SILENCE_S
from bench.faults.cast import below, kill_pids
from bench.faults.stage import Disk, Stage
from core.queues import INGEST_QUEUE, INGEST_RUN_TASK, RUN_JOB_TASK
from db.connection import opened

UPLOAD_WAIT_S = 4.0
CLAIM_WAIT_S = 6.0
Fault = Callable[[Stage, random.Random], bool]


def _workers(stage: Stage) -> list[str]:
    return [name for name in stage.actors if name.startswith("worker")]


def kill_worker(stage: Stage, rng: random.Random) -> bool:
    """Kill the worker's main process: everything below it must exit without help."""
    return stage.actors[rng.choice(_workers(stage))].kill()


def kill_celery(stage: Stage, rng: random.Random) -> bool:
    """Kill the Celery process of a worker, or its pool process with the job."""
    pid = stage.actors[rng.choice(_workers(stage))].pid
    pids = below(pid, _is_celery)
    return kill_pids([rng.choice(pids)]) if pids else False


def kill_claimer(stage: Stage, rng: random.Random) -> bool:
    """Kill a worker's pool process between its claim and the first word about the run."""
    owners = {(d.path / "worker-cpu.id").read_text().strip(): i for i, d in _settled(stage)}
    until_s = time.monotonic() + CLAIM_WAIT_S
    with opened(stage.data.db_path) as db:
        while time.monotonic() < until_s:
            query = "SELECT worker_id FROM runs WHERE status = 'claimed'"
            numbers = [owners[w] for (w,) in db.execute(query) if w in owners]
            if numbers:
                pid = stage.actors[f"worker{numbers[0]}"].pid
                return kill_pids(below(pid, _is_celery))
            time.sleep(0.005)
    return False


def _settled(stage: Stage) -> list[tuple[int, Disk]]:
    """Return the workers that have an id, with their numbers."""
    disks = enumerate(stage.worker_disks)
    return [(i, disk) for i, disk in disks if (disk.path / "worker-cpu.id").exists()]


def _is_celery(text: str) -> bool:
    return "celery" in text and "supervisor.py" not in text


def freeze_worker(stage: Stage, rng: random.Random) -> bool:
    """Stop a worker with all below it for longer than its silence is borne, then let it go on."""
    pid = stage.actors[rng.choice(_workers(stage))].pid
    return pid is not None and _freeze(stage, [pid, *below(pid, lambda _: True)], rng)


def freeze_dashboard(stage: Stage, rng: random.Random) -> bool:
    """Stop the dashboard for as long: it must not take its own silence for the workers'."""
    pid = stage.actors["dashboard"].pid
    return pid is not None and _freeze(stage, [pid], rng)


def _freeze(stage: Stage, pids: list[int], rng: random.Random) -> bool:
    _signal(pids, signal.SIGSTOP)
    try:
        stage.rest(EMBEDDED_SILENCE_S + rng.uniform(0, 6))
    finally:
        _signal(pids, signal.SIGCONT)
    return True


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def hold_database(stage: Stage, rng: random.Random) -> bool:
    """Hold the database's write lock, as a backup or a person with a shell may."""
    with opened(stage.data.db_path) as db:
        db.conn.execute("BEGIN IMMEDIATE")
        stage.rest(rng.uniform(5, 22))
        db.conn.execute("ROLLBACK")
    return True


def kill_workload(stage: Stage, rng: random.Random) -> bool:
    """Kill the program that a job runs."""
    pids = [a.pid for name, a in stage.actors.items() if name.startswith("worker")]
    workloads = [p for pid in pids for p in below(pid, _is_workload)]
    return kill_pids([rng.choice(workloads)]) if workloads else False


def _is_workload(text: str) -> bool:
    return "faults/program.py -m workloads" in text and "supervisor.py" not in text


def kill_supervisor(stage: Stage, rng: random.Random) -> bool:
    """Kill the process that watches over a job's tree."""
    pids = [a.pid for name, a in stage.actors.items() if name.startswith("worker")]
    supervisors = [p for pid in pids for p in below(pid, lambda t: "supervisor.py" in t)]
    return kill_pids([rng.choice(supervisors)]) if supervisors else False


def kill_dashboard(stage: Stage, rng: random.Random) -> bool:
    return stage.actors["dashboard"].kill()


def kill_dashboard_in_upload(stage: Stage, rng: random.Random) -> bool:
    """Kill the dashboard while a capture is half there."""
    until_s = time.monotonic() + UPLOAD_WAIT_S
    while time.monotonic() < until_s:
        if any(p.stat().st_size > 0 for p in stage.data.uploads.glob("*/*.part")):
            return stage.actors["dashboard"].kill()
        stage.rest(0.02)
    return False


def kill_ingest(stage: Stage, rng: random.Random) -> bool:
    return stage.actors["ingest"].kill()


def kill_ingest_reader(stage: Stage, rng: random.Random) -> bool:
    """Kill the process that reads captures."""
    return kill_pids(below(stage.actors["ingest"].pid, lambda text: "celery" in text))


def kill_redis(stage: Stage, rng: random.Random) -> bool:
    return stage.actors["redis"].kill()


def forget_redis(stage: Stage, rng: random.Random) -> bool:
    """Kill Redis and take its append-only file away: every message is lost."""
    if not stage.actors["redis"].kill():
        return False
    shutil.rmtree(stage.root / "redis" / "appendonlydir", ignore_errors=True)
    return True


def fill_worker_disk(stage: Stage, rng: random.Random) -> bool:
    disk = rng.choice(stage.worker_disks)
    if not disk.is_own:
        return False
    disk.fill(rng.choice([0, 200_000]))
    stage.rest(rng.uniform(2, 5))
    return True


def fill_dashboard_disk(stage: Stage, rng: random.Random) -> bool:
    """Fill the disk of database and captures: to the last byte, or to what is kept free."""
    if not stage.disk.is_own:
        return False
    stage.disk.fill(rng.choice([0, 64 * 1024, 200 * 2**20]))
    stage.rest(rng.uniform(2, 5))
    return True


def refuse_connections(stage: Stage, rng: random.Random) -> bool:
    """Break every connection of one worker to the dashboard and refuse new ones."""
    stage.proxy.mode = "refuse"
    stage.proxy.reset()
    stage.rest(rng.uniform(1, 5))
    return True


def reset_connections(stage: Stage, rng: random.Random) -> bool:
    """Break them once, in the middle of a request or upload."""
    stage.proxy.reset()
    return True


def swallow_packets(stage: Stage, rng: random.Random) -> bool:
    """Answer nothing to one worker for a while, without breaking its connections."""
    stage.proxy.mode = "swallow"
    stage.rest(rng.uniform(2, 6))
    return True


def pull_cable(stage: Stage, rng: random.Random) -> bool:
    """Cut the far host off from dashboard and Redis."""
    if stage.far is None:
        return False
    stage.far.cut()
    stage.rest(rng.uniform(2, 15))
    return True


def deliver_twice(stage: Stage, rng: random.Random) -> bool:
    """Send the message of any run, ended ones too, again and again."""
    if not stage.run_ids:
        return False
    return all(
        stage.send_again(RUN_JOB_TASK, rng.choice(stage.run_ids[-12:]), "cpu") for _ in range(3)
    )


def ingest_twice(stage: Stage, rng: random.Random) -> bool:
    """Tell ingest again of runs, whether it reads them, has read them, or never will."""
    if not stage.run_ids:
        return False
    with opened(stage.data.db_path) as db:
        now = [r[0] for r in db.execute("SELECT id FROM runs WHERE status = 'ingesting'")]
    chosen = [*now, rng.choice(stage.run_ids)]
    return all(stage.send_again(INGEST_RUN_TASK, run_id, INGEST_QUEUE) for run_id in chosen)


def jump_clock(stage: Stage, rng: random.Random) -> bool:
    """Let the wall clock jump by up to two days, forwards or backwards."""
    if not stage.has_clock:
        return False
    stage.set_clock(rng.choice([-1, 1]) * rng.choice([30, 3_600, 172_800]))
    stage.rest(rng.uniform(1, 3))
    return True


KINDS: dict[str, tuple[Fault, int]] = {
    "kill -9 worker": (kill_worker, 10),
    "kill -9 Celery process of a worker": (kill_celery, 12),
    "kill -9 worker that has just claimed": (kill_claimer, 12),
    "worker frozen, then going on": (freeze_worker, 10),
    "kill -9 workload": (kill_workload, 12),
    "kill -9 supervisor of a workload": (kill_supervisor, 6),
    "kill -9 dashboard": (kill_dashboard, 10),
    "kill -9 dashboard during an upload": (kill_dashboard_in_upload, 14),
    "dashboard frozen, then going on": (freeze_dashboard, 10),
    "database held by another program": (hold_database, 10),
    "kill -9 ingest": (kill_ingest, 8),
    "kill -9 ingest's reader": (kill_ingest_reader, 8),
    "kill -9 Redis": (kill_redis, 14),
    "Redis back without its append-only file": (forget_redis, 10),
    "worker's disk full": (fill_worker_disk, 10),
    "dashboard's disk full": (fill_dashboard_disk, 10),
    "connections refused": (refuse_connections, 12),
    "connections reset": (reset_connections, 14),
    "packets swallowed": (swallow_packets, 10),
    "network cut (namespace)": (pull_cable, 14),
    "job message delivered again": (deliver_twice, 16),
    "ingest message delivered again": (ingest_twice, 12),
    "clock jump": (jump_clock, 16),
}
"""What can go wrong, and how often relative to the others."""
