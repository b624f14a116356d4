"""Tile choices of the kernels: several on a GPU, one small one in Triton's interpreter."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import triton


def is_interpreted() -> bool:
    """Return whether Triton's interpreter runs the kernels (TRITON_INTERPRET=1)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def tile(
    warps: int, stages: int, *, hook: Callable[[Mapping[str, Any]], None] | None = None, **meta: Any
) -> triton.Config:
    """Return one choice."""
    return triton.Config(meta, num_warps=warps, num_stages=stages, pre_hook=hook)


def choices(on_gpu: Iterable[triton.Config], *, interpreted: triton.Config) -> list[triton.Config]:
    """Return the choices to try; the interpreter cannot time, so it gets one."""
    return [interpreted] if is_interpreted() else list(on_gpu)
