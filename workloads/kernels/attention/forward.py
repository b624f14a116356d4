"""Fused attention, forward: softmax(q k^T * scale) v without the score matrix in memory.

The online softmax of https://arxiv.org/abs/2205.14135, in base 2 as in
https://arxiv.org/abs/2307.08691, shaped for Hopper after https://arxiv.org/abs/2407.08608: with
`OVERLAP` the product q k^T of the next block is issued before the softmax of this one, so that
tensor cores and exponentials work at the same time. Blocks that need no mask have a loop of their
own. Inputs are contiguous [B * H * N, D] rows; `USE_TMA` takes tensor descriptors and needs
N to be a multiple of every block.
"""

import triton
import triton.language as tl


@triton.jit
def load_block(source, base_row, row, N, D: tl.constexpr, BLOCK: tl.constexpr,
                USE_TMA: tl.constexpr, CHECK: tl.constexpr):  # fmt: skip
    if USE_TMA:
        values = source.load([base_row + row, 0])
    else:
        rows = row + tl.arange(0, BLOCK)
        at = source + (base_row + rows)[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
        if CHECK:  # noqa: SIM108
            values = tl.load(at, mask=rows[:, None] < N, other=0.0)
        else:
            values = tl.load(at)
    return values


@triton.jit
def _soften(qk, acc, m_i, l_i, columns, offs_m, scale, N, CAUSAL: tl.constexpr,
            MASKED: tl.constexpr):  # fmt: skip
    if MASKED:
        keep = columns[None, :] < N
        if CAUSAL:
            keep = keep & (offs_m[:, None] >= columns[None, :])
        qk = tl.where(keep, qk, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(qk, 1) * scale)
    p = tl.math.exp2(qk * scale - m_new[:, None])
    alpha = tl.math.exp2(m_i - m_new)
    l_i = l_i * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None]
    return p, acc, m_new, l_i


@triton.jit
def _attend(acc, l_i, m_i, q, k, v, base_row, lo, hi, offs_m, scale, N, D: tl.constexpr,
            BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
            USE_TMA: tl.constexpr, CHECK: tl.constexpr, OVERLAP: tl.constexpr):  # fmt: skip
    offs_n = tl.arange(0, BLOCK_N)
    if OVERLAP:
        if lo < hi:
            first = load_block(k, base_row, lo, N, D, BLOCK_N, USE_TMA, CHECK)
            qk = tl.dot(q, first.T)
            for start in tl.range(lo, hi - BLOCK_N, BLOCK_N):
                ahead = load_block(k, base_row, start + BLOCK_N, N, D, BLOCK_N, USE_TMA, CHECK)
                qk_next = tl.dot(q, ahead.T)
                p, acc, m_i, l_i = _soften(
                    qk, acc, m_i, l_i, start + offs_n, offs_m, scale, N, CAUSAL, MASKED
                )
                values = load_block(v, base_row, start, N, D, BLOCK_N, USE_TMA, CHECK)
                acc = tl.dot(p.to(values.dtype), values, acc)
                qk = qk_next
            last = hi - BLOCK_N
            p, acc, m_i, l_i = _soften(
                qk, acc, m_i, l_i, last + offs_n, offs_m, scale, N, CAUSAL, MASKED
            )
            values = load_block(v, base_row, last, N, D, BLOCK_N, USE_TMA, CHECK)
            acc = tl.dot(p.to(values.dtype), values, acc)
    else:
        for start in tl.range(lo, hi, BLOCK_N):
            keys = load_block(k, base_row, start, N, D, BLOCK_N, USE_TMA, CHECK)
            qk = tl.dot(q, keys.T)
            p, acc, m_i, l_i = _soften(
                qk, acc, m_i, l_i, start + offs_n, offs_m, scale, N, CAUSAL, MASKED
            )
            values = load_block(v, base_row, start, N, D, BLOCK_N, USE_TMA, CHECK)
            acc = tl.dot(p.to(values.dtype), values, acc)
    return acc, l_i, m_i


@triton.jit
def attention_forward(q_in, k_in, v_in, out, lse, scale, N, D: tl.constexpr,
                      CAUSAL: tl.constexpr, USE_TMA: tl.constexpr, EVEN: tl.constexpr,
                      BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                      OVERLAP: tl.constexpr):  # fmt: skip
    """Write out [B * H * N, D] and the log2-sum-exp2 of each row's scaled scores.

    One program does BLOCK_M rows of one head. Causal programs start with the longest rows, so that
    the last ones to run are short.
    """
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
    base_row = tl.program_id(1) * N
    start_m = block * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_block(q_in, base_row, start_m, N, D, BLOCK_M, USE_TMA, not EVEN)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    log2_scale = scale * 1.4426950408889634
    if CAUSAL:
        end_full = start_m // BLOCK_N * BLOCK_N
        end = tl.minimum(start_m + BLOCK_M, N)
    else:
        end_full = N // BLOCK_N * BLOCK_N
        end = N
    end = tl.cdiv(end, BLOCK_N) * BLOCK_N
    acc, l_i, m_i = _attend(
        acc, l_i, m_i, q, k_in, v_in, base_row, 0, end_full, offs_m, log2_scale, N, D,
        BLOCK_N, CAUSAL, False, USE_TMA, False, OVERLAP,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_in, v_in, base_row, end_full, end, offs_m, log2_scale, N, D,
            BLOCK_N, CAUSAL, True, USE_TMA, not EVEN, False,
        )  # fmt: skip
    acc = acc / l_i[:, None]
    rows = base_row + offs_m
    if EVEN:
        tl.store(lse + rows, m_i + tl.math.log2(l_i))
    else:
        tl.store(lse + rows, m_i + tl.math.log2(l_i), mask=offs_m < N)
    if USE_TMA:
        out.store([base_row + start_m, 0], acc.to(out.dtype))
    else:
        at = out + rows[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
        if EVEN:
            tl.store(at, acc.to(out.dtype.element_ty))
        else:
            tl.store(at, acc.to(out.dtype.element_ty), mask=offs_m[:, None] < N)
