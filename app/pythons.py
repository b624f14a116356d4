"""Which Python runs what, for commands that call the worker's programs."""

import sys

from app.environments import EnvironmentFailure, made_worker_python, python_for
from core.errors import ToolUnavailableError


def probe_python() -> str:
    """Return the worker's Python if it is there, else this one: a probe needs no torch."""
    return str(made_worker_python() or sys.executable)


def torch_python() -> str:
    """Return a Python with torch, making the worker's environment if needed."""
    try:
        return str(python_for("run"))
    except EnvironmentFailure as exc:
        remedy = "Set WARPBOARD_PYTHON to a Python that has torch"
        raise ToolUnavailableError("torch", str(exc), remedy) from exc
