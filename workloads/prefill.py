"""Llama prefill: a whole prompt at once, filling the KV cache.

Every weight is used for all tokens, so long prompts are bound by arithmetic.
FLOPs and bytes: see `llama_params.prefill_cost`.
Source: https://arxiv.org/abs/2302.13971 (model), https://arxiv.org/abs/2211.05102 (prefill costs).

Ranges: forward > attention > (attention_scores, softmax, attention_output where naive), mlp.
"""

from dataclasses import dataclass

from core.model_sizes import DTYPE_BYTES, MODEL_SIZES
from workloads.llama_params import (
    COMPILE_MODES,
    LLAMA_SOURCE,
    LlamaParams,
    llama_memory_bytes,
    prefill_cost,
)
from workloads.program import Context, Program
from workloads.spec import Cost, WorkloadSpec, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(LlamaParams):
    """Parameters of `prefill`."""

    seq_len: int = param(
        2048, doc="prompt length", unit="tokens", minimum=1, maximum=1_048_576, smallest=32,
        basic=True,
    )  # fmt: skip


def cost(p: Params) -> Cost:
    """Return the work of one prompt; see `llama_params.prefill_cost`."""
    return prefill_cost(p, seq_len=p.seq_len)


def estimate_memory_bytes(p: Params) -> int:
    """Return weights, cache and activations in bytes; see `llama_params.llama_memory_bytes`."""
    return llama_memory_bytes(
        p, length=p.seq_len, new_tokens=p.seq_len, weight_bytes=DTYPE_BYTES[p.dtype]
    )


def build(p: Params, context: Context) -> Program:
    """Return the prefill step on the context's device."""
    import torch

    from workloads.models.execution import DTYPES, begin_step, compiled, inner_ranges
    from workloads.models.llama import build_llama, install_caches, make_caches

    dtype, device = DTYPES[p.dtype], context.device
    model = build_llama(
        p, device=device, dtype=dtype, max_length=p.seq_len,
        ranges=inner_ranges(context, p.compile),
    )  # fmt: skip
    install_caches(model, make_caches(model, p.batch, p.seq_len, device, dtype))
    if p.vocab:
        x = torch.randint(p.vocab, (p.batch, p.seq_len), device=device)
    else:
        x = torch.randn((p.batch, p.seq_len, p.d_model), device=device, dtype=dtype)
    at_S = torch.arange(p.seq_len, device=device)
    forward = compiled(model, p.compile)

    def step() -> None:
        with context.ranges.phase("forward"), torch.no_grad():
            begin_step(p.compile)
            forward(x, at_S, None, None, True)

    return Program(step=step, compile_mode=p.compile)


WORKLOAD = WorkloadSpec(
    name="prefill",
    title="Llama prefill",
    about="A Llama layer stack reads a whole prompt and fills its KV cache.",
    source=LLAMA_SOURCE,
    params=Params,
    presets=MODEL_SIZES["prefill"],
    default_preset="llama-7b-layer",
    implementations=COMPILE_MODES,
    phases=("forward",),
    modes=("prefill",),
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
