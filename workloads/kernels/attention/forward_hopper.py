"""Fused attention, forward, for Hopper: warp-specialised after FlashAttention-3, in Gluon.

The algorithm of https://arxiv.org/abs/2407.08608: one warp loads K and V by TMA into rings of
`STAGES` blocks, and two or three warpgroups do 64 query rows each. A warpgroup issues q k^T of a
block, then p v of the block before, and takes the softmax while p v runs; the warpgroups issue
their products in turns, so that one has its softmax while another multiplies. Blocks go from the
last to the first: only the first done, on the diagonal, needs the causal mask. A program does
several tiles, so that the loads of a tile run during the end of the one before.

At head dim 64 the softmax takes as long as the products, and two warpgroups leave both units idle
half of the time. Three fit, since their accumulators are half as large; causal, a tile of 192 rows
would lie on the diagonal of two blocks, so there are two.
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
"""Rows of a block of K or V; N must be a multiple of it."""
ROWS = 64
"""Query rows of a warpgroup."""
STAGES = 2
GROUP = 1
"""Heads whose tiles are done together, so that their K and V stay in L2."""
_REGISTERS = {2: 240, 3: 160}
"""Warpgroups -> of a thread that multiplies; one that loads has 24: together all of a core."""
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
def _tile_of(turn, num_tiles, num_heads, CAUSAL: gl.constexpr, GROUP: gl.constexpr):
    """Return (head, tile): heads in groups that share L2; causal, the longest tiles first."""
    place = turn * gl.num_programs(0) + _place(turn)
    first = place // (GROUP * num_tiles) * GROUP
    size = min(num_heads - first, GROUP)
    rest = place - first * num_tiles
    tile = rest // size
    if CAUSAL:
        tile = num_tiles - 1 - tile
    return first + rest % size, tile


@gluon.jit
def _last_block(tile, N, BLOCK: gl.constexpr, TILE: gl.constexpr, CAUSAL: gl.constexpr):
    """Return the last block of keys that the rows of a tile attend to."""
    last = N // BLOCK - 1
    if CAUSAL:
        gl.static_assert(TILE == BLOCK)
        last = tile
    return last


@gluon.jit
def _fetch(source, ring, full, free, step, row, STAGES: gl.constexpr):
    stage = step % STAGES
    mbarrier.wait(free.index(stage), (step // STAGES & 1) ^ 1)
    mbarrier.expect(full.index(stage), source.block_type.nbytes)
    to_shared(source, [row, 0], full.index(stage), ring.index(stage))


@gluon.jit
def _load(q_in, k_in, v_in, rings, size, CAUSAL: gl.constexpr, STAGES: gl.constexpr,
          GROUP: gl.constexpr):  # fmt: skip
    q_at, k_at, v_at, q_full, q_free, k_full, k_free, v_full, v_free = rings
    N, num_tiles, num_heads = size
    BLOCK: gl.constexpr = k_in.block_shape[0]
    ROWS: gl.constexpr = q_in.block_shape[0]
    PARTS: gl.constexpr = q_at.shape[0]
    step = 0
    for turn in range(_turns(num_tiles * num_heads)):
        head, tile = _tile_of(turn, num_tiles, num_heads, CAUSAL, GROUP)
        for part in gl.static_range(PARTS):
            mbarrier.wait(q_free.index(part), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(part), q_in.block_type.nbytes)
            at = head * N + (tile * PARTS + part) * ROWS
            to_shared(q_in, [at, 0], q_full.index(part), q_at.index(part))
        last = _last_block(tile, N, BLOCK, PARTS * ROWS, CAUSAL)
        at = head * N + last * BLOCK
        _fetch(k_in, k_at, k_full, k_free, step, at, STAGES)
        for _ in range(last):
            _fetch(k_in, k_at, k_full, k_free, step + 1, at - BLOCK, STAGES)
            _fetch(v_in, v_at, v_full, v_free, step, at, STAGES)
            step += 1
            at -= BLOCK
        _fetch(v_in, v_at, v_full, v_free, step, at, STAGES)
        step += 1


@gluon.jit
def _soften(scores, most, total, scale):
    new = gl.maximum(most, gl.max(scores, 1) * scale)
    p = gl.exp2(scores * scale - new[:, None])
    alpha = gl.exp2(most - new)
    return p, alpha, new, total * alpha + gl.sum(p, 1)


@gluon.jit
def _attend(target, rings, size, WHICH: gl.constexpr, CAUSAL: gl.constexpr,
            STAGES: gl.constexpr, GROUP: gl.constexpr):  # fmt: skip
    out, lse, o_at, turns, scale = target
    q_at, k_at, v_at, q_full, q_free, k_full, k_free, v_full, v_free = rings
    N, num_tiles, num_heads = size
    BLOCK: gl.constexpr = k_at.shape[1]
    D: gl.constexpr = k_at.shape[2]
    ROWS: gl.constexpr = q_at.shape[1]
    PARTS: gl.constexpr = q_at.shape[0]
    NEXT: gl.constexpr = (WHICH + 1) % PARTS
    FIRST: gl.constexpr = 1 if WHICH == 0 else 0
    of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK, 16])
    of_out: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    of_p: gl.constexpr = gl.DotOperandLayout(0, of_out, 2)
    rows_of_scores: gl.constexpr = gl.SliceLayout(1, of_scores)
    rows_of_out: gl.constexpr = gl.SliceLayout(1, of_out)
    q = q_at.index(WHICH)
    staged = o_at.index(WHICH)
    empty = gl.zeros([ROWS, BLOCK], gl.float32, of_scores)
    step = 0
    for turn in range(_turns(num_tiles * num_heads)):
        head, tile = _tile_of(turn, num_tiles, num_heads, CAUSAL, GROUP)
        last = _last_block(tile, N, BLOCK, PARTS * ROWS, CAUSAL)
        mbarrier.wait(q_full.index(WHICH), turn & 1)
        stage = step % STAGES
        mbarrier.wait(k_full.index(stage), step // STAGES & 1)
        mbarrier.wait(turns.index(WHICH), (step & 1) ^ FIRST)
        keys = k_at.index(stage).permute((1, 0))
        scores = warpgroup_mma(q, keys, empty, use_acc=False, is_async=True)
        mbarrier.arrive(turns.index(NEXT))
        scores = warpgroup_mma_wait(0, [scores])
        mbarrier.arrive(k_free.index(stage))
        if CAUSAL:
            rows = WHICH * ROWS + gl.arange(0, ROWS, rows_of_scores)
            columns = gl.arange(0, BLOCK, gl.SliceLayout(0, of_scores))
            scores = gl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        most = gl.max(scores, 1) * scale
        p = gl.exp2(scores * scale - most[:, None])
        total = gl.sum(p, 1)
        p16 = gl.convert_layout(p.to(q.dtype), of_p)
        acc = gl.zeros([ROWS, D], gl.float32, of_out)
        for _ in range(last):
            before = stage
            parity = step // STAGES & 1
            step += 1
            stage = step % STAGES
            mbarrier.wait(k_full.index(stage), step // STAGES & 1)
            mbarrier.wait(turns.index(WHICH), (step & 1) ^ FIRST)
            keys = k_at.index(stage).permute((1, 0))
            scores = warpgroup_mma(q, keys, empty, use_acc=False, is_async=True)
            mbarrier.wait(v_full.index(before), parity)
            acc = warpgroup_mma(p16, v_at.index(before), acc, is_async=True)
            mbarrier.arrive(turns.index(NEXT))
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
        # The last tile of a head may reach beyond it; its rows are not written.
        first_row = (tile * PARTS + WHICH) * ROWS
        tma.store_wait(0)
        if first_row < N:
            first_row += head * N
            rows = first_row + gl.arange(0, ROWS, rows_of_scores)
            gl.store(lse + rows, most + gl.log2(total))
            acc = acc * gl.convert_layout(1.0 / total, rows_of_out)[:, None]
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


@gluon.jit(do_not_specialize=["N", "num_tiles", "num_heads"])
def attention_forward_hopper(q_in, k_in, v_in, out, lse, scale, N, num_tiles, num_heads,
                             CAUSAL: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
                             GROUP: gl.constexpr, REGISTERS: gl.constexpr):  # fmt: skip
    """Write out [B * H * N, D] and the log2-sum-exp2 of each row's scaled scores."""
    ROWS: gl.constexpr = q_in.block_shape[0]
    BLOCK: gl.constexpr = k_in.block_shape[0]
    D: gl.constexpr = k_in.block_shape[1]
    q_at = gl.allocate_shared_memory(q_in.dtype, [PARTS, ROWS, D], q_in.layout)
    o_at = gl.allocate_shared_memory(q_in.dtype, [PARTS, ROWS, D], q_in.layout)
    k_at = gl.allocate_shared_memory(q_in.dtype, [STAGES, BLOCK, D], k_in.layout)
    v_at = gl.allocate_shared_memory(q_in.dtype, [STAGES, BLOCK, D], v_in.layout)
    q_full, q_free, turns = barriers(PARTS, 1), barriers(PARTS, 1), barriers(PARTS, 1)
    k_full, k_free = barriers(STAGES, 1), barriers(STAGES, PARTS)
    v_full, v_free = barriers(STAGES, 1), barriers(STAGES, PARTS)
    fence_async_shared()
    log2_scale = scale * 1.4426950408889634
    rings = (q_at, k_at, v_at, q_full, q_free, k_full, k_free, v_full, v_free)
    size = (N, num_tiles, num_heads)
    target = (out, lse, o_at, turns, log2_scale)
    if PARTS == 2:
        gl.warp_specialize([
            (_attend, (target, rings, size, 0, CAUSAL, STAGES, GROUP)),
            (_attend, (target, rings, size, 1, CAUSAL, STAGES, GROUP)),
            (_load, (q_in, k_in, v_in, rings, size, CAUSAL, STAGES, GROUP)),
        ], [4, 1], [REGISTERS, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (_attend, (target, rings, size, 0, CAUSAL, STAGES, GROUP)),
            (_attend, (target, rings, size, 1, CAUSAL, STAGES, GROUP)),
            (_attend, (target, rings, size, 2, CAUSAL, STAGES, GROUP)),
            (_load, (q_in, k_in, v_in, rings, size, CAUSAL, STAGES, GROUP)),
        ], [4, 4, 1], [REGISTERS, REGISTERS, 24])  # fmt: skip


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
    b, h, n, d = q.shape
    parts = 3 if d == HEAD_DIMS[0] and not causal else 2
    num_tiles, num_heads = -(-n // (parts * ROWS)), b * h
    cores = torch.cuda.get_device_properties(q.device).multi_processor_count
    attention_forward_hopper[(min(cores, num_tiles * num_heads),)](
        rows_of(q, ROWS), rows_of(k, BLOCK), rows_of(v, BLOCK), rows_of(out, ROWS), lse,
        scale, n, num_tiles, num_heads, CAUSAL=causal, PARTS=parts, STAGES=STAGES, GROUP=GROUP,
        REGISTERS=_REGISTERS[parts], num_warps=4,
    )  # fmt: skip
