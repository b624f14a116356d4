"""Matrix product c[M, N] = a[M, K] b[N, K]^T with the tile and split-K as parameters.

`b` lies as in nn.Linear, K contiguous. With small M (a decode step) the product is bound by reading
`b` once: BLOCK_M is 16 (the least a tensor core has), narrow BLOCK_N makes enough blocks for every
SM, and split-K divides K among blocks whose float32 parts a second kernel adds in a fixed order.
For M = 1 `USE_DOT=False` multiplies and adds without tensor cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from workloads.kernels.tuning import choices, tile

SMALL_M = 16
"""Most rows that `small_gemm` takes."""


@triton.jit
def gemm_kernel(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr, USE_DOT: tl.constexpr,
                EVEN_K: tl.constexpr, STAGES: tl.constexpr,
                PRECISION: tl.constexpr):  # fmt: skip
    """Write one tile of c, or of the part [SPLIT_K, M, N] that belongs to this program."""
    pid_n = tl.program_id(0)
    pid_m = tl.program_id(1)
    pid_k = tl.program_id(2)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    a_at = a + rows[:, None].to(tl.int64) * K + steps[None, :]
    b_at = b + columns[:, None].to(tl.int64) * K + steps[None, :]
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    lo = pid_k * share
    hi = tl.minimum(lo + share, K)
    if USE_DOT:
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    else:
        acc = tl.zeros([BLOCK_N, BLOCK_K], tl.float32)
    for k in tl.range(lo, hi, BLOCK_K, num_stages=STAGES):
        b_mask = columns[:, None] < N
        a_mask = rows[:, None] < M
        if not EVEN_K:
            b_mask = b_mask & (k + steps[None, :] < K)
            a_mask = a_mask & (k + steps[None, :] < K)
        weights = tl.load(b_at + k, mask=b_mask, other=0.0)
        if USE_DOT:
            values = tl.load(a_at + k, mask=a_mask, other=0.0)
            acc = tl.dot(values, weights.T, acc, input_precision=PRECISION)
        else:
            vector = tl.load(a + k + steps, mask=k + steps < K, other=0.0)
            acc += weights.to(tl.float32) * vector.to(tl.float32)[None, :]
    if USE_DOT:  # noqa: SIM108
        out = acc
    else:
        out = tl.sum(acc, 1)[None, :]
    at = c + (pid_k.to(tl.int64) * M + rows[:, None]) * N + columns[None, :]
    tl.store(at, out.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def add_parts_kernel(parts, c, size, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    """Write c = sum of the SPLIT_K parts, added in order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(parts + part * size + at, mask=at < size, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < size)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmTile:
    """How the work is cut."""

    block_m: int
    block_n: int
    block_k: int
    split_k: int = 1
    warps: int = 4
    stages: int = 3

    def num_blocks(self, m: int, n: int) -> int:
        """Return the blocks of the main kernel's grid."""
        return triton.cdiv(m, self.block_m) * triton.cdiv(n, self.block_n) * self.split_k


def gemm(a: Tensor, b: Tensor, tile_of: GemmTile, *, precision: str = "tf32") -> Tensor:
    """Return a b^T with one given tile. dtypes: float16, bfloat16, float32, float8 (bfloat16 out).

    `precision` is that of float32 products: `tf32` or `ieee`.
    """
    m, k = a.shape
    n = b.shape[0]
    out = torch.empty((m, n), device=a.device, dtype=_out_dtype(a.dtype))
    split = tile_of.split_k
    target = out
    if split > 1:
        target = torch.empty((split, m, n), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(n, tile_of.block_n), triton.cdiv(m, tile_of.block_m), split)
    gemm_kernel[grid](
        a, b, target, m, n, k,
        BLOCK_M=tile_of.block_m, BLOCK_N=tile_of.block_n, BLOCK_K=tile_of.block_k, SPLIT_K=split,
        USE_DOT=True, EVEN_K=k % tile_of.block_k == 0, STAGES=tile_of.stages, PRECISION=precision,
        num_warps=tile_of.warps, num_stages=tile_of.stages,
    )  # fmt: skip
    if split > 1:
        add_parts_kernel[(triton.cdiv(m * n, 1024),)](target, out, m * n, SPLIT_K=split, BLOCK=1024)
    return out


def _out_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype.itemsize == 1 else dtype


def _small(warps: int, stages: int, n: int, k: int, dot: bool = True) -> Any:
    meta: dict[str, Any] = {
        "BLOCK_M": 16 if dot else 1,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "STAGES": stages,
    }
    meta["PRECISION"] = "tf32"
    return tile(warps, stages, USE_DOT=dot, SPLIT_K=1, **meta)


_SMALL = [
    _small(4, 4, 16, 256),
    _small(4, 3, 16, 512),
    _small(4, 4, 32, 128),
    _small(4, 3, 32, 256),
    _small(8, 3, 32, 256),
    _small(4, 5, 64, 64),
    _small(4, 3, 8, 512, dot=False),
    _small(4, 4, 4, 1024, dot=False),
    _small(8, 2, 16, 512, dot=False),
    _small(4, 1, 4, 1024, dot=False),
]


def _for_rows(configs: list[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
    kept = [c for c in configs if c.kwargs["USE_DOT"] or named_args["M"] == 1]
    return [c for c in kept if named_args["K"] % c.kwargs["BLOCK_K"] == 0] or kept


_small_kernel = triton.autotune(
    configs=choices(_SMALL, interpreted=_small(4, 1, 16, 64)),
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": _for_rows},
)(triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})(gemm_kernel))


def small_gemm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a b^T for 1 to 16 rows of float16 or bfloat16, with tuned tiles.

    Raises ValueError for more rows.
    """
    m, k = a.shape
    n = b.shape[0]
    if not 1 <= m <= SMALL_M:
        raise ValueError(f"small_gemm takes 1 to {SMALL_M} rows, not {m}")
    if out is None:
        out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    _small_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_N"]), 1, 1)](a, b, out, m, n, k)
    return out
