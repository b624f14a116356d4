"""The Celery task of a GPU worker. Thin: claim, execute, deliver; a pump sends events beside.

Imported by `celery -A worker.tasks worker`, started by `worker.main`, which sets the environment.
"""

import ctypes
import logging
import os
import secrets
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from celery import Task
from celery.signals import worker_process_init

from core.config import broker_url, data_dir
from core.errors import UserError
from core.queues import RUN_JOB_TASK
from core.spec import JobSpec
from core.supervisor import PR_SET_PDEATHSIG
from worker import spool
from worker.celery_app import make_app
from worker.client import Claim, DashboardAway, DashboardClient, Refused
from worker.execute import JobLimits, execute, write_json
from worker.gpu_locks import HeldGpus
from worker.joblog import utc_now
from worker.passes import GpuTarget
from worker.settings import WorkerSettings, load_settings

INTERVAL_S = 0.4
MAX_BATCH = 200
MAX_MESSAGE_CHARS = 4000
MAX_WAITING = 5000
"""Older log lines are dropped beyond this: log.txt has them all."""


class EventPump:
    """A thread that posts what is put into it, and asks about cancel even when nothing is."""

    def __init__(self, client: DashboardClient, run_id: str, attempt: int) -> None:
        self._client = client
        self._run_id = run_id
        self._attempt = attempt
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=MAX_WAITING)
        self._progress: Mapping[str, Any] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, event: Mapping[str, Any]) -> None:
        """Take one event; never waits for the network."""
        with self._lock:
            if event["kind"] == "progress":
                self._progress = event["progress"]
            else:
                message = str(event["message"])[:MAX_MESSAGE_CHARS]
                self._waiting.append({**event, "message": message})

    def is_cancelled(self) -> bool:
        return self._cancel.is_set()

    def _loop(self) -> None:
        failures = 0
        while not self._stop.wait(min(INTERVAL_S * 2**failures, 10.0)):
            failures = 0 if self._flush() else min(failures + 1, 6)

    def _flush(self) -> bool:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            progress = self._progress
        try:
            if self._client.post_events(self._run_id, self._attempt, batch, progress):
                self._cancel.set()
            return True
        except DashboardAway:
            with self._lock:
                self._waiting.extendleft(reversed(batch))
            return False
        except Refused as refusal:
            # The run is no longer ours: deleted, given up, or taken by another attempt.
            if refusal.status in (404, 409, 410):
                self._cancel.set()
            return True

    def stop(self, limit_s: float = 5.0) -> None:
        """Post what is left if the dashboard answers, and end the thread."""
        self._stop.set()
        self._thread.join(timeout=limit_s)
        deadline = time.monotonic() + limit_s
        while self._waiting and time.monotonic() < deadline:
            if not self._flush():
                return


LOG = logging.getLogger("warpboard.tasks")
logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log every heartbeat of a job
NO_ROOM_S = 3.0
SETTINGS = load_settings()
app = make_app(
    "warpboard.worker",
    SETTINGS.broker if SETTINGS else broker_url(data_dir()),
    Path(SETTINGS.data_root) if SETTINGS else data_dir().root,
)


@worker_process_init.connect
def _die_with_the_worker(**_: Any) -> None:
    """A pool process whose worker was killed would go on with a job that is no longer claimed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@app.task(name=RUN_JOB_TASK, bind=True)
def run_job(self: Task, run_id: str) -> None:
    """Execute one run, if it is still queued, and deliver its bundle or leave it in the spool."""
    assert SETTINGS is not None, "started by hand: use python -m worker"
    client = DashboardClient(SETTINGS.dashboard_url, SETTINGS.load_token())
    gpus = HeldGpus(SETTINGS.locks, tuple(SETTINGS.host_gpus), SETTINGS.lock_name)
    try:
        # Before the claim: a job over several GPUs may hold this one, and no run waits for it here.
        gpus.take_own(lambda: False)
        # The answer of the database decides, not the message: it may be delivered twice.
        claim = claim_patiently(client, run_id, SETTINGS, str(self.request.id))
        if claim is None:
            LOG.info("run %s: not queued any more", run_id)
            return
        try:
            run_claimed(client, claim, SETTINGS, gpus)
        except OSError as error:
            fail_without_bundle(client, claim, error, SETTINGS)
    finally:
        gpus.close()
        client.close()


def claim_patiently(
    client: DashboardClient, run_id: str, settings: WorkerSettings, task_id: str
) -> Claim | None:
    """Claim, waiting for a dashboard that is away, or for room: the message would be lost."""
    body = {
        "worker_id": settings.worker_id,
        "gpu": {**settings.target.facts, "model": settings.model},
        "task_id": task_id,
        # This try alone: when its answer is lost on the way, asking again gives the same run.
        "try_id": f"{task_id}.{secrets.token_hex(4)}",
        "any_run": True,
    }
    while True:
        if not spool.has_room(settings.spool):
            LOG.warning("run %s: no room for a bundle in %s; waiting", run_id, settings.spool)
            time.sleep(NO_ROOM_S)
            continue
        try:
            return client.claim(run_id, body)
        except DashboardAway as error:
            LOG.warning("run %s: waiting for the dashboard: %s", run_id, error)


def run_claimed(
    client: DashboardClient, claim: Claim, settings: WorkerSettings, gpus: HeldGpus
) -> None:
    """Execute a claimed run and deliver its bundle, or leave it sealed in the spool."""
    run_id = claim.run_id
    folder = spool.open_bundle(settings.spool, run_id)
    try:
        pump = EventPump(client, run_id, claim.attempt)
        pump.start()
        try:
            manifest = _execute(claim, folder, pump, settings, gpus)
            write_json(folder / "manifest.json", manifest | _ours(claim, settings))
            spool.seal(folder, run_id)
        finally:
            pump.stop()
        spool.deliver(folder, client)
    except DashboardAway as error:
        LOG.warning("run %s: kept in the spool: %s", run_id, error)
    finally:
        spool.let_go(folder)


def fail_without_bundle(
    client: DashboardClient, claim: Claim, error: OSError, settings: WorkerSettings
) -> None:
    """Hand in why a run could not leave a bundle here: the disk is full, or not writable."""
    LOG.error("run %s: %s", claim.run_id, error)
    manifest = failed_manifest(claim, f"the worker's disk: {error.strerror or error}", settings)
    try:
        client.finish(claim.run_id, manifest | _ours(claim, settings))
    except (DashboardAway, Refused) as refusal:  # the next heartbeat gives the run up
        LOG.warning("run %s: %s", claim.run_id, refusal)


def _ours(claim: Claim, settings: WorkerSettings) -> dict[str, Any]:
    return {"attempt": claim.attempt, "worker_id": settings.worker_id}


def _execute(
    claim: Claim, folder: Path, pump: EventPump, settings: WorkerSettings, gpus: HeldGpus
) -> dict[str, Any]:
    """Return the manifest; what goes wrong outside the job's own processes fails the run."""

    def should_cancel() -> bool:
        return pump.is_cancelled() or spool.is_cancel_asked(folder)

    try:
        spec = JobSpec.from_dict(claim.spec)
        target = _gathered(spec, settings, gpus, pump, should_cancel)
        return execute(
            spec,
            folder,
            on_event=pump.put,
            should_cancel=should_cancel,
            limits=JobLimits.from_environment(),
            gpu=target,
            run_id=claim.run_id,
            keep_private=os.environ.get("WARPBOARD_KEEP_PRIVATE") == "1",
        )
    except (UserError, OSError) as error:
        LOG.error("run %s: %s", claim.run_id, traceback.format_exc())
        return failed_manifest(claim, str(error), settings)
    except Exception as error:  # top-level handler: reported with the run, traceback in the log
        LOG.exception("run %s", claim.run_id)
        pump.put({"at": utc_now(), "kind": "log", "message": traceback.format_exc()})
        return failed_manifest(claim, f"{type(error).__name__}: {error}", settings)


def _gathered(
    spec: JobSpec,
    settings: WorkerSettings,
    gpus: HeldGpus,
    pump: EventPump,
    should_cancel: Callable[[], bool],
) -> GpuTarget:
    """Return where the job runs, waiting until all its GPUs are free. UserError for too few."""
    if spec.num_gpus == 1 or not settings.host_gpus:
        return settings.target
    if spec.num_gpus > len(settings.host_gpus):
        here = f"this host has {len(settings.host_gpus)} of {settings.model}"
        raise UserError(f"gpus: {spec.num_gpus} wanted, {here}")
    message = f"waiting until {spec.num_gpus} GPUs of this host are free"
    pump.put({"at": utc_now(), "kind": "log", "message": message})
    names = gpus.take_several(spec.num_gpus, should_cancel)
    # Cancelled meanwhile: the first pass ends at once, and the manifest says so.
    return settings.target if names is None else settings.group(names)


def failed_manifest(claim: Claim, error: str, settings: WorkerSettings) -> dict[str, Any]:
    """Return the manifest of a job that could not be started on this host."""
    now = utc_now()
    return {
        "schema_version": 1,
        "run_id": claim.run_id,
        "job": dict(claim.spec),
        "status": "failed",
        "error": error,
        "oom": None,
        "started_at": now,
        "finished_at": now,
        "gpu": {**settings.target.facts, "model": settings.model},
        "environment": {},
        "passes": [],
        "warnings": [],
        "log": None,
    }
