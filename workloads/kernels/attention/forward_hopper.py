"""Fused attention, forward, for Hopper: warp-specialised after FlashAttention-3, in Gluon.

The algorithm of https://arxiv.org/abs/2407.08608: one warp loads K and V by TMA into rings of
`STAGES` blocks, and two warpgroups do 64 query rows each. A warpgroup issues q k^T of a block, then
p v of the block before, and takes the softmax while p v runs; the two warpgroups issue their
products in turns, so that one has its softmax while the other multiplies. Blocks go from the last
to the first: only the first done, on the diagonal, needs the causal mask. A program does several
tiles, so that the loads of a tile run during the end of the one before.
"""

import functools
from typing import Any

import torch
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

HEAD_DIMS = (64, 128)
BLOCK = 128
"""Rows of a tile, and of a block of K or V; N must be a multiple of it."""
STAGES = 2
GROUP = 1
"""Heads whose tiles are done together, so that their K and V stay in L2."""
_REGISTERS = 240
"""Of a thread that multiplies; one that loads has 24: together all that a core has."""
# Named otherwise since Triton 3.7 or so.
to_shared = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
from_shared = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def _turns(num_tiles):
    """Return how many tiles this program does: one a round, the order of programs alternating."""
    rounds = num_tiles // gl.num_programs(0)
    return rounds + (_place(rounds) < num_tiles - rounds * gl.num_programs(0)).to(gl.int32)


@gluon.jit
def _place(turn):
    place = gl.program_id(0)
    if turn & 1:
        place = gl.num_programs(0) - 1 - place
    return place


@gluon.jit
def _tile_of(turn, num_blocks, num_heads, CAUSAL: gl.constexpr, GROUP: gl.constexpr):
    """Return (head, block): heads in groups that share L2; causal, the longest blocks first."""
    tile = turn * gl.num_programs(0) + _place(turn)
    first = tile // (GROUP * num_blocks) * GROUP
    size = min(num_heads - first, GROUP)
    rest = tile - first * num_blocks
    block = rest // size
    if CAUSAL:
        block = num_blocks - 1 - block
    return first + rest % size, block


@gluon.jit
def _fetch(source, ring, full, free, step, row, STAGES: gl.constexpr):
    stage = step % STAGES
    mbarrier.wait(free.index(stage), (step // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(stage), source.block_type.nbytes)
    to_shared(source, [row, 0], full.index(stage), ring.index(stage))


@gluon.jit
def _load(q_in, k_in, v_in, q_at, k_at, v_at, q_full, q_free, k_full, k_free, v_full, v_free,
          num_blocks, num_heads, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
          GROUP: gl.constexpr):  # fmt: skip
    rows: gl.constexpr = k_in.block_shape[0]
    half: gl.constexpr = q_in.block_shape[0]
    step = 0
    for turn in range(_turns(num_blocks * num_heads)):
        head, block = _tile_of(turn, num_blocks, num_heads, CAUSAL, GROUP)
        base = head * num_blocks * rows
        for part in gl.static_range(2):
            mbarrier.wait(q_free.index(part), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(part), q_in.block_type.nbytes)
            at = base + block * rows + part * half
            to_shared(q_in, [at, 0], q_full.index(part), q_at.index(part))
        last = num_blocks - 1
        if CAUSAL:
            last = block
        at = base + last * rows
        _fetch(k_in, k_at, k_full, k_free, step, at, STAGES)
        for _ in range(last):
            _fetch(k_in, k_at, k_full, k_free, step + 1, at - rows, STAGES)
            _fetch(v_in, v_at, v_full, v_free, step, at, STAGES)
            step += 1
            at -= rows
        _fetch(v_in, v_at, v_full, v_free, step, at, STAGES)
        step += 1


@gluon.jit
def _soften(scores, most, total, scale):
    new = gl.maximum(most, gl.max(scores, 1) * scale)
    p = gl.exp2(scores * scale - new[:, None])
    alpha = gl.exp2(most - new)
    return p, alpha, new, total * alpha + gl.sum(p, 1)


@gluon.jit
def _attend(out, lse, q_at, k_at, v_at, o_at, q_full, q_free, k_full, k_free, v_full, v_free,
            turns, scale, num_blocks, num_heads, WHICH: gl.constexpr, CAUSAL: gl.constexpr,
            STAGES: gl.constexpr, GROUP: gl.constexpr):  # fmt: skip
    BLOCK: gl.constexpr = k_at.shape[1]
    D: gl.constexpr = k_at.shape[2]
    HALF: gl.constexpr = q_at.shape[1]
    of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    of_out: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    of_p: gl.constexpr = gl.DotOperandLayout(0, of_out, 2)
    rows_of_scores: gl.constexpr = gl.SliceLayout(1, of_scores)
    rows_of_out: gl.constexpr = gl.SliceLayout(1, of_out)
    q = q_at.index(WHICH)
    staged = o_at.index(WHICH)
    empty = gl.zeros([HALF, BLOCK], gl.float32, of_scores)
    step = 0
    for turn in range(_turns(num_blocks * num_heads)):
        head, block = _tile_of(turn, num_blocks, num_heads, CAUSAL, GROUP)
        last = num_blocks - 1
        if CAUSAL:
            last = block
        mbarrier.wait(q_full.index(WHICH), turn & 1)
        stage = step % STAGES
        mbarrier.wait(k_full.index(stage), step // STAGES & 1)
        mbarrier.wait(turns.index(WHICH), (step & 1) ^ (1 - WHICH))
        keys = k_at.index(stage).permute((1, 0))
        scores = warpgroup_mma(q, keys, empty, use_acc=False, is_async=True)
        mbarrier.arrive(turns.index(1 - WHICH))
        scores = warpgroup_mma_wait(0, [scores])
        mbarrier.arrive(k_free.index(stage))
        if CAUSAL:
            rows = WHICH * HALF + gl.arange(0, HALF, rows_of_scores)
            columns = gl.arange(0, BLOCK, gl.SliceLayout(0, of_scores))
            scores = gl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        most = gl.max(scores, 1) * scale
        p = gl.exp2(scores * scale - most[:, None])
        total = gl.sum(p, 1)
        p16 = gl.convert_layout(p.to(q.dtype), of_p)
        acc = gl.zeros([HALF, D], gl.float32, of_out)
        for _ in range(last):
            before = stage
            parity = step // STAGES & 1
            step += 1
            stage = step % STAGES
            mbarrier.wait(k_full.index(stage), step // STAGES & 1)
            mbarrier.wait(turns.index(WHICH), (step & 1) ^ (1 - WHICH))
            keys = k_at.index(stage).permute((1, 0))
            scores = warpgroup_mma(q, keys, empty, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(before), parity)
            acc = warpgroup_mma(p16, v_at.index(before), acc, is_async=True)
            mbarrier.arrive(turns.index(1 - WHICH))
            scores, acc = warpgroup_mma_wait(1, [scores, acc])
            mbarrier.arrive(k_free.index(stage))
            p, alpha, most, total = _soften(scores, most, total, scale)
            # Long since there, but a branch: the assembler moves no wait for p v before it.
            mbarrier.wait(v_full.index(before), parity)
            acc = warpgroup_mma_wait(0, [acc])
            mbarrier.arrive(v_free.index(before))
            acc = acc * gl.convert_layout(alpha, rows_of_out)[:, None]
            p16 = gl.convert_layout(p.to(q.dtype), of_p)
        mbarrier.arrive(q_free.index(WHICH))
        mbarrier.wait(v_full.index(stage), step // STAGES & 1)
        acc = warpgroup_mma(p16, v_at.index(stage), acc, is_async=True)
        acc = warpgroup_mma_wait(0, [acc])
        mbarrier.arrive(v_free.index(stage))
        step += 1
        first_row = (head * num_blocks + block) * BLOCK + WHICH * HALF
        rows = first_row + gl.arange(0, HALF, rows_of_scores)
        gl.store(lse + rows, most + gl.log2(total))
        acc = acc * gl.convert_layout(1.0 / total, rows_of_out)[:, None]
        tma.store_wait(0)
        staged.store(acc.to(q.dtype))
        fence_async_shared()
        from_shared(out, [first_row, 0], staged)
    tma.store_wait(0)


@gluon.jit
def barriers(NUMBER: gl.constexpr, COUNT: gl.constexpr):
    barriers = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(NUMBER):
        mbarrier.init(barriers.index(i), count=COUNT)
    return barriers


@gluon.jit(do_not_specialize=["num_blocks", "num_heads"])
def attention_forward_hopper(q_in, k_in, v_in, out, lse, scale, num_blocks, num_heads,
                             CAUSAL: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
                             REGISTERS: gl.constexpr):  # fmt: skip
    """Write out [B * H * N, D] and the log2-sum-exp2 of each row's scaled scores."""
    HALF: gl.constexpr = q_in.block_shape[0]
    BLOCK: gl.constexpr = k_in.block_shape[0]
    D: gl.constexpr = k_in.block_shape[1]
    q_at = gl.allocate_shared_memory(q_in.dtype, [2, HALF, D], q_in.layout)
    o_at = gl.allocate_shared_memory(q_in.dtype, [2, HALF, D], q_in.layout)
    k_at = gl.allocate_shared_memory(q_in.dtype, [STAGES, BLOCK, D], k_in.layout)
    v_at = gl.allocate_shared_memory(q_in.dtype, [STAGES, BLOCK, D], v_in.layout)
    q_full, q_free, turns = barriers(2, 1), barriers(2, 1), barriers(2, 1)
    k_full, k_free = barriers(STAGES, 1), barriers(STAGES, 2)
    v_full, v_free = barriers(STAGES, 1), barriers(STAGES, 2)
    fence_async_shared()
    log2_scale = scale * 1.4426950408889634
    gl.warp_specialize([
        (_attend, (out, lse, q_at, k_at, v_at, o_at, q_full, q_free, k_full, k_free, v_full,
                   v_free, turns, log2_scale, num_blocks, num_heads, 0, CAUSAL, STAGES, GROUP)),
        (_attend, (out, lse, q_at, k_at, v_at, o_at, q_full, q_free, k_full, k_free, v_full,
                   v_free, turns, log2_scale, num_blocks, num_heads, 1, CAUSAL, STAGES, GROUP)),
        (_load, (q_in, k_in, v_in, q_at, k_at, v_at, q_full, q_free, k_full, k_free, v_full, v_free,
                 num_blocks, num_heads, CAUSAL, STAGES, GROUP)),
    ], [4, 1], [REGISTERS, 24])  # fmt: skip


@functools.cache
def _layout(rows: int, d: int, dtype: torch.dtype) -> Any:
    """Return the layout of a block; made once: short calls wait for the host."""
    kind = gl.float16 if dtype == torch.float16 else gl.bfloat16
    return gl.NVMMASharedLayout.get_default_for([rows, d], kind)


def rows_of(tensor: Tensor, rows: int) -> Any:
    d = tensor.shape[-1]
    flat = tensor.view(-1, d)
    layout = _layout(rows, d, tensor.dtype)
    return TensorDescriptor(flat, list(flat.shape), [d, 1], [rows, d], layout)


def attend(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool, scale: float
) -> None:
    """Write out and lse, as the kernel says; all [B, H, N, D] (lse without D) and contiguous."""
    b, h, n, _ = q.shape
    num_blocks, num_heads = n // BLOCK, b * h
    cores = torch.cuda.get_device_properties(q.device).multi_processor_count
    attention_forward_hopper[(min(cores, num_blocks * num_heads),)](
        rows_of(q, BLOCK // 2), rows_of(k, BLOCK), rows_of(v, BLOCK), rows_of(out, BLOCK // 2), lse,
        scale, num_blocks, num_heads, CAUSAL=causal, STAGES=STAGES, GROUP=GROUP,
        REGISTERS=_REGISTERS, num_warps=4,
    )  # fmt: skip
