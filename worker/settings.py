"""The places where jobs run on this host, and what each one's Celery worker is told."""

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from core.config import DataDir, read_broker_file, read_token_file
from core.errors import UserError
from core.ids import new_id
from core.python import module_command, with_rooms
from core.queues import gpu_slug
from worker.environment import SETTINGS
from worker.passes import GpuTarget
from worker.targets import CPU, group_target, measured_facts

VARIABLE = SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One Celery worker: which dashboard, which broker, which GPU."""

    worker_id: str
    dashboard_url: str
    token_file: str
    broker_url: str
    "Empty where the broker's URL lies in a file."
    data_root: str
    model: str
    visible_devices: str | None = None
    smi_selector: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    host_gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """GPUs of this model on this host by the name of their lock, in order: `smi_selector` and
    `facts` of each; {} for the CPU."""
    lock_name: str = ""
    "This place's own among `host_gpus`."
    broker_file: str | None = None
    "Its URL, with the password, is read from there, so that no environment holds it."

    @property
    def broker(self) -> str:
        """The broker's URL."""
        return read_broker_file(self.broker_file) if self.broker_file else self.broker_url

    @property
    def target(self) -> GpuTarget:
        """The GPU, with what was measured of it by now: it may be after this worker's start."""
        facts = {**self.facts, **measured_facts(self.smi_selector or CPU)}
        return GpuTarget(
            visible_devices=self.visible_devices, smi_selector=self.smi_selector, facts=facts
        )

    def group(self, names: Sequence[str]) -> GpuTarget:
        """Return these GPUs of the host as the target of one job."""
        members = []
        for name in names:
            gpu = self.host_gpus[name]
            selector = str(gpu["smi_selector"])
            facts = {**gpu["facts"], **measured_facts(selector)}
            members.append(GpuTarget(visible_devices=selector, smi_selector=selector, facts=facts))
        return group_target(members)

    @property
    def locks(self) -> Path:
        return Path(self.data_root) / "gpus"

    @property
    def spool(self) -> Path:
        return Path(self.data_root) / "spool"

    def load_token(self) -> str:
        """Read the token file; UserError if there is none."""
        return read_token_file(Path(self.token_file))

    def as_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


def load_settings() -> WorkerSettings | None:
    """Return the settings in this process's environment, or None outside a worker."""
    text = os.environ.get(VARIABLE)
    return WorkerSettings(**json.loads(text)) if text else None


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
