"""One matrix product c[M, N] = a[M, K] b[N, K]^T: cuBLAS, or our Triton kernel with a chosen tile.

For a decode step M is small and `b` is read once: what matters is how many blocks the tile makes,
against the number of SMs. FLOPs 2 * M * N * K; bytes: a and b read, c written, once.
Source: https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication

On a GPU the clean pass replays a CUDA graph of `GRAPH_CALLS` products that take turns among several
copies of `b`, more than L2 holds: events around one launch would measure the launch, and repeats on
one `b` the cache. Profiler passes launch single products.
Ranges: gemm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import UserError
from core.model_sizes import DTYPE_BYTES
from workloads.kernels.availability import require_fp8, require_triton
from workloads.program import Context, Metric, Program, Timings
from workloads.spec import CommonParams, Cost, ParamValue, WorkloadSpec, param

GRAPH_CALLS = 24
ROTATED_BYTES = 400_000_000
"""Copies of `b` are made until they are this large together, at most `MAX_COPIES`."""
MAX_COPIES = 24
IMPLEMENTATIONS = ("cublas", "triton")
POWERS: tuple[ParamValue, ...] = (16, 32, 64, 128, 256)
FP8_MAX = 448.0
FP8_MULTIPLE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(CommonParams):
    """Parameters of `gemm`."""

    m: int = param(16, doc="rows of a", minimum=1, maximum=65536, smallest=4, basic=True)
    n: int = param(11008, doc="rows of b", minimum=1, maximum=262144, smallest=64, basic=True)
    k: int = param(
        4096,
        doc="inner dimension, the row length of a and b",
        minimum=1,
        maximum=262144,
        smallest=64,
        basic=True,
    )
    dtype: str = param(
        "bf16", doc="of a and b; fp8 needs compute capability 8.9",
        choices=("fp32", "tf32", "bf16", "fp16", "fp8"), smallest="fp32", basic=True,
    )  # fmt: skip
    implementation: str = param(
        "cublas", doc="which implementation runs", choices=IMPLEMENTATIONS, basic=True
    )
    tile_m: int = param(16, doc="triton: tile size along M", choices=POWERS, basic=True)
    tile_n: int = param(64, doc="triton: tile size along N", choices=POWERS, basic=True)
    tile_k: int = param(64, doc="triton: tile size along K", choices=POWERS)
    split_k: int = param(1, doc="triton: split-K factor", minimum=1, maximum=64)
    warps: int = param(4, doc="triton: warps per block", choices=(1, 2, 4, 8, 16))
    stages: int = param(3, doc="triton: pipeline stages", minimum=1, maximum=8)

    def __post_init__(self) -> None:
        for name in ("n", "k"):
            if self.dtype == "fp8" and getattr(self, name) % FP8_MULTIPLE:
                raise UserError(
                    f"{name}: {getattr(self, name)} is not a multiple of {FP8_MULTIPLE}, "
                    "as dtype=fp8 needs"
                )


def cost(p: Params) -> Cost:
    """Return the work of one product; formulas and source are in the module's docstring."""
    element = DTYPE_BYTES[p.dtype]
    out = 2 if p.dtype == "fp8" else element
    moved = (p.m * p.k + p.n * p.k) * element + p.m * p.n * out
    return Cost(
        flops=2.0 * p.m * p.n * p.k, bytes=float(moved), flops_dtype=p.dtype, num_tokens=p.m
    )


def num_copies(p: Params) -> int:
    """Return how many copies of `b` the clean pass on a GPU takes turns among."""
    size = p.n * p.k * DTYPE_BYTES[p.dtype]
    return max(1, min(MAX_COPIES, -(-ROTATED_BYTES // size)))


def estimate_memory_bytes(p: Params) -> int:
    """Return a, the copies of b, c and split-K parts, in bytes."""
    element = DTYPE_BYTES[p.dtype]
    parts = p.split_k * p.m * p.n * 4 if p.split_k > 1 else 0
    return p.m * p.k * element + p.n * p.k * element * num_copies(p) + p.m * p.n * 4 + parts


def build(p: Params, context: Context) -> Program:
    """Return one product, or a replay of many, on the context's device."""
    import torch

    from workloads.models.execution import capture_calls, set_matmul_precision

    set_matmul_precision(p.dtype, context)
    replays = context.on_gpu and context.is_clean
    a = _operand(p, (p.m, p.k), context)
    weights = [_operand(p, (p.n, p.k), context) for _ in range(num_copies(p) if replays else 1)]
    product = _product(p, context)
    with torch.no_grad():
        error = _max_abs_error(product(a, weights[0]), a, weights[0])
        run: Callable[[], Any] = lambda: product(a, weights[0])  # noqa: E731
        if replays:
            calls: list[Callable[[], Any]] = [partial(product, a, b) for b in weights]
            run = capture_calls(calls, GRAPH_CALLS, context)

    def step() -> None:
        with context.ranges.phase("gemm"), torch.no_grad():
            run()

    def metrics(timings: Timings) -> list[Metric]:
        return [Metric(name="max_abs_error", value=error, unit=""), *_grid_metrics(p, context)]

    return Program(step=step, calls_per_step=GRAPH_CALLS if replays else 1, metrics=metrics)


def _operand(p: Params, shape: tuple[int, int], context: Context) -> Any:
    import torch

    from workloads.models.execution import DTYPES

    if p.dtype != "fp8":
        return torch.randn(shape, device=context.device, dtype=DTYPES[p.dtype])
    require_fp8(on_gpu=context.on_gpu, instead="dtype=bf16")
    values = torch.randn(shape, device=context.device).clamp(-FP8_MAX, FP8_MAX)
    return values.to(torch.float8_e4m3fn)


def _product(p: Params, context: Context) -> Callable[[Any, Any], Any]:
    import torch

    if p.implementation == "cublas":
        if p.dtype != "fp8":
            return torch.nn.functional.linear
        unit_scale = torch.ones((), device=context.device)
        return lambda a, b: torch._scaled_mm(
            a, b.T, unit_scale, unit_scale, out_dtype=torch.bfloat16
        )
    require_triton(on_gpu=context.on_gpu, instead="implementation=cublas")
    from workloads.kernels.gemm import gemm

    tile = _tile(p)
    precision = "tf32" if p.dtype == "tf32" else "ieee"
    return lambda a, b: gemm(a, b, tile, precision=precision)


def _tile(p: Params) -> Any:
    from workloads.kernels.gemm import GemmTile

    return GemmTile(
        block_m=p.tile_m,
        block_n=p.tile_n,
        block_k=p.tile_k,
        split_k=p.split_k,
        warps=p.warps,
        stages=p.stages,
    )


def _max_abs_error(out: Any, a: Any, b: Any) -> float:
    import torch

    def wide(x: Any) -> Any:
        return x.to(torch.float32).double()

    rows = slice(0, 256)
    truth = wide(a[rows]) @ wide(b[rows]).T
    return (wide(out[rows, rows]) - truth).abs().max().item()


def _grid_metrics(p: Params, context: Context) -> list[Metric]:
    """Return blocks and waves of the Triton grid: those of cuBLAS are known to profilers only."""
    if p.implementation != "triton":
        return []
    blocks = _tile(p).num_blocks(p.m, p.n)
    metrics = [Metric(name="grid_blocks", value=blocks, unit="blocks")]
    if context.on_gpu:
        import torch

        sms = torch.cuda.get_device_properties(0).multi_processor_count
        metrics.append(Metric(name="blocks_per_sm", value=blocks / sms, unit="blocks/SM"))
    return metrics


WORKLOAD = WorkloadSpec(
    name="gemm",
    title="Matrix product",
    about="One product with a chosen tile and split-K: blocks, waves and throughput at small M.",
    source="https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication",
    params=Params,
    presets={
        "llama-7b-up": {"m": 1, "n": 11008, "k": 4096},
        "tile-64x64": {"tile_m": 64, "tile_n": 64},
        "tile-128x128": {"tile_m": 128, "tile_n": 128},
    },
    implementations=IMPLEMENTATIONS,
    phases=("gemm",),
    modes=("forward",),
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
