"""One attention operation: naive, PyTorch's fused ones, compiled, or our Triton kernels.

FLOPs of a forward pass: 4 * B * H * N^2 * D (two products of 2 * N^2 * D a head), half of it when
causal; a backward pass is 2.5 times as much, for five products instead of two
(https://arxiv.org/abs/2307.08691 section 4.1). Bytes: q, k, v read and the output written once,
backward the gradients too; the naive score matrix is left out, it is what fusion saves.
Source: https://arxiv.org/abs/2205.14135.

Ranges: forward > (attention_scores, softmax, attention_output where naive); backward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import ToolUnavailableError, UserError
from core.model_sizes import DTYPE_BYTES
from workloads.kernels.availability import require_triton
from workloads.program import Context, Metric, Program, Timings
from workloads.spec import CommonParams, Cost, WorkloadSpec, param

if TYPE_CHECKING:
    import torch

IMPLEMENTATIONS = ("naive", "sdpa", "compiled", "triton")
BACKENDS = ("auto", "flash", "mem_efficient", "cudnn", "math")
MODES = ("forward", "backward", "forward_backward")
CHECK_ROWS = 256
"""Rows of the shape on which the error against float64 is taken."""
NO_BACKEND = ("No available kernel", "No viable backend")
"""What PyTorch says on a GPU and on a CPU when the chosen backend refuses the inputs."""
TRITON_HEAD_DIMS = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(CommonParams):
    """Parameters of `attention`."""

    implementation: str = param(
        "naive", doc="which implementation runs", choices=IMPLEMENTATIONS, basic=True
    )
    backend: str = param("auto", doc="backend of sdpa", choices=BACKENDS, basic=True)
    batch: int = param(4, doc="batch size, in sequences", minimum=1, smallest=1, basic=True)
    heads: int = param(32, doc="attention heads", minimum=1, smallest=2)
    seq_len: int = param(
        2048, doc="sequence length", unit="tokens", minimum=16, maximum=65536, smallest=64,
        basic=True,
    )  # fmt: skip
    head_dim: int = param(128, doc="head dimension", minimum=8, maximum=256, smallest=16)
    causal: bool = param(False, doc="each token sees only those before it", basic=True)
    dtype: str = param(
        "fp16", doc="inputs and outputs", choices=("fp32", "tf32", "bf16", "fp16"),
        smallest="fp32", basic=True,
    )  # fmt: skip
    mode: str = param("forward", doc="what is measured", choices=MODES, basic=True)

    def __post_init__(self) -> None:
        if self.implementation == "triton":
            if self.head_dim not in TRITON_HEAD_DIMS:
                allowed = ", ".join(map(str, TRITON_HEAD_DIMS))
                raise UserError(f"head_dim: {self.head_dim} is not one of {allowed} for triton")
            if self.dtype not in ("bf16", "fp16"):
                raise UserError(f"dtype: {self.dtype} is not one of bf16, fp16 for triton")
        if self.backend != "auto" and self.implementation != "sdpa":
            raise UserError(
                f"backend: {self.backend} is of implementation=sdpa, not {self.implementation}"
            )

    @property
    def compile(self) -> str:
        return "default" if self.implementation == "compiled" else "none"


def cost(p: Params) -> Cost:
    """Return the work of one iteration; formulas and source are in the module's docstring."""
    flops = 4 * p.batch * p.heads * p.seq_len**2 * p.head_dim * (0.5 if p.causal else 1.0)
    tensor = p.batch * p.heads * p.seq_len * p.head_dim * DTYPE_BYTES[p.dtype]
    passes = {"forward": (1.0, 4), "backward": (2.5, 8), "forward_backward": (3.5, 12)}
    factor, tensors = passes[p.mode]
    return Cost(
        flops=flops * factor,
        bytes=float(tensor * tensors),
        flops_dtype=p.dtype,
        num_tokens=p.batch * p.seq_len,
    )


def estimate_memory_bytes(p: Params) -> int:
    """Return inputs, outputs, gradients and, where it is kept, the score matrix, in bytes.

    Naive: the scores in the inputs' dtype, their float32 copy and softmax, and the weights; with a
    backward pass, gradients of about as much again.
    """
    element = DTYPE_BYTES[p.dtype]
    tensor = p.batch * p.heads * p.seq_len * p.head_dim * element
    learns = p.mode != "forward"
    total = tensor * (9 if learns else 4)
    if p.implementation == "naive" or p.backend == "math":
        square = p.batch * p.heads * p.seq_len**2
        total += square * (2 * element + 8) * (2 if learns else 1)
    return total


def build(p: Params, context: Context) -> Program:
    """Return one attention on the context's device."""
    import torch

    from workloads.models.execution import DTYPES, set_matmul_precision

    set_matmul_precision(p.dtype, context)
    function = _function(p, context)
    learns = p.mode != "forward"
    shape = (p.batch, p.heads, p.seq_len, p.head_dim)
    new: dict[str, Any] = {"device": context.device, "dtype": DTYPES[p.dtype]}
    q, k, v = (torch.randn(shape, **new, requires_grad=learns) for _ in range(3))
    grad = torch.randn(shape, **new) if learns else None
    error, before = _check(p, function, context), {}
    kept = function(q, k, v) if p.mode == "backward" else None

    def step() -> None:
        out = kept
        if out is None:
            with context.ranges.phase("forward"), torch.set_grad_enabled(learns):
                out = function(q, k, v)
        if not learns:
            return
        if context.on_gpu:
            before["bytes"] = torch.cuda.memory_allocated()
        with context.ranges.phase("backward"):
            torch.autograd.grad(out, (q, k, v), grad, retain_graph=kept is not None)

    def metrics(timings: Timings) -> list[Metric]:
        reported = [Metric(name="max_abs_error", value=error, unit="")]
        if "bytes" in before:
            reported.append(Metric(name="memory_before_backward", value=before["bytes"], unit="B"))
        flops, latency_ns = cost(p).flops, timings.median_ns
        if flops and latency_ns:
            reported.append(Metric(name="throughput", value=flops / latency_ns, unit="GFLOP/s"))
        return reported

    return Program(step=step, compile_mode=p.compile, metrics=metrics)


Attend = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]


def _function(p: Params, context: Context) -> Attend:
    from workloads.measure.ranges import no_range
    from workloads.models.execution import compiled
    from workloads.models.llama import naive_attention

    if p.implementation == "sdpa":
        return _sdpa(p)
    if p.implementation == "triton":
        return _triton(p, context)
    ranges = no_range if p.implementation == "compiled" else context.ranges.nested

    def naive(q: Any, k: Any, v: Any) -> Any:
        return naive_attention(q, k, v, None, p.causal, ranges)

    return compiled(naive, p.compile)


def _sdpa(p: Params) -> Attend:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }

    def run(q: Any, k: Any, v: Any) -> Any:
        if p.backend == "auto":
            return scaled_dot_product_attention(q, k, v, is_causal=p.causal)
        try:
            with sdpa_kernel(backends[p.backend]):
                return scaled_dot_product_attention(q, k, v, is_causal=p.causal)
        except RuntimeError as error:
            if not any(words in str(error) for words in NO_BACKEND):
                raise
            raise ToolUnavailableError(
                f"sdpa {p.backend}", "this backend does not take these inputs on this device",
                "Choose another backend, or auto",
            ) from error  # fmt: skip

    return run


def _triton(p: Params, context: Context) -> Attend:
    require_triton(on_gpu=context.on_gpu, instead="implementation=naive or sdpa")
    from workloads.kernels.attention.function import attention

    return lambda q, k, v: attention(q, k, v, causal=p.causal)


def _check(p: Params, function: Attend, context: Context) -> float:
    """Return the largest absolute error of the output against float64, on a small shape."""
    import torch

    from workloads.models.execution import DTYPES

    rows = min(CHECK_ROWS, p.seq_len)
    new: dict[str, Any] = {"device": context.device, "dtype": DTYPES[p.dtype]}
    q, k, v = (torch.randn((1, min(2, p.heads), rows, p.head_dim), **new) for _ in range(3))
    with torch.no_grad():
        out = function(q, k, v)
        wide = [t.double() for t in (q, k, v)]
        scores = wide[0] @ wide[1].transpose(-2, -1) * p.head_dim**-0.5
        if p.causal:
            keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
            scores = scores.masked_fill(~keep, float("-inf"))
        truth = scores.softmax(-1) @ wide[2]
    return (out.double() - truth).abs().max().item()


WORKLOAD = WorkloadSpec(
    name="attention",
    title="Attention",
    about="One attention operation: time, memory and error of each implementation.",
    source="https://arxiv.org/abs/2205.14135",
    params=Params,
    implementations=IMPLEMENTATIONS,
    phases=("forward", "backward"),
    modes=MODES,
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
