"""Names of the Celery queues and tasks: the one thing that submitter and workers must agree on."""

import re

CPU_QUEUE = "cpu"
INGEST_QUEUE = "ingest"
RUN_JOB_TASK = "warpboard.run_job"
"""Argument: run id. Sent to a GPU's queue or the CPU queue."""
INGEST_RUN_TASK = "warpboard.ingest_run"
"""Argument: run id. Sent to INGEST_QUEUE."""


def gpu_slug(model: str) -> str:
    """Return a GPU model's name as part of a queue name: `nvidia-h100-80gb-hbm3`."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def model_queue(model: str) -> str:
    """Return the queue of every GPU of a model; `cpu` for the CPU."""
    return CPU_QUEUE if model == "cpu" else f"gpu.{gpu_slug(model)}"


def device_queue(model: str, device: str) -> str:
    """Return the queue of one physical GPU; `device` is its UUID, or worker id and index."""
    return f"{model_queue(model)}.{gpu_slug(device)}"


def job_queue(model: str, device: str | None) -> str:
    """Return the queue of a job: that of its physical GPU if it names one, else of the model."""
    return device_queue(model, device) if device else model_queue(model)
