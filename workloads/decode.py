"""Llama decode: one new token for each sequence, against a full KV cache.

Every iteration computes the same position (the last of `context`), so that all samples measure the
same work. Decode reads every weight for one token: it is bound by memory, or by launches.
FLOPs and bytes: see `llama_params.decode_cost`.
Source: https://arxiv.org/abs/2302.13971 (model), https://arxiv.org/abs/2211.05102 (decode costs).

Ranges: forward > attention > (attention_scores, softmax, attention_output where naive), mlp. A
compiled step, or a replayed CUDA graph, has `forward` only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from core.errors import ToolUnavailableError, UserError
from core.model_sizes import DTYPE_BYTES, MODEL_SIZES
from workloads.kernels.availability import require_fp8, require_triton
from workloads.llama_params import (
    COMPILE_MODES,
    LLAMA_SOURCE,
    LlamaParams,
    check_cuda_graph,
    decode_cost,
    llama_memory_bytes,
)
from workloads.program import Context, Metric, Program, Timings
from workloads.spec import Cost, WorkloadSpec, param

if TYPE_CHECKING:
    from workloads.models.llama import Llama


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(LlamaParams):
    """Parameters of `decode`."""

    context: int = param(
        512, doc="context length, the new token included", unit="tokens",
        minimum=2, maximum=1_048_576, smallest=32, basic=True,
    )  # fmt: skip
    weights: str = param(
        "native",
        doc="int8: weights alone, products in `dtype`; fp8: weights and products, scaled by row; "
        "both by torchao",
        choices=("native", "int8", "fp8"),
    )  # fmt: skip
    attention: str = param(
        "sdpa", doc="sdpa, naive with a range around each part, or our Triton kernel for one query",
        choices=("sdpa", "naive", "triton"),
    )  # fmt: skip
    cuda_graph: bool = param(False, doc="capture the step as one CUDA graph by hand", basic=True)
    kv_cache: str = param(
        "buffer",
        doc="buffer: part of the model; argument: passed in and changed in place, for which "
        "inductor skips CUDA graphs",
        choices=("buffer", "argument"),
    )

    def __post_init__(self) -> None:
        LlamaParams.__post_init__(self)
        check_cuda_graph(self.cuda_graph, self.compile)
        if self.attention == "triton":
            self._check_triton()

    def _check_triton(self) -> None:
        if self.compile != "none":
            raise UserError("attention: triton is not compiled; set compile=none")
        if self.dtype == "fp32" or self.head_dim not in (64, 128):
            raise UserError(
                "attention: triton needs dtype=bf16 or fp16 and a head dim of 64 or 128, "
                f"not {self.dtype} and {self.head_dim}"
            )

    @property
    def weight_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype if self.weights == "native" else self.weights]


def cost(p: Params) -> Cost:
    """Return the work of one step; see `llama_params.decode_cost`."""
    work = decode_cost(p, context=p.context, weight_bytes=p.weight_bytes)
    return replace(work, flops_dtype="fp8") if p.weights == "fp8" else work


def estimate_memory_bytes(p: Params) -> int:
    """Return weights, cache and activations in bytes; see `llama_params.llama_memory_bytes`."""
    return llama_memory_bytes(p, length=p.context, new_tokens=1, weight_bytes=p.weight_bytes)


def build(p: Params, context: Context) -> Program:
    """Return the decode step on the context's device."""
    import torch

    from workloads.models.execution import DTYPES, begin_step, capture, compiled, inner_ranges
    from workloads.models.llama import build_llama, install_caches, make_caches

    dtype, device = DTYPES[p.dtype], context.device
    if p.attention == "triton":
        require_triton(on_gpu=device.type == "cuda", instead="attention=sdpa")
    model = build_llama(
        p, device=device, dtype=dtype, max_length=p.context,
        ranges=inner_ranges(context, p.compile),
    )  # fmt: skip
    if p.weights != "native":
        _quantize(model, p.weights, context)
    caches = make_caches(model, p.batch, p.context, device, dtype)
    passed = caches if p.kv_cache == "argument" else None
    if passed is None:
        install_caches(model, caches)
    if p.vocab:
        x = torch.randint(p.vocab, (p.batch, 1), device=device)
    else:
        x = torch.randn((p.batch, 1, p.d_model), device=device, dtype=dtype)
    at_S = torch.tensor([p.context - 1], device=device)
    forward = compiled(model, p.compile)

    def run() -> Any:
        with torch.no_grad():
            return forward(x, at_S, passed)

    replay: Callable[[], Any] = run
    if p.cuda_graph:
        run()
        replay = capture(run, context)

    def step() -> None:
        with context.ranges.phase("forward"):
            begin_step(p.compile)
            replay()

    def metrics(timings: Timings) -> list[Metric]:
        latency_ns = timings.median_ns
        if latency_ns is None:
            return []
        return [Metric(name="time_per_token", value=latency_ns / 1e6, unit="ms")]

    return Program(step=step, compile_mode=p.compile, cuda_graph=p.cuda_graph, metrics=metrics)


def _quantize(model: "Llama", weights: str, context: Context) -> None:
    if weights == "fp8":
        require_fp8(on_gpu=context.on_gpu, instead="weights=native")
    try:
        from torchao import quantization as ao
    except ImportError as error:
        raise ToolUnavailableError(
            "torchao", f"weights={weights} needs it and it is not installed", "pip install torchao"
        ) from error
    by_row = ao.PerRow()
    if weights == "fp8":
        config = ao.Float8DynamicActivationFloat8WeightConfig(granularity=by_row)
    else:
        config = ao.Int8WeightOnlyConfig()
    ao.quantize_(model, config)


WORKLOAD = WorkloadSpec(
    name="decode",
    title="Llama decode",
    about="A Llama layer stack with a KV cache produces one token per step.",
    source=LLAMA_SOURCE,
    params=Params,
    presets=MODEL_SIZES["decode"],
    default_preset="llama-7b-layer",
    implementations=COMPILE_MODES,
    phases=("forward",),
    modes=("decode",),
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
