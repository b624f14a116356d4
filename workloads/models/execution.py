"""Wrap a step in torch.compile or in a CUDA graph captured by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch

from core.errors import UserError
from workloads.measure.ranges import RangeFactory, no_range
from workloads.program import Context

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
CAPTURE_WARMUP = 3
"""Calls on a side stream before a capture: libraries make their workspaces there."""
F = TypeVar("F", bound=Callable[..., Any])


def inner_ranges(context: Context, compile_mode: str) -> RangeFactory:
    """Return what opens ranges inside a model: nothing when it will be compiled."""
    return context.ranges.nested if compile_mode == "none" else no_range


def compiled(function: F, mode: str) -> F:
    """Return the function compiled in a mode, or itself for `none`."""
    if mode == "none":
        return function
    torch._dynamo.reset()
    made: Any = torch.compile(function, mode=None if mode == "default" else mode, dynamic=False)
    return made


def begin_step(mode: str) -> None:
    """Mark the start of an iteration for inductor's CUDA graph trees."""
    if mode in ("reduce-overhead", "max-autotune"):
        torch.compiler.cudagraph_mark_step_begin()


def capture(function: Callable[[], Any], context: Context) -> Callable[[], None]:
    """Return the replay of a CUDA graph of the function. UserError without a GPU."""
    if not context.on_gpu:
        raise UserError("cuda_graph: on needs a CUDA GPU; this run is on the CPU")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(CAPTURE_WARMUP):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return partial(_replay, graph, function)


def _replay(graph: Any, function: Callable[[], Any]) -> None:
    """Replay; `function` owns the weights and caches that the graph reads and does not keep."""
    graph.replay()


def capture_calls(
    calls: list[Callable[[], Any]], num_calls: int, context: Context
) -> Callable[[], None]:
    """Return the replay of a graph of `num_calls` calls that takes turns among `calls`.

    Short kernels are timed so: events around one launch measure the launch.
    """

    def run() -> None:
        for index in range(num_calls):
            calls[index % len(calls)]()

    return capture(run, context)


def set_matmul_precision(dtype: str, context: Context) -> None:
    """Turn TF32 on for `tf32` and off otherwise; says so where the device has none."""
    allowed = dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    if allowed and not (context.on_gpu and torch.cuda.get_device_capability()[0] >= 8):
        context.warn("tf32_unavailable", "this device has no TF32; the run is plain fp32")
