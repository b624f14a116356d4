"""What `worker.main` tells its Celery processes, through their environment."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.errors import UserError
from worker.passes import GpuTarget
from worker.targets import CPU, measured_facts

VARIABLE = "WARPBOARD_WORKER_SETTINGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One Celery worker: which dashboard, which broker, which GPU."""

    worker_id: str
    dashboard_url: str
    token_file: str
    broker_url: str
    data_root: str
    model: str
    visible_devices: str | None = None
    smi_selector: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> GpuTarget:
        """The GPU, with what was measured of it by now: it may be after this worker's start."""
        facts = {**self.facts, **measured_facts(self.smi_selector or CPU)}
        return GpuTarget(
            visible_devices=self.visible_devices, smi_selector=self.smi_selector, facts=facts
        )

    @property
    def spool(self) -> Path:
        return Path(self.data_root) / "spool"

    def load_token(self) -> str:
        """Read the token file; UserError if there is none."""
        try:
            return Path(self.token_file).read_text().strip()
        except OSError as error:
            raise UserError(f"--token-file {self.token_file}: {error.strerror}") from error

    def as_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


def load_settings() -> WorkerSettings | None:
    """Return the settings in this process's environment, or None outside a worker."""
    text = os.environ.get(VARIABLE)
    return WorkerSettings(**json.loads(text)) if text else None
