"""Submit and wait for the end. Without a running dashboard, API and worker are started for it."""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.environments import has_gpu
from app.stack import Stack, StackOptions, free_port, running_stack
from app.submit import (
    ANY_CPU,
    CPU,
    Target,
    default_profilers,
    plan_jobs,
    resolve_gpus,
    submit_jobs,
    untold_commands,
)
from core.config import DataDir, has_own_broker
from core.errors import AppError, RunFailedError, UserError
from core.spec import JobSpec
from core.states import FINAL
from db import Database
from db.connection import opened
from db.devices import devices, nobody_serves
from db.queue import request_cancel
from db.runs import list_rows
from workloads.allowed import COMMANDS

POLL_S = 0.3
REGISTER_TIMEOUT_S = 120.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for on the command line."""

    workload: str
    values: Mapping[str, Sequence[Any]]
    gpu: str | None
    profilers: Sequence[str] | None
    "None: what the worker has."
    repeats: int
    name: str | None
    tools: Mapping[str, Any] = field(default_factory=dict)
    "`ncu_set` and `keep_reports` of the jobs."

    def check(self) -> None:
        """Raise UserError for a wrong workload, name or value, before a GPU is looked for."""
        self._plan([ANY_CPU], self.profilers or ())

    def _plan(self, targets: Sequence[Target], passes: Sequence[str]) -> tuple[JobSpec, ...]:
        return plan_jobs(self.workload, self.values, targets, passes, self.repeats, self.tools)

    def jobs(self, db: Database, targets: Sequence[Target]) -> tuple[JobSpec, ...]:
        """Return the jobs on these GPUs; UserError for a wrong value."""
        planned: list[JobSpec] = []
        for target in targets:
            passes = default_profilers(db, target) if self.profilers is None else self.profilers
            planned += self._plan([target], passes)
        return tuple(planned)


def has_stack(data: DataDir) -> bool:
    """Say whether workers and ingest are started elsewhere: by `up`, or beside an own broker."""
    return has_own_broker() or running_stack(data) is not None


def submit_only(data: DataDir, wanted: Wanted, tell: Say) -> dict[str, Any]:
    """Queue the jobs and return the document of `submit --json`."""
    wanted.check()
    with opened(data.ensure().db_path) as db:
        jobs = wanted.jobs(db, resolve_gpus(db, wanted.gpu))
        submitted = submit_jobs(db, data, jobs, wanted.name)
        rows = list_rows(db, _filter(submitted.run_ids), limit=len(submitted.run_ids))
        lonely = nobody_serves(db, rows)
        untold = untold_commands(db, jobs)
    for model in untold:
        tell(
            f"no worker on {model} has said which own programs its host allows: the job is refused"
            f" there unless its operator sets {COMMANDS}"
        )
    if not has_stack(data):
        tell("queued; nothing runs yet: start `warpboard up`, or submit with --wait")
    else:
        for name in dict.fromkeys(lonely.values()):
            tell(f"queued; no worker serves {name} now: its jobs wait until one starts")
    return _document(data, submitted.sweep_id, submitted.run_ids)


def submit_and_wait(data: DataDir, wanted: Wanted, tell: Say) -> dict[str, Any]:
    """Queue the jobs, wait until all have ended, and return the document of `submit --json`."""
    wanted.check()
    data.ensure()
    stop = threading.Event()
    previous = {n: signal.signal(n, lambda *_: stop.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    stack = None if has_stack(data) else _own_stack(data, wanted, tell)
    try:
        if stack is not None:
            stack.start()
        targets = _targets(data, wanted, stack, stop, tell)
        with opened(data.db_path) as db:
            submitted = submit_jobs(db, data, wanted.jobs(db, targets), wanted.name)
        _wait(data, submitted.run_ids, stack, stop, tell)
        return _document(data, submitted.sweep_id, submitted.run_ids)
    finally:
        if stack is not None:
            stack.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _own_stack(data: DataDir, wanted: Wanted, tell: Say) -> Stack:
    is_cpu_only = (wanted.gpu or "").lower() == CPU or not has_gpu()
    options = StackOptions(
        port=free_port(), has_pages=False, has_demo=False, worker_gpu=CPU if is_cpu_only else "all"
    )
    return Stack(data, options, tell)


def _targets(
    data: DataDir, wanted: Wanted, stack: Stack | None, stop: threading.Event, tell: Say
) -> tuple[Target, ...]:
    """Return the GPUs to run on, waiting for the own worker to say what it has."""
    if stack is None or (wanted.gpu or "").lower() == CPU:
        with opened(data.db_path) as db:
            return resolve_gpus(db, wanted.gpu)
    _until_registered(data, stack, stop, tell)
    with opened(data.db_path) as db:
        return resolve_gpus(db, wanted.gpu)


def _until_registered(data: DataDir, stack: Stack, stop: threading.Event, tell: Say) -> None:
    shown = ""
    running_since_s: float | None = None
    while not stop.is_set():
        stack.step()
        shown = _tell_worker(stack, shown, tell)
        with opened(data.db_path) as db:
            if any(device.is_online for device in devices(db)):
                return
        if stack.is_worker_running:
            running_since_s = running_since_s or time.monotonic()
            if time.monotonic() - running_since_s > REGISTER_TIMEOUT_S:
                raise AppError(f"the worker does not register; see {data.logs / 'worker.log'}")
        stop.wait(POLL_S)
    raise KeyboardInterrupt


def _wait(
    data: DataDir,
    run_ids: Sequence[str],
    stack: Stack | None,
    stop: threading.Event,
    tell: Say,
) -> None:
    shown: dict[str, str] = {}
    worker = ""
    final = {str(s) for s in FINAL}
    while True:
        with opened(data.db_path) as db:
            rows = list_rows(db, _filter(run_ids), limit=len(run_ids))
            lonely = nobody_serves(db, rows)
        for row in rows:
            text = _progress(row, lonely.get(row["id"]))
            if shown.get(row["id"]) != text:
                shown[row["id"]] = text
                tell(f"{row['id']} {row['name']}: {text}")
        if len(rows) < len(run_ids):
            raise UserError("a run was deleted while it was waited for")
        if {row["status"] for row in rows} <= final:
            return
        if stack is not None:
            stack.step()
            worker = _tell_worker(stack, worker, tell)
        if stop.wait(POLL_S):
            if stack is not None:
                _cancel(data, run_ids)
            else:
                tell("the jobs go on: `warpboard cancel RUN` ends one")
            raise KeyboardInterrupt


def _tell_worker(stack: Stack, shown: str, tell: Say) -> str:
    """Print what the worker's environment is at, when it changed; RunFailedError if it failed."""
    note = stack.worker_note
    if note.startswith("failed"):
        raise RunFailedError(f"no worker: {note.removeprefix('failed: ')}")
    if note != shown and note not in ("", "running"):
        tell(note)
    return note


def _progress(row: Mapping[str, Any], lonely: str | None) -> str:
    progress = row["progress"]
    stage = " ".join(str(progress[k]) for k in ("pass", "stage") if progress.get(k))
    counts = ""
    if progress.get("done") is not None and progress.get("total"):
        counts = f" {progress['done']}/{progress['total']}"
    error = f": {row['error']}" if row.get("error") else ""
    wait = f"; no worker serves {lonely} now" if lonely else ""
    return f"{row['status']}{' ' + stage if stage else ''}{counts}{error}{wait}"


def _cancel(data: DataDir, run_ids: Sequence[str]) -> None:
    with opened(data.db_path) as db:
        for run_id in run_ids:
            try:
                request_cancel(db, run_id)
            except UserError:
                continue  # it has ended


def _filter(run_ids: Sequence[str]) -> str:
    return f"id:{','.join(run_ids)}"


def _document(data: DataDir, sweep_id: str, run_ids: Sequence[str]) -> dict[str, Any]:
    shown = (
        "name",
        "status",
        "workload",
        "params",
        "gpu_model",
        "device_id",
        "latency_ms",
        "error",
    )
    with opened(data.db_path) as db:
        listed = list_rows(db, _filter(run_ids), limit=len(run_ids))
    by_id = {row["id"]: row for row in listed}
    rows = [
        {"run_id": run_id, "id": run_id}
        | {k: by_id[run_id][k] for k in shown if k in by_id[run_id]}
        for run_id in run_ids
    ]
    return {"sweep_id": sweep_id, "runs": rows}
