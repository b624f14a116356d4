"""Whether a kernel can run here: imports neither torch nor triton before it is asked."""

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


def require_fp8(*, on_gpu: bool, instead: str) -> None:
    """Raise ToolUnavailableError, naming what to choose `instead`, where fp8 has no products."""
    import torch

    if not on_gpu or torch.cuda.get_device_capability() < (8, 9):
        raise ToolUnavailableError(
            "fp8", "it needs a GPU of compute capability 8.9 or newer", f"Choose {instead}"
        )
