"""The places where jobs run on this host, and the Celery worker of each."""

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO

from core.config import DataDir
from core.errors import UserError
from core.ids import new_id
from core.python import module_command, with_rooms
from core.queues import gpu_slug
from worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One GPU (or the CPU) with its queues and its Celery worker's settings."""

    name: str
    queues: tuple[str, ...]
    settings: WorkerSettings


def together(places: Sequence[Place]) -> list[Place]:
    """Return the places, each knowing the GPUs of its model on this host: a job may need several.

    The CPU stands alone: the ranks of a job share it.
    """
    joined = []
    for place in places:
        mine = [p for p in places if p.settings.model == place.settings.model]
        gpus = {
            p.name: {"smi_selector": p.settings.smi_selector, "facts": p.settings.facts}
            for p in mine
            if p.settings.smi_selector is not None
        }
        settings = replace(place.settings, host_gpus=gpus, lock_name=place.name)
        joined.append(replace(place, settings=settings))
    return joined


def celery_command(place: Place) -> list[str]:
    """Return the command of one Celery worker: one process, one job at a time."""
    return [
        *module_command("celery", "-A", "worker.tasks", "worker"),
        *("--pool", "prefork", "--concurrency", "1", "-O", "fair"),
        *("--queues", ",".join(place.queues)),
        *("--hostname", f"{place.name}@{place.settings.worker_id}"),
        *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
    ]


def celery_environment(settings: WorkerSettings) -> dict[str, str]:
    """Return the environment of a Celery worker: its settings, and its GPU alone visible."""
    env = with_rooms({**os.environ, **settings.as_environment()})
    if settings.visible_devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = settings.visible_devices
    return env


def lock_identity(data: DataDir, wanted: str) -> tuple[IO[str], str]:
    """Return (open lock file, worker id); the id outlives restarts so that runs are found again.

    Raises UserError when a worker for the same GPU and data folder is running.
    """
    path = data.root / f"worker-{gpu_slug(wanted)}.id"
    file = open(path, "a+")  # noqa: SIM115 held open: the lock lives as long as the process
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError(
            f"a worker for --gpu {wanted} is already running on {data.root}; stop it, or give "
            "this one its own --data folder"
        ) from None
    file.seek(0)
    worker_id = file.read().strip()
    if not worker_id:
        worker_id = new_id("w")
        file.write(worker_id)
        file.flush()
    return file, worker_id
