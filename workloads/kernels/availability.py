"""Whether our Triton kernels can run here. Imports neither torch nor triton."""

import os
from importlib.util import find_spec

from core.errors import ToolUnavailableError


def require_triton(*, on_gpu: bool, instead: str) -> None:
    """Raise ToolUnavailableError, naming what to choose `instead`, where the kernels cannot run."""
    if find_spec("triton") is None:
        raise ToolUnavailableError(
            "triton", "it is not installed", f"Choose {instead}, or pip install triton"
        )
    if not on_gpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise ToolUnavailableError(
            "triton",
            "its kernels need a GPU",
            f"Choose {instead}, or set TRITON_INTERPRET=1 (very slow)",
        )
