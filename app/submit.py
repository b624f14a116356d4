"""Put jobs into the queue: check the params, expand the sweep, insert runs, send messages."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.imports import run_name
from core.config import DataDir, broker_url
from core.errors import AppError, UserError
from core.gpus import match_gpu_name
from core.queues import INGEST_QUEUE, INGEST_RUN_TASK, RUN_JOB_TASK, job_queue
from core.spec import MAX_SWEEP_JOBS, JobSpec, expand_sweep, normalise_profilers
from db import Database
from db import runs as db_runs
from db.devices import Device, devices, names_device, resolve_device
from db.queue import most_gpus_of_a_host, retry, waiting_place
from db.status import worker_info
from workloads.allowed import COMMANDS, check_entries
from workloads.spec import CUSTOM

CPU = "cpu"
OWN_PROGRAM = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where jobs shall run."""

    model: str
    "A registered GPU model, or `cpu`."
    device: str | None = None
    "One physical GPU of it (`gpus.id`); None is any."


ANY_CPU = Target(model=CPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A sweep that is in the queue."""

    sweep_id: str
    run_ids: tuple[str, ...]


def plan_jobs(
    workload: str,
    values: Mapping[str, Sequence[Any]],
    targets: Sequence[Target],
    profilers: Sequence[str] = (),
    repeats: int = 1,
    tools: Mapping[str, Any] | None = None,
) -> tuple[JobSpec, ...]:
    """Return the jobs of a sweep, GPU by GPU; UserError names a wrong field, value, or the limit.

    `values` has the choices of each param that is not left at its default, `tools` what the
    profilers shall do otherwise than by default: `ncu_set`, `keep_reports`.
    """
    from workloads.registry import parse_params

    passes = normalise_profilers(profilers)
    combinations = expand_sweep({name: tuple(options) for name, options in values.items()})
    num_jobs = len(combinations) * len(targets)
    if num_jobs > MAX_SWEEP_JOBS:
        raise UserError(f"sweep: {num_jobs} jobs are more than {MAX_SWEEP_JOBS}; narrow one field")
    jobs = (
        JobSpec(
            workload=workload,
            params=parse_params(workload, combination, gpu_is_cpu=target.model == CPU),
            profilers=passes,
            repeats=repeats,
            gpu=target.model,
            device=target.device,
            **(tools or {}),
        )
        for target in targets
        for combination in combinations
    )
    return tuple({job.spec_hash: job for job in jobs}.values())


def default_profilers(db: Database, target: Target) -> tuple[str, ...]:
    """Return the profiler passes of a submit that names none: what the target's workers have.

    On the CPU the PyTorch trace; on a GPU nsys (or the trace where nsys is missing), ncu where
    counters are permitted, and the memory history.
    """
    if target.model == CPU:
        return ("trace",)
    info = worker_info(db, target.model, target.device)
    tools, allowed = info.get("tools") or {}, info.get("permissions") or {}
    has_nsys = bool((tools.get("nsys") or {}).get("path"))
    may_count = allowed.get("counters_allowed") is not False
    has_ncu = bool((tools.get("ncu") or {}).get("path")) and may_count
    return ("nsys" if has_nsys else "trace", *(("ncu",) if has_ncu else ()), "memory")


def submit_jobs(
    db: Database, data_dir: DataDir, jobs: Sequence[JobSpec], name: str | None = None
) -> Submitted:
    """Insert the runs of a sweep and send a message for each. All runs are in, or none.

    UserError for a job over more GPUs than any known host of that model has.
    """
    _check_num_gpus(db, jobs)
    _check_own_programs(db, jobs)
    with db.atomic():
        sweep_id = db_runs.insert_sweep(db, name)
        named = _without_mixed_preset(jobs)
        run_ids = [
            db_runs.insert_run(db, spec=job, name=_name(shown, name, named), sweep_id=sweep_id)
            for job, shown in zip(jobs, named, strict=True)
        ]
    sender = Sender(data_dir)
    for run_id, job in zip(run_ids, jobs, strict=True):
        sender.send_job(run_id, job.gpu, job.device)
    return Submitted(sweep_id=sweep_id, run_ids=tuple(run_ids))


def _check_num_gpus(db: Database, jobs: Sequence[JobSpec]) -> None:
    wanted = max(jobs, key=lambda job: job.num_gpus if job.gpu != CPU else 1)
    if wanted.gpu == CPU or wanted.num_gpus == 1:
        return
    largest = most_gpus_of_a_host(db, wanted.gpu)
    if 0 < largest < wanted.num_gpus:
        raise UserError(
            f"gpus: {wanted.num_gpus} wanted; the largest host with {wanted.gpu} has {largest}"
        )


def allowed_commands(db: Database, model: str, device: str | None) -> list[str] | None:
    """Return which own programs a GPU's host allows; None if its worker has not reported any."""
    commands = (worker_info(db, model, device).get("permissions") or {}).get("commands")
    return [str(entry) for entry in commands] if isinstance(commands, list) else None


def target_of_own_program(db: Database, model: str, words: Sequence[str]) -> Target:
    """Return where a program may run: any GPU of the model, or one of a host that allows it.

    UserError with the reason where no host of this model allows it. What a host says is compared
    by the paths as they are here; the host itself looks again before it runs anything.
    """
    known = [d for d in devices(db) if d.model == model]
    places = [d for d in known if d.is_online] or known
    refusals = {d.id: _why_refused(allowed_commands(db, model, d.id), words) for d in places}
    if not places:
        raise UserError(f"command: no worker on {model} has said which own programs it allows")
    allowing = [d for d in places if refusals[d.id] is None]
    if not allowing:
        raise UserError(f"{refusals[places[0].id]} (on {places[0].host})")
    is_anywhere = len(allowing) == len(places)
    return Target(model=model, device=None if is_anywhere else allowing[0].id)


def _why_refused(allowed: Sequence[str] | None, words: Sequence[str]) -> str | None:
    """Return why a host does not run a program, None where it does."""
    if allowed is None:
        return "command: its worker has not said which own programs it allows"
    if not allowed:
        return f"command: own programs are off there; its operator sets {COMMANDS}"
    program = shutil.which(words[0]) if words and "/" not in words[0] else "".join(words[:1])
    if not program or not os.path.isabs(program):
        return f"argv: {''.join(words[:1])!r} is not the whole path of a program"
    try:
        check_entries(allowed, program, words)
    except UserError as error:
        return str(error)
    return None


def untold_commands(db: Database, jobs: Sequence[JobSpec]) -> tuple[str, ...]:
    """Return the models whose hosts were sent own programs before one reported what it allows."""
    own = [job for job in jobs if job.workload == OWN_PROGRAM]
    untold = [job.gpu for job in own if allowed_commands(db, job.gpu, job.device) is None]
    return tuple(dict.fromkeys(untold))


def _check_own_programs(db: Database, jobs: Sequence[JobSpec]) -> None:
    """Refuse own programs for a GPU whose host is known to allow none."""
    for job in jobs:
        if job.workload == OWN_PROGRAM and allowed_commands(db, job.gpu, job.device) == []:
            raise UserError(
                f"command: own programs are off on the host of {job.gpu}; its operator sets "
                f"{COMMANDS} there and starts the worker again"
            )


def retry_run(db: Database, data_dir: DataDir, run_id: str) -> None:
    """Put an ended run back into the queue and send its message; UserError if it cannot be."""
    retry(db, run_id)
    if place := waiting_place(db, run_id):  # a fast worker may have it already
        Sender(data_dir).send_job(run_id, *place)


def resolve_gpus(db: Database, text: str | None) -> tuple[Target, ...]:
    """Return what a text names: `cpu`, a model or a part of one, a physical GPU; `,` between.

    A physical GPU is `MODEL@HOST:INDEX` or its UUID. None is the first GPU model that has a worker,
    else the CPU. UserError lists the known.
    """
    known = devices(db)
    gpus = sorted((d for d in known if d.model != CPU), key=lambda d: not d.is_online)
    models = list(dict.fromkeys(d.model for d in gpus))
    if text is None:
        return (Target(model=models[0]),) if models else (ANY_CPU,)
    return tuple(dict.fromkeys(_target(part.strip(), known, models) for part in text.split(",")))


def _target(text: str, known: Sequence[Device], models: Sequence[str]) -> Target:
    if names_device(known, text):
        gpu = resolve_device(known, text)
        return Target(model=gpu.model, device=gpu.id)
    return Target(model=_model(text, models))


def _model(text: str, models: Sequence[str]) -> str:
    if text.lower() == CPU:
        return CPU
    return match_gpu_name(text, [*models, CPU])


def _without_mixed_preset(jobs: Sequence[JobSpec]) -> Sequence[JobSpec]:
    """Return the jobs as they are named: without presets where only some sizes are a preset's.

    Of a sweep over `seq_len` one job may have the sizes of a preset, that the user did not choose.
    """
    presets = {job.params.get("preset") for job in jobs}
    if len(presets) < 2 or CUSTOM not in presets:
        return jobs
    kept = ({k: v for k, v in job.params.items() if k != "preset"} for job in jobs)
    return [replace(job, params=params) for job, params in zip(jobs, kept, strict=True)]


def _name(job: JobSpec, name: str | None, jobs: Sequence[JobSpec]) -> str:
    """Return the given name with what varies in the sweep, else one made from the params.

    Where jobs of the sweep would share a name, the varying parameters distinguish them.
    """
    base = run_name(job.workload, job.params) if name is None else name
    if name is None:
        jobs = [j for j in jobs if run_name(j.workload, j.params) == base]
    varied = [k for k in job.params if len({str(j.params.get(k)) for j in jobs}) > 1]
    parts = [f"{k}={job.params[k]}" for k in varied]
    if name is not None and len({(j.gpu, j.device) for j in jobs}) > 1:
        parts.append(job.gpu if job.device is None else f"{job.gpu} {job.device}")
    return " ".join([base, *parts])


class Sender:
    """Sends messages to workers and to ingest through the broker."""

    def __init__(self, data_dir: DataDir) -> None:
        from worker.celery_app import make_app

        self._url = broker_url(data_dir)
        self._app = make_app("warpboard.submit", self._url, data_dir.root)

    def send_job(self, run_id: str, gpu_model: str, device: str | None = None) -> None:
        """Say to the workers of a GPU that there is one more run; AppError without a broker.

        The run stays queued then, and a message is sent again once its worker is idle.
        """
        self._send(RUN_JOB_TASK, run_id, job_queue(gpu_model, device))

    def send_ingest(self, run_id: str) -> None:
        """Say to ingest that a bundle is complete."""
        self._send(INGEST_RUN_TASK, run_id, INGEST_QUEUE)

    def _send(self, task: str, run_id: str, queue: str) -> None:
        try:
            self._app.send_task(task, args=[run_id], queue=queue, retry=False)
        except _refusals(self._url) as exc:
            shown = self._url.rsplit("@", 1)[-1]  # never a password
            raise AppError(
                f"broker {shown}: run {run_id} is queued, but no worker could be told ({exc});"
                " it starts once the broker answers"
            ) from exc


def _refusals(broker: str) -> tuple[type[Exception], ...]:
    """Return what a broker that takes no message raises; of Redis also that its disk is full."""
    from kombu.exceptions import OperationalError

    if not broker.startswith("redis"):
        return (OperationalError, OSError)
    from redis.exceptions import RedisError

    return (OperationalError, OSError, RedisError)
