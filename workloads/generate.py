"""Llama generation: prefill of a prompt, then new tokens one by one, greedily, on the device.

The cache is static: allocated once for prompt and new tokens, and every decode step attends all of
it under a mask, so that one CUDA graph fits every token. An iteration is a whole generation:
`tokens_per_s` counts the new tokens over all of it.
FLOPs and bytes: one `prefill_cost` and a `decode_cost` for each further token, over the static
length (that is what is computed). Source: https://arxiv.org/abs/2302.13971 (model),
https://arxiv.org/abs/2211.05102 (costs).

Ranges: prefill > attention, mlp; decode (all further tokens) > token > attention, mlp.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.model_sizes import DTYPE_BYTES, MODEL_SIZES
from workloads.llama_params import (
    COMPILE_MODES,
    LLAMA_SOURCE,
    LlamaParams,
    check_cuda_graph,
    decode_cost,
    llama_memory_bytes,
    prefill_cost,
)
from workloads.program import Context, Metric, Program, Timings, median
from workloads.spec import Cost, WorkloadSpec, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(LlamaParams):
    """Parameters of `generate`."""

    prompt: int = param(
        512, doc="prompt length", unit="tokens", minimum=1, maximum=1_048_576, smallest=16,
        basic=True,
    )  # fmt: skip
    new_tokens: int = param(
        32, doc="tokens to generate", unit="tokens", minimum=2, maximum=65536, smallest=4,
        basic=True,
    )  # fmt: skip
    vocab: int = param(32_000, doc="vocabulary size", minimum=2, smallest=256)
    cuda_graph: bool = param(
        False, doc="capture one decode step as a CUDA graph by hand and replay it", basic=True
    )

    def __post_init__(self) -> None:
        LlamaParams.__post_init__(self)
        check_cuda_graph(self.cuda_graph, self.compile)

    @property
    def length(self) -> int:
        return self.prompt + self.new_tokens


def cost(p: Params) -> Cost:
    """Return the work of one generation; formulas are named in the module's docstring."""
    first = prefill_cost(p, seq_len=p.prompt)
    token = decode_cost(p, context=p.length, weight_bytes=DTYPE_BYTES[p.dtype])
    further = p.new_tokens - 1
    return Cost(
        flops=(first.flops or 0) + further * (token.flops or 0),
        bytes=(first.bytes or 0) + further * (token.bytes or 0),
        flops_dtype=p.dtype,
        num_tokens=p.batch * p.new_tokens,
    )


def estimate_memory_bytes(p: Params) -> int:
    """Return weights, cache and activations in bytes; see `llama_params.llama_memory_bytes`."""
    return llama_memory_bytes(
        p, length=p.length, new_tokens=p.prompt, weight_bytes=DTYPE_BYTES[p.dtype]
    )


def build(p: Params, context: Context) -> Program:
    """Return one generation on the context's device."""
    import torch

    from workloads.models.execution import DTYPES, begin_step, capture, compiled, inner_ranges
    from workloads.models.llama import build_llama, install_caches, make_caches

    dtype, device = DTYPES[p.dtype], context.device
    model = build_llama(
        p, device=device, dtype=dtype, max_length=p.length,
        ranges=inner_ranges(context, p.compile),
    )  # fmt: skip
    install_caches(model, make_caches(model, p.batch, p.length, device, dtype))
    prompt = torch.randint(p.vocab, (p.batch, p.prompt), device=device)
    prompt_at = torch.arange(p.prompt, device=device)
    places = torch.arange(p.length, device=device)
    token = torch.zeros((p.batch, 1), dtype=torch.long, device=device)
    at = torch.zeros(1, dtype=torch.long, device=device)
    decode = compiled(model, p.compile)

    def next_token() -> None:
        begin_step(p.compile)
        mask = (places <= at)[None, None, None, :]
        logits = decode(token, at, None, mask, False)
        token.copy_(logits[:, -1].argmax(-1, keepdim=True))
        at.add_(1)

    advance: Callable[[], Any] = next_token
    if p.cuda_graph:
        with torch.no_grad():
            advance = capture(next_token, context)

    def step() -> None:
        with torch.no_grad():
            with context.ranges.phase("prefill"):
                logits = model(prompt, prompt_at, None, None, True)
                token.copy_(logits[:, -1].argmax(-1, keepdim=True))
                at.fill_(p.prompt)
            with context.ranges.phase("decode"):
                for _ in range(p.new_tokens - 1):
                    with context.ranges.nested("token"):
                        advance()

    return Program(
        step=step,
        compile_mode=p.compile,
        cuda_graph=p.cuda_graph,
        metrics=lambda timings: _metrics(p, timings),
    )


def _metrics(p: Params, timings: Timings) -> list[Metric]:
    first_ns = median(timings.phase_samples_ns.get("prefill", []))
    further_ns = median(timings.phase_samples_ns.get("decode", []))
    if first_ns is None or further_ns is None:
        return []
    each_ns = further_ns / (p.new_tokens - 1)
    return [
        Metric(name="time_to_first_token", value=first_ns / 1e6, unit="ms", phase="prefill"),
        Metric(name="time_per_token", value=each_ns / 1e6, unit="ms", phase="decode"),
        Metric(
            name="decode_tokens_per_s", value=p.batch / each_ns * 1e9, unit="tokens/s",
            phase="decode",
        ),
    ]  # fmt: skip


WORKLOAD = WorkloadSpec(
    name="generate",
    title="Llama generation",
    about="Prompt in, new tokens out, with a static KV cache and an optional CUDA graph.",
    source=LLAMA_SOURCE,
    params=Params,
    presets=MODEL_SIZES["generate"],
    default_preset="llama-7b-layer",
    implementations=COMPILE_MODES,
    phases=("prefill", "decode"),
    modes=("decode",),
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
