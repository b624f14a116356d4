"""Print the errors of our Triton kernels against float64, run by Triton's interpreter, as JSON.

A program of its own: TRITON_INTERPRET must be set before triton is first imported.
"""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from workloads.kernels import moe_regroup
from workloads.kernels.attention.decode import attend_one
from workloads.kernels.attention.function import attention
from workloads.kernels.gemm import GemmTile, gemm, gemm_kernel, small_gemm
from workloads.kernels.moe_regroup import regroup
from workloads.kernels.rms_norm import rms_norm


def relative(out: torch.Tensor, truth: torch.Tensor) -> float:
    return ((out.double() - truth).norm() / truth.norm()).item()


def attention_errors(n: int, d: int, causal: bool, use_tma: bool) -> dict[str, float]:
    shape = (1, 2, n, d)
    q, k, v = (torch.randn(shape, dtype=torch.float16, requires_grad=True) for _ in range(3))
    grad = torch.randn(shape, dtype=torch.float16)
    out = attention(q, k, v, causal=causal, use_tma=use_tma)
    ours = [out, *torch.autograd.grad(out, (q, k, v), grad)]
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    scores = wide[0] @ wide[1].transpose(-1, -2) * d**-0.5
    if causal:
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    truth_out = scores.softmax(-1) @ wide[2]
    truth = [truth_out, *torch.autograd.grad(truth_out, wide, grad.double())]
    names = ("out", "dq", "dk", "dv")
    return {name: relative(o, t) for name, o, t in zip(names, ours, truth, strict=True)}


def decode_attention_error(
    batch: int, heads: int, kv_heads: int, n: int, d: int
) -> dict[str, float]:
    """The second call finds the workspace as the first one left it."""
    q = torch.randn(batch, heads, 1, d).half()
    k, v = (torch.randn(batch, kv_heads, n, d).half() for _ in range(2))
    attend_one(q, k, v)
    out = attend_one(q, k, v)
    wide_k, wide_v = (t.double().repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    truth = (q.double() @ wide_k.mT * d**-0.5).softmax(-1) @ wide_v
    return {"out": relative(out, truth)}


def gemm_errors(m: int, n: int, k: int, split_k: int) -> dict[str, float]:
    a, b = torch.randn(m, k).half(), torch.randn(n, k).half()
    truth = a.double() @ b.double().T
    tile = GemmTile(block_m=16, block_n=32, block_k=32, split_k=split_k)
    errors = {"gemm": relative(gemm(a, b, tile), truth)}
    if m <= 16:
        errors["small_gemm"] = relative(small_gemm(a, b), truth)
    if m == 1:
        out = torch.empty(1, n, dtype=torch.float16)
        gemm_kernel[(-(-n // 8), 1, 1)](
            a, b, out, 1, n, k, BLOCK_M=1, BLOCK_N=8, BLOCK_K=32, SPLIT_K=1, USE_DOT=False,
            EVEN_K=k % 32 == 0, STAGES=1, PRECISION="tf32",
        )  # fmt: skip
        errors["vector"] = relative(out, truth)
    return errors


def regroup_is_wrong(
    tokens: int, experts: int, top_k: int, most_programs: int = moe_regroup.MAX_PROGRAMS
) -> dict[str, float]:
    """Few programs take several blocks each, as with more slots than an interpreter is fit for."""
    moe_regroup.MAX_PROGRAMS = most_programs
    ids = torch.randint(experts, (tokens, top_k))
    order, starts = regroup(ids, experts)
    flat = ids.flatten()
    same = torch.equal(order.long(), torch.sort(flat, stable=True).indices)
    counts = torch.equal((starts[1:] - starts[:-1]).long(), torch.bincount(flat, minlength=experts))
    return {"order": float(not same), "starts": float(not counts or starts[0].item() != 0)}


def rms_norm_error(width: int) -> dict[str, float]:
    x, weight = torch.randn(3, 5, width).half(), torch.randn(width).half()
    wide = x.double()
    truth = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.double()
    return {"out": relative(rms_norm(x, weight), truth)}


CASES = {
    "attention": (
        attention_errors,
        [
            (128, 16, True, True), (128, 16, False, False), (100, 16, True, False),
            (72, 32, False, False), (16, 128, True, False),
        ],
    ),
    "decode_attention": (
        decode_attention_error,
        [(1, 4, 4, 100, 64), (2, 8, 2, 300, 64), (1, 2, 1, 16, 128), (1, 2, 2, 513, 64)],
    ),
    "gemm": (gemm_errors, [(1, 48, 100, 1), (7, 40, 128, 3), (33, 70, 90, 2), (16, 64, 64, 1)]),
    "regroup": (
        regroup_is_wrong,
        [
            (700, 8, 2), (300, 60, 1), (1, 3, 2), (0, 3, 2), (64, 300, 4), (900, 2, 2, 3),
        ],
    ),
    "rms_norm": (rms_norm_error, [(100,), (64,)]),
}  # fmt: skip


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    errors = {
        name: {json.dumps(case): measure(*case) for case in cases}
        for name, (measure, cases) in CASES.items()
    }
    print(json.dumps(errors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
