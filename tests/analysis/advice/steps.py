"""Steps of known operations, for predictions that can be computed by hand."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.advice.step_work import StepWork

PEAKS = {
    "copy_bytes_per_s": 2e12,
    "gemm_fp32_flops_per_s": 50e12,
    "gemm_tf32_flops_per_s": 400e12,
    "gemm_bf16_flops_per_s": 500e12,
    "gemm_fp16_flops_per_s": 500e12,
    "launch_ns": 5000.0,
}
Operation = tuple[str, str, float, str]
"""Name, category, microseconds, path."""


def step(latency_us: float, operations: Sequence[Operation], **fields: Any) -> StepWork:
    """Return one step on a GPU that holds these operations."""
    frame = pd.DataFrame(operations, columns=["name", "category", "duration_ns", "path"])
    frame["duration_ns"] *= 1000.0
    values: dict[str, Any] = {
        "latency_ns": latency_us * 1000.0,
        "variation": 0.0,
        "on_gpu": True,
        "read_operations": lambda: frame,
        "num_steps": 1.0,
        "params": {},
        "cost": {},
        "peaks": PEAKS,
        "gpu_model": "a GPU",
        "phase_ns": {},
    }
    return StepWork(**(values | fields))


def gemm(us: float, path: str = "forward") -> Operation:
    return ("a_gemm", "gemm", us, path)


def elementwise(us: float, path: str = "forward") -> Operation:
    return ("an_add", "elementwise", us, path)
