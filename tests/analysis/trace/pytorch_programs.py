"""Programs of PyTorch, what its own counter counts of them and what their traces say."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from analysis.readers.torch_trace.load import load_trace
from analysis.trace.flops import operator_flops

Program = Callable[[], torch.Tensor]


def some(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


def scaled_dot_product(backend: SDPBackend, heads: int = 4, *, is_causal: bool = False) -> Program:
    def program() -> torch.Tensor:
        query, key, value = some(2, 4, 6, 8), some(2, heads, 10, 8), some(2, heads, 10, 8)
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=is_causal, enable_gqa=heads != 4
            )

    return program


def counted(program: Program) -> dict[str, int]:
    """Count what a program and its backward pass compute, by PyTorch's own counter."""
    with FlopCounterMode(display=False) as counter:
        program().sum().backward()
    found = counter.get_flop_counts().get("Global", {})
    return {str(operator).replace("aten.", "aten::"): flops for operator, flops in found.items()}


def read(program: Program, path: Path) -> dict[str, int]:
    """Profile a program and its backward pass; return the operations of the trace by operator."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        program().sum().backward()
    profiler.export_chrome_trace(str(path))
    trace = load_trace(path).trace
    total: Counter[str] = Counter()
    for name, detail in zip(trace.host_ranges.name, trace.host_ranges.detail, strict=True):
        shapes = json.loads(trace.names[detail]) if detail >= 0 else None
        if (flops := operator_flops(trace.names[name], shapes)) is not None:
            total[trace.names[name]] += int(flops)
    return dict(total)


ALIKE: dict[str, Program] = {
    "mm": lambda: some(3, 4) @ some(4, 5),
    "addmm of a linear layer": lambda: F.linear(some(2, 3, 4), some(5, 4), some(5)),
    "bmm": lambda: torch.bmm(some(2, 3, 4), some(2, 4, 5)),
    "baddbmm": lambda: torch.baddbmm(some(2, 3, 5), some(2, 3, 4), some(2, 4, 5)),
    "broadcast product": lambda: some(2, 1, 4, 5) @ some(3, 5, 6),
    "einsum": lambda: torch.einsum("bij,bkj->bik", some(2, 3, 4), some(2, 5, 4)),
    "conv1d": lambda: F.conv1d(some(2, 6, 64), some(5, 6, 5), None, 1, 2),
    "conv2d, stride and padding": lambda: F.conv2d(some(2, 3, 9, 9), some(8, 3, 3, 3), None, 2, 1),
    "conv2d, same padding": lambda: F.conv2d(some(2, 3, 9, 9), some(4, 3, 3, 3), None, 1, "same"),
    "conv2d, no batch": lambda: F.conv2d(some(3, 9, 9), some(8, 3, 3, 3)),
    "conv2d, input without gradient": lambda: F.conv2d(torch.ones(2, 3, 9, 9), some(8, 3, 3, 3)),
    "conv3d": lambda: F.conv3d(some(1, 2, 6, 7, 8), some(4, 2, 3, 3, 3), None, (1, 2, 2), 1),
    "conv_transpose1d": lambda: F.conv_transpose1d(some(2, 4, 9), some(4, 3, 5), None, 3, 1, 1),
    "conv_transpose2d": lambda: F.conv_transpose2d(some(2, 8, 5, 5), some(8, 6, 4, 4), None, 2, 1),
    "attention of plain operators": scaled_dot_product(SDPBackend.MATH),
    "causal attention of plain operators": scaled_dot_product(SDPBackend.MATH, is_causal=True),
    "grouped queries of plain operators": scaled_dot_product(SDPBackend.MATH, heads=2),
}
