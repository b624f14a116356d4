"""What `worker.main` tells its Celery processes, through their environment."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.config import read_broker_file, read_token_file
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
