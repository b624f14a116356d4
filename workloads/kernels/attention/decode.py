"""Attention of one new token over a KV cache: `attend_one(q, k, v)`, bound by memory.

The keys of each KV head are split over several programs, so that a small batch fills the GPU too
(https://crfm.stanford.edu/2023/10/12/flashdecoding.html). Each program reads its keys and values
once for all query heads of the group (grouped-query attention), and the last program of a head to
finish adds the parts up: one launch, no second kernel. Work: 4 * B * H * N * D operations; traffic:
2 * B * KV * N * D elements, which is what its speed is measured against.

Shapes: B batch, H query heads, KV heads of keys and values, N cached tokens, D head dim.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from workloads.kernels.tuning import choices, tile

HEAD_DIMS = (64, 128)
DTYPES = (torch.float16, torch.bfloat16)
MIN_ROWS = 16
"""Fewest rows of a tensor-core product: a smaller group of queries is padded."""
PROGRAMS_PER_SM = 2
MIN_KEYS = 128
"""Fewest keys that a program of its own is worth."""
MAX_PARTS = 64
MOST_AT_ONCE = tl.constexpr(8192)
"""Values of the parts that the last program of a head holds at once."""

_TILES = choices(
    [
        tile(warps, stages, BLOCK_N=block)
        for block, warps, stages in (
            (128, 4, 3),
            (128, 8, 3),
            (64, 4, 4),
            (64, 4, 3),
            (64, 2, 4),
            (128, 4, 2),
            (256, 8, 2),
            (32, 2, 4),
        )
    ],
    interpreted=tile(4, 1, BLOCK_N=32),
)


@triton.jit
def _add_block(q, k, v, at, start, stop, acc, m_i, l_i, scale, D: tl.constexpr,
               BLOCK_N: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    rows = start + tl.arange(0, BLOCK_N)
    places = at + rows[:, None] * D + tl.arange(0, D)[None, :]
    if MASKED:
        inside = rows < stop
        keys = tl.load(k + places, mask=inside[:, None], other=0.0)
    else:
        keys = tl.load(k + places)
    scores = tl.dot(q, keys.T) * scale
    if MASKED:
        scores = tl.where(inside[None, :], scores, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(scores, 1))
    p = tl.math.exp2(scores - m_new[:, None])
    alpha = tl.math.exp2(m_i - m_new)
    if MASKED:  # noqa: SIM108
        values = tl.load(v + places, mask=inside[:, None], other=0.0)
    else:
        values = tl.load(v + places)
    acc = tl.dot(p.to(values.dtype), values, acc * alpha[:, None])
    return acc, m_new, l_i * alpha + tl.sum(p, 1)


@triton.jit
def decode_attention(q_in, k_in, v_in, out, part_out, part_m, part_l, arrived, scale, N,
                     GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
                     PARTS: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """Write out [B * KV * GROUP, D]; program (part, head) reads a PARTS-th of the head's keys.

    `arrived` counts the finished programs of each head; the last one sets it back to 0.
    """
    part = tl.program_id(0)
    head = tl.program_id(1)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, D)
    in_group = rows < GROUP
    q_at = (head * GROUP + rows)[:, None] * D + columns[None, :]
    q = tl.load(q_in + q_at, mask=in_group[:, None], other=0.0)
    blocks = tl.cdiv(N, BLOCK_N)
    per_part = tl.cdiv(blocks, PARTS) * BLOCK_N
    start = part * per_part
    stop = tl.minimum(start + per_part, N)
    whole = start + tl.maximum(stop - start, 0) // BLOCK_N * BLOCK_N
    acc = tl.zeros([ROWS, D], tl.float32)
    m_i = tl.full([ROWS], -1.0e30, tl.float32)
    l_i = tl.zeros([ROWS], tl.float32)
    at = head.to(tl.int64) * N * D
    log2_scale = scale * 1.4426950408889634
    for block in tl.range(start, whole, BLOCK_N):
        acc, m_i, l_i = _add_block(
            q, k_in, v_in, at, block, stop, acc, m_i, l_i, log2_scale, D, BLOCK_N, False
        )
    if whole < stop:
        acc, m_i, l_i = _add_block(
            q, k_in, v_in, at, whole, stop, acc, m_i, l_i, log2_scale, D, BLOCK_N, True
        )
    if PARTS == 1:
        values = acc / l_i[:, None]
        tl.store(out + q_at, values.to(out.dtype.element_ty), mask=in_group[:, None])
    else:
        slot = head * PARTS + part
        tl.store(part_m + slot * GROUP + rows, m_i, mask=in_group)
        tl.store(part_l + slot * GROUP + rows, l_i, mask=in_group)
        places = (slot * GROUP + rows)[:, None] * D + columns[None, :]
        tl.store(part_out + places, acc, mask=in_group[:, None])
        tl.debug_barrier()
        if tl.atomic_add(arrived + head, 1, sem="acq_rel") == PARTS - 1:
            _sum_parts(out, part_out, part_m, part_l, head, GROUP, D, PARTS)
            tl.atomic_xchg(arrived + head, 0)


@triton.jit
def _sum_parts(out, part_out, part_m, part_l, head, GROUP: tl.constexpr, D: tl.constexpr,
               PARTS: tl.constexpr):  # fmt: skip
    """Write the head's rows from its parts, several parts at once."""
    GROUP_PADDED: tl.constexpr = triton.next_power_of_2(GROUP)
    PARTS_PADDED: tl.constexpr = triton.next_power_of_2(PARTS)
    AT_ONCE: tl.constexpr = min(PARTS_PADDED, max(1, MOST_AT_ONCE // (GROUP_PADDED * D)))
    rows = tl.arange(0, GROUP_PADDED)
    columns = tl.arange(0, D)
    parts = tl.arange(0, PARTS_PADDED)
    slots = (head * PARTS + parts)[:, None] * GROUP + rows[None, :]
    is_part = (parts < PARTS)[:, None] & (rows < GROUP)[None, :]
    m_all = tl.load(part_m + slots, mask=is_part, other=-1.0e30, cache_modifier=".cg")
    l_all = tl.load(part_l + slots, mask=is_part, other=0.0, cache_modifier=".cg")
    m = tl.max(m_all, 0)
    total = tl.sum(l_all * tl.math.exp2(m_all - m[None, :]), 0)
    acc = tl.zeros([GROUP_PADDED, D], tl.float32)
    for first in tl.static_range(0, PARTS, AT_ONCE):
        some = first + tl.arange(0, AT_ONCE)
        slots = (head * PARTS + some)[:, None] * GROUP + rows[None, :]
        is_part = (some < PARTS)[:, None] & (rows < GROUP)[None, :]
        m_part = tl.load(part_m + slots, mask=is_part, other=-1.0e30, cache_modifier=".cg")
        at = slots[:, :, None] * D + columns[None, None, :]
        values = tl.load(part_out + at, mask=is_part[:, :, None], other=0.0, cache_modifier=".cg")
        acc += tl.sum(values * tl.math.exp2(m_part - m[None, :])[:, :, None], 0)
    values = acc / total[:, None]
    at = (head * GROUP + rows)[:, None] * D + columns[None, :]
    tl.store(out + at, values.to(out.dtype.element_ty), mask=(rows < GROUP)[:, None])


_tuned = triton.autotune(configs=_TILES, key=["N", "GROUP", "D", "PARTS"])(decode_attention)


@functools.cache
def _num_sms(device: int) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def num_parts(heads: int, length: int, num_sms: int) -> int:
    """Return over how many programs each head's keys are split, evenly.

    As many as the GPU runs at once and no more: what is added up afterwards costs more than a few
    idle multiprocessors do.
    """
    blocks = triton.cdiv(length, MIN_KEYS)
    most = max(1, min(num_sms * PROGRAMS_PER_SM // heads, blocks, MAX_PARTS))
    return int(triton.cdiv(blocks, triton.cdiv(blocks, most)))


class Workspace:
    """What the programs of one call leave for each other; reused by calls of the same shape."""

    def __init__(self, heads: int, parts: int, rows: int, dim: int, device: torch.device) -> None:
        size = (heads, parts, rows)
        self.out = torch.empty((*size, dim), device=device, dtype=torch.float32)
        self.greatest = torch.empty(size, device=device, dtype=torch.float32)
        self.total = torch.empty(size, device=device, dtype=torch.float32)
        self.arrived = torch.zeros(heads, device=device, dtype=torch.int32)


@functools.lru_cache(maxsize=16)
def _workspace(heads: int, parts: int, rows: int, dim: int, device: torch.device) -> Workspace:
    return Workspace(heads, parts, rows, dim, device)


def attend_one(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Return softmax(q k^T * scale) v: q [B, H, 1, D], k and v [B, KV, N, D], out as q.

    H is a multiple of KV; scale is D ** -0.5 unless given. Not for two streams at once: calls of
    one shape share a workspace. ValueError for a shape or dtype that the kernel does not have.
    """
    b, h, queries, d = q.shape
    kv, n = k.shape[1:3]
    if d not in HEAD_DIMS or q.dtype not in DTYPES:
        raise ValueError(f"head dim {d} of {q.dtype}: needs {HEAD_DIMS} of float16 or bfloat16")
    if queries != 1 or k.shape != v.shape or k.shape != (b, kv, n, d) or h % kv:
        raise ValueError(f"shapes do not fit: q {q.shape}, k {k.shape}, v {v.shape}")
    group = h // kv
    rows = max(MIN_ROWS, triton.next_power_of_2(group))
    num_sms = _num_sms(q.device.index) if q.is_cuda else 4
    parts = num_parts(b * kv, n, num_sms)
    work = _workspace(b * kv, parts, group, d, q.device)
    out = torch.empty_like(q)
    _tuned[(parts, b * kv)](
        q.contiguous(), k.contiguous(), v.contiguous(), out, work.out, work.greatest, work.total,
        work.arrived, d**-0.5 if scale is None else scale, n, GROUP=group, ROWS=rows, D=d,
        PARTS=parts,
    )  # fmt: skip
    return out
