"""Fused attention, backward: the scores are computed again from q, k and the saved log-sum-exp.

Two kernels, so that every output has one writer and the result is the same in every run: one
program a block of keys for dk and dv, one per block of queries for dq
(https://arxiv.org/abs/2307.08691 section 3.1). With p = exp2(q k^T * scale - lse) and
delta = rowsum(o * do):  dv = p^T do,  ds = p * (do v^T - delta),  dk = ds^T q,  dq = ds k.
`OVERLAP` issues the next block's scores before this block's exponentials, as in the forward kernel.
"""

import triton
import triton.language as tl

from workloads.kernels.attention.forward import load_block


@triton.jit
def attention_delta(out, grad, delta, num_rows, D: tl.constexpr, BLOCK: tl.constexpr):
    """Write delta[row] = sum(out[row] * grad[row]) in float32."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = rows[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
    inside = rows[:, None] < num_rows
    o = tl.load(out + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + rows, tl.sum(o * g, 1), mask=rows < num_rows)


@triton.jit
def _load_row_values(source, base_row, rows, N, other, CHECK: tl.constexpr):
    if CHECK:
        values = tl.load(source + base_row + rows, mask=rows < N, other=other)
    else:
        values = tl.load(source + base_row + rows)
    return values


@triton.jit
def _add_key_block(qk_t, dk, dv, v, q_in, do_in, lse, delta, base_row, start, offs_n, scale, N,
                   D: tl.constexpr, BLOCK_M: tl.constexpr, CAUSAL: tl.constexpr,
                   MASKED: tl.constexpr, USE_TMA: tl.constexpr,
                   CHECK: tl.constexpr):  # fmt: skip
    rows = start + tl.arange(0, BLOCK_M)
    row_lse = _load_row_values(lse, base_row, rows, N, float("inf"), CHECK)
    p_t = tl.math.exp2(qk_t * scale - row_lse[None, :])
    if MASKED and CAUSAL:
        p_t = tl.where(rows[None, :] >= offs_n[:, None], p_t, 0.0)
    do = load_block(do_in, base_row, start, N, D, BLOCK_M, USE_TMA, CHECK)
    dp_t = tl.dot(v, do.T)
    dv = tl.dot(p_t.to(do.dtype), do, dv)
    row_delta = _load_row_values(delta, base_row, rows, N, 0.0, CHECK)
    ds_t = p_t * (dp_t - row_delta[None, :])
    q = load_block(q_in, base_row, start, N, D, BLOCK_M, USE_TMA, CHECK)
    dk = tl.dot(ds_t.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def _sum_over_queries(dk, dv, k, v, q_in, do_in, lse, delta, base_row, lo, hi, offs_n, scale, N,
                      D: tl.constexpr, BLOCK_M: tl.constexpr, CAUSAL: tl.constexpr,
                      MASKED: tl.constexpr, USE_TMA: tl.constexpr, CHECK: tl.constexpr,
                      OVERLAP: tl.constexpr):  # fmt: skip
    if OVERLAP:
        if lo < hi:
            first = load_block(q_in, base_row, lo, N, D, BLOCK_M, USE_TMA, CHECK)
            qk_t = tl.dot(k, first.T)
            for start in tl.range(lo, hi - BLOCK_M, BLOCK_M):
                ahead = load_block(q_in, base_row, start + BLOCK_M, N, D, BLOCK_M, USE_TMA, CHECK)
                qk_next = tl.dot(k, ahead.T)
                dk, dv = _add_key_block(
                    qk_t, dk, dv, v, q_in, do_in, lse, delta, base_row, start, offs_n, scale, N,
                    D, BLOCK_M, CAUSAL, MASKED, USE_TMA, CHECK,
                )  # fmt: skip
                qk_t = qk_next
            dk, dv = _add_key_block(
                qk_t, dk, dv, v, q_in, do_in, lse, delta, base_row, hi - BLOCK_M, offs_n, scale,
                N, D, BLOCK_M, CAUSAL, MASKED, USE_TMA, CHECK,
            )  # fmt: skip
    else:
        for start in tl.range(lo, hi, BLOCK_M):
            q = load_block(q_in, base_row, start, N, D, BLOCK_M, USE_TMA, CHECK)
            qk_t = tl.dot(k, q.T)
            dk, dv = _add_key_block(
                qk_t, dk, dv, v, q_in, do_in, lse, delta, base_row, start, offs_n, scale, N,
                D, BLOCK_M, CAUSAL, MASKED, USE_TMA, CHECK,
            )  # fmt: skip
    return dk, dv


@triton.jit
def store_rows(target, base_row, start, values, N, D: tl.constexpr, BLOCK: tl.constexpr,
               USE_TMA: tl.constexpr, CHECK: tl.constexpr):  # fmt: skip
    if USE_TMA:
        target.store([base_row + start, 0], values.to(target.dtype))
    else:
        rows = start + tl.arange(0, BLOCK)
        at = target + (base_row + rows)[:, None].to(tl.int64) * D + tl.arange(0, D)[None, :]
        if CHECK:
            tl.store(at, values.to(target.dtype.element_ty), mask=rows[:, None] < N)
        else:
            tl.store(at, values.to(target.dtype.element_ty))


@triton.jit
def attention_backward_keys(q_in, k_in, v_in, do_in, dk_out, dv_out, lse, delta, scale, N,
                            D: tl.constexpr, CAUSAL: tl.constexpr, USE_TMA: tl.constexpr,
                            EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                            OVERLAP: tl.constexpr):  # fmt: skip
    """Write dk and dv of BLOCK_N keys of one head. BLOCK_N is a multiple of BLOCK_M."""
    base_row = tl.program_id(1) * N
    start_n = tl.program_id(0) * BLOCK_N
    offs_n = start_n + tl.arange(0, BLOCK_N)
    k = load_block(k_in, base_row, start_n, N, D, BLOCK_N, USE_TMA, not EVEN)
    v = load_block(v_in, base_row, start_n, N, D, BLOCK_N, USE_TMA, not EVEN)
    dk = tl.zeros([BLOCK_N, D], tl.float32)
    dv = tl.zeros([BLOCK_N, D], tl.float32)
    log2_scale = scale * 1.4426950408889634
    end = tl.cdiv(N, BLOCK_M) * BLOCK_M
    first_full = 0
    if CAUSAL:
        first_full = tl.minimum(start_n + BLOCK_N, end)
        dk, dv = _sum_over_queries(
            dk, dv, k, v, q_in, do_in, lse, delta, base_row, start_n, first_full, offs_n,
            log2_scale, N, D, BLOCK_M, CAUSAL, True, USE_TMA, not EVEN, False,
        )  # fmt: skip
    dk, dv = _sum_over_queries(
        dk, dv, k, v, q_in, do_in, lse, delta, base_row, first_full, end, offs_n, log2_scale, N,
        D, BLOCK_M, CAUSAL, False, USE_TMA, not EVEN, OVERLAP,
    )  # fmt: skip
    store_rows(dv_out, base_row, start_n, dv, N, D, BLOCK_N, USE_TMA, not EVEN)
    store_rows(dk_out, base_row, start_n, dk * scale, N, D, BLOCK_N, USE_TMA, not EVEN)


@triton.jit
def _add_query_block(qk, dq, do, k_in, v_in, row_lse, row_delta, base_row, start, offs_m, scale,
                     N, D: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
                     MASKED: tl.constexpr, USE_TMA: tl.constexpr,
                     CHECK: tl.constexpr):  # fmt: skip
    p = tl.math.exp2(qk * scale - row_lse[:, None])
    if MASKED:
        columns = start + tl.arange(0, BLOCK_N)
        keep = columns[None, :] < N
        if CAUSAL:
            keep = keep & (offs_m[:, None] >= columns[None, :])
        p = tl.where(keep, p, 0.0)
    v = load_block(v_in, base_row, start, N, D, BLOCK_N, USE_TMA, CHECK)
    ds = p * (tl.dot(do, v.T) - row_delta[:, None])
    k = load_block(k_in, base_row, start, N, D, BLOCK_N, USE_TMA, CHECK)
    return tl.dot(ds.to(k.dtype), k, dq)


@triton.jit
def _sum_over_keys(dq, q, do, k_in, v_in, row_lse, row_delta, base_row, lo, hi, offs_m, scale, N,
                   D: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
                   MASKED: tl.constexpr, USE_TMA: tl.constexpr, CHECK: tl.constexpr,
                   OVERLAP: tl.constexpr):  # fmt: skip
    if OVERLAP:
        if lo < hi:
            first = load_block(k_in, base_row, lo, N, D, BLOCK_N, USE_TMA, CHECK)
            qk = tl.dot(q, first.T)
            for start in tl.range(lo, hi - BLOCK_N, BLOCK_N):
                ahead = load_block(k_in, base_row, start + BLOCK_N, N, D, BLOCK_N, USE_TMA, CHECK)
                qk_next = tl.dot(q, ahead.T)
                dq = _add_query_block(
                    qk, dq, do, k_in, v_in, row_lse, row_delta, base_row, start, offs_m, scale,
                    N, D, BLOCK_N, CAUSAL, MASKED, USE_TMA, CHECK,
                )  # fmt: skip
                qk = qk_next
            dq = _add_query_block(
                qk, dq, do, k_in, v_in, row_lse, row_delta, base_row, hi - BLOCK_N, offs_m, scale,
                N, D, BLOCK_N, CAUSAL, MASKED, USE_TMA, CHECK,
            )  # fmt: skip
    else:
        for start in tl.range(lo, hi, BLOCK_N):
            k = load_block(k_in, base_row, start, N, D, BLOCK_N, USE_TMA, CHECK)
            qk = tl.dot(q, k.T)
            dq = _add_query_block(
                qk, dq, do, k_in, v_in, row_lse, row_delta, base_row, start, offs_m, scale,
                N, D, BLOCK_N, CAUSAL, MASKED, USE_TMA, CHECK,
            )  # fmt: skip
    return dq


@triton.jit
def attention_backward_queries(q_in, k_in, v_in, do_in, dq_out, lse, delta, scale, N,
                               D: tl.constexpr, CAUSAL: tl.constexpr, USE_TMA: tl.constexpr,
                               EVEN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                               OVERLAP: tl.constexpr):  # fmt: skip
    """Write dq of BLOCK_M queries of one head."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
    base_row = tl.program_id(1) * N
    start_m = block * BLOCK_M
    offs_m = start_m + tl.arange(0, BLOCK_M)
    q = load_block(q_in, base_row, start_m, N, D, BLOCK_M, USE_TMA, not EVEN)
    do = load_block(do_in, base_row, start_m, N, D, BLOCK_M, USE_TMA, not EVEN)
    row_lse = _load_row_values(lse, base_row, offs_m, N, float("inf"), not EVEN)
    row_delta = _load_row_values(delta, base_row, offs_m, N, 0.0, not EVEN)
    dq = tl.zeros([BLOCK_M, D], tl.float32)
    log2_scale = scale * 1.4426950408889634
    if CAUSAL:
        end_full = start_m // BLOCK_N * BLOCK_N
        end = tl.cdiv(tl.minimum(start_m + BLOCK_M, N), BLOCK_N) * BLOCK_N
    else:
        end_full = N // BLOCK_N * BLOCK_N
        end = tl.cdiv(N, BLOCK_N) * BLOCK_N
    dq = _sum_over_keys(
        dq, q, do, k_in, v_in, row_lse, row_delta, base_row, 0, end_full, offs_m, log2_scale, N,
        D, BLOCK_N, CAUSAL, False, USE_TMA, False, OVERLAP,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        dq = _sum_over_keys(
            dq, q, do, k_in, v_in, row_lse, row_delta, base_row, end_full, end, offs_m,
            log2_scale, N, D, BLOCK_N, CAUSAL, True, USE_TMA, not EVEN, False,
        )  # fmt: skip
    store_rows(dq_out, base_row, start_m, dq * scale, N, D, BLOCK_M, USE_TMA, not EVEN)
