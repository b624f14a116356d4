"""Fused attention with a gradient, by our Triton kernels: `attention(q, k, v, causal=...)`.

Tensor descriptors (TMA) are used on Hopper and later when the sequence is a multiple of every
tile, else plain pointers with masks; on Hopper forward and backward then are kernels of their own.
The tiles of the others are chosen by Triton's autotuner once per head dim, causality, sequence and
kind of access. Hopper's backward sums dq in any order: `torch.use_deterministic_algorithms(True)`
takes the other one.
"""

import functools
from collections.abc import Mapping
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from workloads.kernels.attention import backward as backward_kernels
from workloads.kernels.attention import forward as forward_kernels
from workloads.kernels.tuning import choices, is_interpreted, tile

HEAD_DIMS = (16, 32, 64, 128)
DTYPES = (torch.float16, torch.bfloat16)
EVEN_ROWS = 128
"""The largest tile: a sequence that is a multiple of it needs no masks."""
DELTA_ROWS = 32
_KEY = ["N", "D", "CAUSAL", "USE_TMA", "EVEN"]


def _rows_of(*names: str) -> Any:
    """Return a hook that gives each descriptor the tile's rows, before a launch."""

    def hook(args: Mapping[str, Any]) -> None:
        for name in names:
            block, _, argument = name.partition(":")
            if isinstance(args[argument], TensorDescriptor):
                args[argument].block_shape = [args[block], args["D"]]

    return hook


_FORWARD_HOOK = _rows_of("BLOCK_M:q_in", "BLOCK_N:k_in", "BLOCK_N:v_in", "BLOCK_M:out")
_KEYS_HOOK = _rows_of(
    "BLOCK_M:q_in", "BLOCK_M:do_in", "BLOCK_N:k_in", "BLOCK_N:v_in", "BLOCK_N:dk_out",
    "BLOCK_N:dv_out",
)  # fmt: skip
_QUERIES_HOOK = _rows_of(
    "BLOCK_M:q_in", "BLOCK_M:do_in", "BLOCK_N:k_in", "BLOCK_N:v_in", "BLOCK_M:dq_out"
)


def _tiles(hook: Any, options: list[tuple[int, int, bool, int, int]], smallest: Any) -> Any:
    built = [
        tile(warps, stages, hook=hook, BLOCK_M=m, BLOCK_N=n, OVERLAP=overlap)
        for m, n, overlap, warps, stages in options
    ]
    m, n, overlap = smallest
    small = tile(4, 1, hook=hook, BLOCK_M=m, BLOCK_N=n, OVERLAP=overlap)
    return choices(built, interpreted=small)


# BLOCK_M, BLOCK_N, OVERLAP, warps, stages
_FORWARD = [
    (128, 128, True, 8, 2),
    (128, 128, False, 8, 3),
    (128, 64, True, 8, 3),
    (128, 64, True, 8, 2),
    (128, 128, False, 8, 2),
    (128, 64, False, 8, 3),
    (128, 64, False, 4, 2),
    (64, 64, True, 4, 2),
    (64, 64, False, 4, 3),
]
_KEYS = [
    (64, 128, False, 8, 2),
    (32, 128, True, 8, 3),
    (64, 64, False, 4, 2),
    (32, 64, True, 4, 2),
    (64, 128, True, 8, 2),
]
_QUERIES = [
    (128, 64, True, 8, 2),
    (128, 128, False, 8, 2),
    (128, 64, False, 8, 2),
    (64, 64, True, 4, 2),
    (64, 64, False, 4, 2),
]


def _fits(configs: list[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
    """Keep the tiles that a GPU without Hopper's shared memory can hold."""
    if is_interpreted() or torch.cuda.get_device_capability()[0] >= 9:
        return configs
    return [c for c in configs if c.kwargs["BLOCK_N"] == 64 and c.num_stages <= 2] or configs[-1:]


def _tuned(kernel: Any, configs: Any) -> Any:
    return triton.autotune(
        configs=configs, key=_KEY, prune_configs_by={"early_config_prune": _fits}
    )(kernel)


forward_kernel = _tuned(
    forward_kernels.attention_forward, _tiles(_FORWARD_HOOK, _FORWARD, (32, 16, True))
)
keys_kernel = _tuned(
    backward_kernels.attention_backward_keys, _tiles(_KEYS_HOOK, _KEYS, (16, 32, True))
)
queries_kernel = _tuned(
    backward_kernels.attention_backward_queries, _tiles(_QUERIES_HOOK, _QUERIES, (32, 16, True))
)


@functools.cache
def has_tma() -> bool:
    """Return whether the GPU copies tiles by tensor descriptors (compute capability 9.0 on)."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9


@functools.cache
def hopper_kernels() -> Any:
    """Return the modules of forward and backward for Hopper, None on another GPU or Triton."""
    release = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if is_interpreted() or not has_tma() or release < (3, 6):
        return None
    if torch.cuda.get_device_capability()[0] != 9:
        return None
    from workloads.kernels.attention import backward_hopper, forward_hopper

    return forward_hopper, backward_hopper


def _access(tensor: Tensor, use_tma: bool) -> Any:
    rows = tensor.view(-1, tensor.shape[-1])
    if not use_tma:
        return rows
    shape, stride = list(rows.shape), list(rows.stride())
    return TensorDescriptor(rows, shape, stride, [1, rows.shape[1]])


class Attention(torch.autograd.Function):
    """The kernels as one differentiable function."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, use_tma: bool
    ) -> Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        b, h, n, d = q.shape
        out = torch.empty_like(q)
        lse = torch.empty((b, h, n), device=q.device, dtype=torch.float32)
        hopper = hopper_kernels() if use_tma else None
        if hopper is not None and d in hopper[0].HEAD_DIMS:
            hopper[0].attend(q, k, v, out, lse, causal=causal, scale=scale)
        else:
            access = [_access(t, use_tma) for t in (q, k, v, out)]
            same = {"D": d, "CAUSAL": causal, "USE_TMA": use_tma, "EVEN": n % EVEN_ROWS == 0}
            forward_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_M"]), b * h)](
                *access, lse, scale, n, **same
            )
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.settings = (causal, scale, use_tma)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        causal, scale, use_tma = ctx.settings
        grad = grad.contiguous()
        b, h, n, d = q.shape
        delta = torch.empty_like(lse)
        rows = b * h * n
        backward_kernels.attention_delta[(triton.cdiv(rows, DELTA_ROWS),)](
            out, grad, delta, rows, D=d, BLOCK=DELTA_ROWS
        )
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        any_order = use_tma and not torch.are_deterministic_algorithms_enabled()
        hopper = hopper_kernels() if any_order else None
        if hopper is not None and d in hopper[1].HEAD_DIMS:
            hopper[1].differentiate(
                q, k, v, grad, lse, delta, dq, dk, dv, causal=causal, scale=scale
            )
            return dq, dk, dv, None, None, None
        inputs = [_access(t, use_tma) for t in (q, k, v, grad)]
        same = {"D": d, "CAUSAL": causal, "USE_TMA": use_tma, "EVEN": n % EVEN_ROWS == 0}
        keys_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_N"]), b * h)](
            *inputs, _access(dk, use_tma), _access(dv, use_tma), lse, delta, scale, n, **same
        )
        queries_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_M"]), b * h)](
            *inputs, _access(dq, use_tma), lse, delta, scale, n, **same
        )
        return dq, dk, dv, None, None, None


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    scale: float | None = None,
    use_tma: bool | None = None,
) -> Tensor:
    """Return softmax(q k^T * scale) v for [B, H, N, D]; scale is D ** -0.5 unless given.

    Raises ValueError for a head dim, dtype or shape that the kernels do not have.
    """
    n, d = q.shape[-2:]
    if d not in HEAD_DIMS:
        raise ValueError(f"head dim {d} is not one of {', '.join(map(str, HEAD_DIMS))}")
    if q.dtype not in DTYPES:
        raise ValueError(f"dtype {q.dtype} is not float16 or bfloat16")
    if not q.shape == k.shape == v.shape:
        raise ValueError(f"shapes of q, k, v differ: {q.shape}, {k.shape}, {v.shape}")
    possible = n % EVEN_ROWS == 0 and has_tma()
    if use_tma is None:
        use_tma = possible
    elif use_tma and n % EVEN_ROWS:
        raise ValueError(f"use_tma: {n} rows are not a multiple of {EVEN_ROWS}")
    return Attention.apply(q, k, v, causal, d**-0.5 if scale is None else scale, use_tma)
