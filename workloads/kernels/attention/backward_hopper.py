"""Fused attention, backward, for Hopper: warp-specialised, five products a block, in Gluon.

One program does 128 keys of one head. One warp loads q and do by TMA into rings of `STAGES` blocks;
two warpgroups do 64 keys each (https://arxiv.org/abs/2407.08608, appendix B). With
p = exp2(q k^T * scale - lse) and delta = rowsum(o * do), a block of queries adds to
dv = p^T do and dk = ds^T q with ds = p * (do v^T - delta), which stay in registers, and its
dq = ds k goes to memory by atomic adds: what the other keys add comes from other programs. So dq
is summed in any order; `attention_backward` has kernels whose every sum has one order.

Each warpgroup leaves its ds in shared memory for the other: each does half of dq for all 128 keys.
The scores of the next block are issued before dq and dk of this one, so that one product is in
flight during the exponentials.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from workloads.kernels.attention.forward_hopper import barriers, from_shared, rows_of, to_shared

HEAD_DIMS = (64, 128)
KEYS = 128
"""Keys of a program; N must be a multiple of it."""
STAGES = 2
TILE = gl.constexpr(64)
"""Rows and columns of the part of dq that a warpgroup adds."""
_REGISTERS = 240


def _queries(head_dim: int) -> int:
    """Return the queries of a block: as many as the registers hold."""
    return 64 if head_dim == 128 else 128


@gluon.jit
def _load(q_in, k_in, v_in, do_in, lse_in, delta_in, k_at, v_at, q_at, do_at, lse_at, delta_at,
          kv_full, q_full, q_free, do_full, do_free, row, key_row, steps,
          STAGES: gl.constexpr):  # fmt: skip
    HALF: gl.constexpr = k_in.block_shape[0]
    M: gl.constexpr = q_in.block_shape[0]
    mbarrier.expect(kv_full.index(0), 4 * k_in.block_type.nbytes)
    for part in gl.static_range(2):
        to_shared(k_in, [key_row + part * HALF, 0], kv_full.index(0), k_at.index(part))
        to_shared(v_in, [key_row + part * HALF, 0], kv_full.index(0), v_at.index(part))
    for step in range(steps):
        stage = step % STAGES
        phase = (step // STAGES & 1) ^ 1
        mbarrier.wait(q_free.index(stage), phase)
        mbarrier.expect(q_full.index(stage), q_in.block_type.nbytes + lse_in.block_type.nbytes)
        to_shared(q_in, [row, 0], q_full.index(stage), q_at.index(stage))
        to_shared(lse_in, [row // M, 0], q_full.index(stage), lse_at.index(stage))
        mbarrier.wait(do_free.index(stage), phase)
        mbarrier.expect(do_full.index(stage), do_in.block_type.nbytes + delta_in.block_type.nbytes)
        to_shared(do_in, [row, 0], do_full.index(stage), do_at.index(stage))
        to_shared(delta_in, [row // M, 0], do_full.index(stage), delta_at.index(stage))
        row += M


@gluon.jit
def _place_in_tile(OF_DQ: gl.constexpr):
    """Return where each element of a tile of dq is kept: a thread's neighbours are four in a row.

    In the layout of a product, thread `lane` of warp `w` has of every 8 columns the two from
    2 * (lane % 4) on, in the rows 16 * w + lane // 4 and 8 below.
    """
    r = gl.arange(0, TILE, gl.SliceLayout(1, OF_DQ))[:, None]
    c = gl.arange(0, TILE, gl.SliceLayout(0, OF_DQ))[None, :]
    thread = (c // 8 * 4 + r // 16) * 32 + r % 8 * 4 + c % 8 // 2
    return thread * 4 + r % 16 // 8 * 2 + c % 2


@gluon.jit
def _add_to(target, values):
    gl.inline_asm_elementwise(
        "red.relaxed.gpu.global.add.v4.f32 [$4], {$8, $9, $10, $11};",
        "=r,=r,=r,=r,l,l,l,l,f,f,f,f", [target.to(gl.int64), values], dtype=gl.int32,
        is_pure=False, pack=4,
    )  # fmt: skip


@gluon.jit
def _in_pairs(values):
    """Return float32 as bf16, two by an instruction.

    The compiler takes one each, at a quarter of the rate, where the result is also read alone.
    """
    return gl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [values], dtype=gl.bfloat16, is_pure=True,
        pack=2,
    )  # fmt: skip


@gluon.jit
def _grad_of_scores(do_at, values, do_full, empty, stage, phase):
    mbarrier.wait(do_full.index(stage), phase)
    grads = do_at.index(stage).permute((1, 0))
    return warpgroup_mma(values, grads, empty, use_acc=False, is_async=True)


@gluon.jit
def _multiply(dk_out, dv_out, dq_sum, k_at, v_at, q_at, do_at, ds_at, lse_at, delta_at, kv_full,
              q_full, q_free, do_full, do_free, ds_full, kv_free, scale, row, key_row, steps,
              WHICH: gl.constexpr, CAUSAL: gl.constexpr, STAGES: gl.constexpr, LATE: gl.constexpr,
              ROUNDED: gl.constexpr):  # fmt: skip
    HALF: gl.constexpr = k_at.shape[1]
    D: gl.constexpr = k_at.shape[2]
    M: gl.constexpr = q_at.shape[1]
    of_s: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, M, 16])
    of_d: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    of_dq: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    of_p: gl.constexpr = gl.DotOperandLayout(0, of_d, 2)
    dtype: gl.constexpr = k_at.dtype
    log2_scale = scale * 1.4426950408889634
    no_scores = gl.zeros([HALF, M], gl.float32, of_s)
    no_dq = gl.zeros([TILE, TILE], gl.float32, of_dq)
    dk = gl.zeros([HALF, D], gl.float32, of_d)
    dv = gl.zeros([HALF, D], gl.float32, of_d)
    dq = no_dq
    keys, values, others = k_at.index(WHICH), v_at.index(WHICH), k_at.index(1 - WHICH)
    add_at = dq_sum + (row.to(gl.int64) * D + WHICH * TILE * TILE) + _place_in_tile(of_dq)
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(q_full.index(0), 0)
    first = q_at.index(0).permute((1, 0))
    s = warpgroup_mma(keys, first, no_scores, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, [s])
    for step in range(steps):
        stage = step % STAGES
        phase = step // STAGES & 1
        before = (step + STAGES - 1) % STAGES
        mbarrier.arrive(do_free.index(before), pred=step > 0)
        _add_to(add_at + gl.maximum(step - 1, 0) * (M * D), dq)  # the first adds zeros
        if not LATE:
            dp = _grad_of_scores(do_at, values, do_full, no_scores, stage, phase)
        p = gl.exp2(s * log2_scale - lse_at.index(stage).load(of_s))
        if CAUSAL:
            q_row = step * M + gl.arange(0, M, gl.SliceLayout(0, of_s))
            k_row = WHICH * HALF + gl.arange(0, HALF, gl.SliceLayout(1, of_s))
            p = gl.where(q_row[None, :] >= k_row[:, None], p, 0.0)
        if ROUNDED:
            p = _in_pairs(p) if dtype == gl.bfloat16 else p.to(dtype)
        p16 = gl.convert_layout(p.to(dtype), of_p)
        if LATE:
            dp = _grad_of_scores(do_at, values, do_full, no_scores, stage, phase)
        dp, dk = warpgroup_mma_wait(0, [dp, dk])
        mbarrier.arrive(q_free.index(before), pred=step > 0)
        dv = warpgroup_mma(p16, do_at.index(stage), dv, is_async=True)
        ds = (p.to(gl.float32) * (dp - delta_at.index(stage).load(of_s))).to(dtype)
        # both are done with what they left here STAGES blocks ago
        mbarrier.wait(q_free.index(stage), phase ^ 1)
        mine, theirs = ds_at.index(stage * 2 + WHICH), ds_at.index(stage * 2 + 1 - WHICH)
        mine.store(ds)
        fence_async_shared()
        mbarrier.arrive(ds_full.index(stage * 2 + WHICH))
        ahead = gl.minimum(step + 1, steps - 1)
        mbarrier.wait(q_full.index(ahead % STAGES), ahead // STAGES & 1)
        queries = q_at.index(ahead % STAGES).permute((1, 0))
        s = warpgroup_mma(keys, queries, no_scores, use_acc=False, is_async=True)
        if D == 2 * TILE:
            own = keys.slice(WHICH * TILE, TILE, dim=1)
            other = others.slice(WHICH * TILE, TILE, dim=1)
            dq = warpgroup_mma(mine.permute((1, 0)), own, no_dq, use_acc=False, is_async=True)
            mbarrier.wait(ds_full.index(stage * 2 + 1 - WHICH), phase)
            dq = warpgroup_mma(theirs.permute((1, 0)), other, dq, is_async=True)
        else:
            own = mine.slice(WHICH * TILE, TILE, dim=1).permute((1, 0))
            other = theirs.slice(WHICH * TILE, TILE, dim=1).permute((1, 0))
            dq = warpgroup_mma(own, keys, no_dq, use_acc=False, is_async=True)
            mbarrier.wait(ds_full.index(stage * 2 + 1 - WHICH), phase)
            dq = warpgroup_mma(other, others, dq, is_async=True)
        dk = warpgroup_mma(mine, q_at.index(stage), dk, is_async=True)
        s, dq, dk, dv = warpgroup_mma_wait(1, [s, dq, dk, dv])
    s, dq, dk, dv = warpgroup_mma_wait(0, [s, dq, dk, dv])
    _add_to(add_at + (steps - 1) * (M * D), dq)
    # the results take the place of k and v, which the other still reads until it arrives here
    mbarrier.arrive(kv_free.index(0))
    mbarrier.wait(kv_free.index(0), 0)
    values.store(dv.to(dtype))
    keys.store((dk * scale).to(dtype))
    fence_async_shared()
    from_shared(dv_out, [key_row + WHICH * HALF, 0], values)
    from_shared(dk_out, [key_row + WHICH * HALF, 0], keys)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["N"])
def attention_backward_hopper(q_in, k_in, v_in, do_in, lse_in, delta_in, dk_out, dv_out, dq_sum,
                              scale, N, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
                              LATE: gl.constexpr, ROUNDED: gl.constexpr,
                              REGISTERS: gl.constexpr):  # fmt: skip
    """Write dk and dv [B * H * N, D], and add to dq_sum what `finish_dq` reads.

    LATE issues do v^T after the exponentials, which takes fewer registers; ROUNDED keeps p in the
    dtype of q for ds too.
    """
    M: gl.constexpr = q_in.block_shape[0]
    HALF: gl.constexpr = k_in.block_shape[0]
    D: gl.constexpr = k_in.block_shape[1]
    of_ds: gl.constexpr = gl.NVMMASharedLayout.get_default_for([HALF, M], k_in.dtype)
    k_at = gl.allocate_shared_memory(k_in.dtype, [2, HALF, D], k_in.layout)
    v_at = gl.allocate_shared_memory(k_in.dtype, [2, HALF, D], k_in.layout)
    q_at = gl.allocate_shared_memory(k_in.dtype, [STAGES, M, D], q_in.layout)
    do_at = gl.allocate_shared_memory(k_in.dtype, [STAGES, M, D], q_in.layout)
    ds_at = gl.allocate_shared_memory(k_in.dtype, [2 * STAGES, HALF, M], of_ds)
    lse_at = gl.allocate_shared_memory(gl.float32, [STAGES, 1, M], lse_in.layout)
    delta_at = gl.allocate_shared_memory(gl.float32, [STAGES, 1, M], lse_in.layout)
    kv_full, kv_free = barriers(1, 1), barriers(1, 2)
    q_full, q_free = barriers(STAGES, 1), barriers(STAGES, 2)
    do_full, do_free = barriers(STAGES, 1), barriers(STAGES, 2)
    ds_full = barriers(2 * STAGES, 1)
    fence_async_shared()
    base = gl.program_id(1) * N
    key_row = gl.program_id(0) * (2 * HALF)
    first = 0
    if CAUSAL:
        first = key_row
    steps = (N - first) // M
    gl.warp_specialize([
        (_multiply, (dk_out, dv_out, dq_sum, k_at, v_at, q_at, do_at, ds_at, lse_at, delta_at,
                     kv_full, q_full, q_free, do_full, do_free, ds_full, kv_free, scale,
                     base + first, base + key_row, steps, 0, CAUSAL, STAGES, LATE, ROUNDED)),
        (_multiply, (dk_out, dv_out, dq_sum, k_at, v_at, q_at, do_at, ds_at, lse_at, delta_at,
                     kv_full, q_full, q_free, do_full, do_free, ds_full, kv_free, scale,
                     base + first, base + key_row, steps, 1, CAUSAL, STAGES, LATE, ROUNDED)),
        (_load, (q_in, k_in, v_in, do_in, lse_in, delta_in, k_at, v_at, q_at, do_at, lse_at,
                 delta_at, kv_full, q_full, q_free, do_full, do_free, base + first,
                 base + key_row, steps, STAGES)),
    ], [4, 1], [REGISTERS, 24])  # fmt: skip


@triton.jit
def finish_dq(dq_sum, dq, scale, D: tl.constexpr):
    """Write a tile of dq [B * H * N, D] from the sums, which lie as `_place_in_tile` says."""
    tile = tl.program_id(0)
    sums = tl.load(dq_sum + tile.to(tl.int64) * 4096 + tl.arange(0, 4096))
    in_threads = sums.reshape(8, 4, 8, 4, 2, 2).permute(1, 4, 2, 0, 3, 5)
    values = in_threads.reshape(64, 64) * scale
    across: tl.constexpr = D // 64
    rows = tile // across * 64 + tl.arange(0, 64)
    columns = tile % across * 64 + tl.arange(0, 64)
    at = dq + rows[:, None].to(tl.int64) * D + columns[None, :]
    tl.store(at, values.to(dq.dtype.element_ty))


def _access(values: Tensor, width: int) -> Any:
    """Return the descriptor of one float32 a row (lse, delta), a block of `width` rows at once."""
    blocks = values.view(-1, width)
    return TensorDescriptor(blocks, list(blocks.shape), [width, 1], [1, width], _OF_ROWS)


_OF_ROWS = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)


def differentiate(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, lse: Tensor, delta: Tensor, dq: Tensor,
    dk: Tensor, dv: Tensor, *, causal: bool, scale: float,
) -> None:  # fmt: skip
    """Write dq, dk and dv; all [B, H, N, D] (lse and delta without D) and contiguous.

    lse is the log2-sum-exp2 of each row's scaled scores, delta the rows' sums of out * grad. One
    buffer of q's shape in float32 is taken for the sums of dq.
    """
    b, h, n, d = q.shape
    queries = _queries(d)
    sums = torch.zeros(q.numel(), device=q.device, dtype=torch.float32)
    attention_backward_hopper[(n // KEYS, b * h)](
        rows_of(q, queries), rows_of(k, KEYS // 2), rows_of(v, KEYS // 2), rows_of(grad, queries),
        _access(lse, queries), _access(delta, queries), rows_of(dk, KEYS // 2),
        rows_of(dv, KEYS // 2), sums, scale, n, CAUSAL=causal, STAGES=STAGES,
        LATE=d == 64 or (causal and q.dtype == torch.float16), ROUNDED=not causal,
        REGISTERS=_REGISTERS, num_warps=4,
    )  # fmt: skip
    finish_dq[(q.numel() // 4096,)](sums, dq, scale, D=d)
