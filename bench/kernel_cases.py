"""What the kernel benchmark measures, and how: a section a kind of kernel, a row a case."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Row = dict[str, Any]
GRAPH_CALLS = 24
MIN_SAMPLES = 12
SAMPLE_SECONDS = 0.25
BATCH_CALLS = 8
HEAD_START_CYCLES = 20_000_000
"""That the GPU sleeps before a batch of calls: about 10 ms, in which a host issues all of them."""
COPY_BYTES = 2**30


def time_by_events(call: Callable[[], Any]) -> float:
    """Return the median time of a call in ms, on the GPU: the host is ahead, however slow it is."""
    import torch

    for _ in range(5):
        call()
    torch.cuda.synchronize()
    pairs: list[tuple[Any, Any]] = []
    started = time.perf_counter()
    while len(pairs) < MIN_SAMPLES or time.perf_counter() - started < SAMPLE_SECONDS:
        if len(pairs) % BATCH_CALLS == 0:
            torch.cuda.synchronize()
            torch.cuda._sleep(HEAD_START_CYCLES)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def time_by_graph(calls: list[Callable[[], Any]]) -> float:
    """Return the median time of one call in ms, replaying a graph that rotates the calls."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(GRAPH_CALLS):
            calls[index % len(calls)]()
    return time_by_events(graph.replay) / GRAPH_CALLS


def relative_error(out: Any, reference: Any) -> tuple[float, float]:
    """Return max abs error and ||out - reference|| / ||reference||, both in float64."""
    difference = out.double() - reference
    norm = (difference.norm() / reference.norm()).item()
    return difference.abs().max().item(), norm


def attempt(row: Row, measure: Callable[[], Row]) -> Row:
    """Return the row with its numbers, or with its error."""
    import torch

    try:
        return row | measure()
    except Exception as error:
        torch.cuda.empty_cache()
        return row | {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}


def copy_gbytes_per_s() -> float:
    """Return measured device copy bandwidth, bytes read and written, in GB/s."""
    import torch

    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / time_by_events(lambda: target.copy_(source)) / 1e6


def section_copy() -> Iterator[Row]:
    yield attempt(
        {"case": "1 GiB", "variant": "copy"}, lambda: {"gbytes_per_s": copy_gbytes_per_s()}
    )


BATCH, HEADS, HEAD_DIM = 4, 32, 128
ATTENTION_CASES = [
    (seq, causal, dtype, head_dim)
    for dtype, head_dim in (("fp16", 128), ("bf16", 128), ("fp16", 64), ("bf16", 64))
    for seq in (2048, 4096)
    for causal in (False, True)
]
FIRST_SHAPE = ATTENTION_CASES[0][2:]
"""Dtype and head dim of the cases that have neither in their names."""


def case_name(seq: int, causal: bool, dtype: str, head_dim: int) -> str:
    name = f"{seq}{' causal' if causal else ''}"
    return name if (dtype, head_dim) == FIRST_SHAPE else f"{name}, {dtype}, head dim {head_dim}"


def keep_attention_cases(text: str) -> None:
    """Leave only the cases of attention whose names hold a text."""
    ATTENTION_CASES[:] = [case for case in ATTENTION_CASES if text in case_name(*case)]


def attention_variants() -> dict[str, Callable[..., Any]]:
    """Return name -> function(q, k, v, causal)."""
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from workloads.kernels.attention.function import attention

    def backend(which: Any) -> Callable[..., Any]:
        def run(q: Any, k: Any, v: Any, causal: bool) -> Any:
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return run

    return {
        "sdpa cudnn": backend(SDPBackend.CUDNN_ATTENTION),
        "sdpa flash": backend(SDPBackend.FLASH_ATTENTION),
        "sdpa efficient": backend(SDPBackend.EFFICIENT_ATTENTION),
        "triton": lambda q, k, v, causal: attention(q, k, v, causal=causal),
        "triton pointers": lambda q, k, v, c: attention(q, k, v, causal=c, use_tma=False),
    }


def reference_head(tensors: list[Any], grad: Any, causal: bool) -> list[Any]:
    """Return out, dq, dk, dv of head (0, 0) in float64."""
    import torch

    q, k, v = (t[0, 0].detach().double().requires_grad_() for t in tensors)
    scores = q @ k.T * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
    out = scores.softmax(-1) @ v
    return [out, *torch.autograd.grad(out, (q, k, v), grad[0, 0].double())]


def attention_rows(is_backward: bool) -> Iterator[Row]:
    import torch

    for seq, causal, dtype, head_dim in ATTENTION_CASES:
        torch.manual_seed(seq)
        shape = (BATCH, HEADS, seq, head_dim)
        kind = torch.float16 if dtype == "fp16" else torch.bfloat16
        tensors = [
            torch.randn(shape, device="cuda", dtype=kind, requires_grad=is_backward)
            for _ in range(3)
        ]
        grad = torch.randn(shape, device="cuda", dtype=kind)
        truth = reference_head(tensors, grad, causal)
        truth = truth[1:] if is_backward else truth[:1]
        flops = 4 * BATCH * HEADS * seq**2 * head_dim * (2.5 if is_backward else 1)
        flops = flops / 2 if causal else flops
        case = case_name(seq, causal, dtype, head_dim)
        for name, function in attention_variants().items():
            if name == "triton pointers" and (seq, dtype, head_dim) != (2048, "fp16", HEAD_DIM):
                continue
            if name == "sdpa efficient" and (dtype, head_dim) != FIRST_SHAPE:
                continue
            row = {"case": case, "variant": name}
            measure = partial(
                measure_attention, function, tensors, grad, causal, truth, flops, is_backward
            )
            yield attempt(row, measure)


def measure_attention(
    function: Callable[..., Any],
    tensors: list[Any],
    grad: Any,
    causal: bool,
    truth: list[Any],
    flops: float,
    is_backward: bool,
) -> Row:
    import torch

    out = function(*tensors, causal)

    def call() -> Any:
        if is_backward:
            return torch.autograd.grad(out, tensors, grad, retain_graph=True)
        return (function(*tensors, causal),)

    errors = [relative_error(o[0, 0], t) for o, t in zip(call(), truth, strict=True)]
    ms = time_by_events(call)
    return {
        "ms": ms,
        "tflop_per_s": flops / ms / 1e9,
        "max_abs_error": max(e[0] for e in errors),
        "rel_error": max(e[1] for e in errors),
    }


DECODE_CASES = [
    (batch, kv_heads, context)
    for batch, kv_heads in ((1, 8), (8, 8), (32, 8), (8, 32))
    for context in (512, 2048, 8192, 32_768)
]
DECODE_HEADS = 32


def section_attention_decode() -> Iterator[Row]:
    """One query a sequence over a cache, bf16, 32 heads: traffic against a copy of 1 GiB.

    Caches rotate, so that L2 does not hold them. FLOPs are 4 * B * H * N * D.
    """
    import torch
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from workloads.kernels.attention.decode import attend_one

    def library(which: Any) -> Callable[..., Any]:
        def run(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(which):
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1])

        return run

    copy = copy_gbytes_per_s()
    variants = {
        "sdpa flash": library(SDPBackend.FLASH_ATTENTION),
        "sdpa cudnn": library(SDPBackend.CUDNN_ATTENTION),
        "triton": attend_one,
    }
    for batch, kv_heads, context in DECODE_CASES:
        shape = (batch, kv_heads, context, HEAD_DIM)
        num_bytes = 2 * 2 * batch * kv_heads * context * HEAD_DIM
        if num_bytes > 8e9:
            continue
        copies = max(1, min(8, int(2.5e8 // num_bytes) + 1))
        torch.manual_seed(context)
        q = torch.randn((batch, DECODE_HEADS, 1, HEAD_DIM), device="cuda", dtype=torch.bfloat16)
        caches = [
            tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
            for _ in range(copies)
        ]
        k, v = (t[:1].double().repeat_interleave(DECODE_HEADS // kv_heads, 1) for t in caches[0])
        truth = (q[:1].double() @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v
        del k, v
        case = f"{batch} x {DECODE_HEADS}/{kv_heads}, {context}"
        for name, function in variants.items():
            measure = partial(measure_decode, function, q, caches, truth, num_bytes, copy)
            yield attempt({"case": case, "variant": name}, measure)
        if num_bytes <= COPY_BYTES / 4:  # larger ones are what the copy rate is measured at
            measure = partial(measure_copy, [k for k, _ in caches], num_bytes, copy)
            yield attempt({"case": case, "variant": "copy of as many bytes"}, measure)
        del caches


def measure_copy(sources: list[Any], num_bytes: int, copy: float) -> Row:
    """Read half of the bytes and write the other half: the floor of a kernel of this size."""
    import torch

    target = torch.empty_like(sources[0])
    ms = time_by_graph([partial(target.copy_, source) for source in sources])
    return against_copy(ms, num_bytes, copy)


def against_copy(ms: float, num_bytes: int, copy: float) -> Row:
    """Return a time with its bandwidth, and that as a share of a copy's, in GB/s."""
    rate = num_bytes / ms / 1e6
    return {"ms": ms, "gbytes_per_s": rate, "of_copy": rate / copy}


def measure_decode(
    function: Callable[..., Any], q: Any, caches: list[Any], truth: Any, num_bytes: int, copy: float
) -> Row:
    worst, relative = relative_error(function(q, *caches[0])[:1], truth)
    ms = time_by_graph([partial(function, q, *cache) for cache in caches])
    errors = {"max_abs_error": worst, "rel_error": relative}
    return against_copy(ms, num_bytes, copy) | errors


def tile_rows(kernels: dict[str, Any]) -> Iterator[Row]:
    """Yield what the autotuner measured for its last key, one row per tile."""
    for name, kernel in kernels.items():
        timings = getattr(kernel, "configs_timings", None) or {}
        for config, times in sorted(timings.items(), key=lambda item: _first(item[1])):
            yield {"case": f"tiles of {name}", "variant": str(config), "ms": _first(times)}


def _first(times: Any) -> float:
    return float(times[0] if isinstance(times, list | tuple) else times)


def section_attention_forward() -> Iterator[Row]:
    yield from attention_rows(False)
    from workloads.kernels.attention import function as attention

    yield from tile_rows({"attention_forward": attention.forward_kernel})


def section_attention_backward() -> Iterator[Row]:
    yield from attention_rows(True)
    from workloads.kernels.attention import function as attention

    yield from tile_rows(
        {"backward_keys": attention.keys_kernel, "backward_queries": attention.queries_kernel}
    )


def section_gemm() -> Iterator[Row]:
    """Small M against a 4096 x 11008 weight, bf16; weights rotate so that L2 does not hold them."""
    import torch
    from torch.nn import functional as F

    from workloads.kernels import gemm

    k, n, copies = 4096, 11008, 6
    copy = copy_gbytes_per_s()
    weights = [torch.randn((n, k), device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    for m in (1, 2, 4, 8, 16):
        a = torch.randn((m, k), device="cuda", dtype=torch.bfloat16)
        truth = a.double() @ weights[0].double().T
        for name, function in (("cublas", F.linear), ("triton", gemm.small_gemm)):
            measure = partial(measure_product, function, a, weights, truth, copy)
            yield attempt({"case": f"M={m}", "variant": name}, measure)
        if m in (1, 16):
            yield from tile_rows({f"small gemm M={m}": gemm._small_kernel})


def measure_product(
    function: Callable[..., Any], a: Any, weights: list[Any], truth: Any, copy: float
) -> Row:
    worst, relative = relative_error(function(a, weights[0]), truth)
    ms = time_by_graph([partial(function, a, w) for w in weights])
    moved = 2 * (weights[0].numel() + a.numel() + truth.numel())
    return against_copy(ms, moved, copy) | {"max_abs_error": worst, "rel_error": relative}


def section_moe() -> Iterator[Row]:
    """Routing of 32 768 tokens to 2 of 64 experts: alone, and with the slots grouped."""
    import torch

    from workloads.kernels.moe_regroup import regroup
    from workloads.models.routing import regroup_by_sort, route

    tokens, experts, top_k = 32_768, 64, 2
    logits = torch.randn((tokens, experts), device="cuda")
    variants: dict[str, Callable[..., Any] | None] = {
        "route": None,
        "route + sort": regroup_by_sort,
        "route + counting sort": regroup,
    }
    truth = regroup_by_sort(route(logits, top_k)[1], experts)
    for name, group in variants.items():

        def call(group: Callable[..., Any] | None = group) -> Any:
            ids = route(logits, top_k)[1]
            return group(ids, experts) if group is not None else None

        def measure(call: Callable[[], Any] = call) -> Row:
            out = call()
            equal = out is None or all(
                bool((o.long() == t.long()).all()) for o, t in zip(out, truth, strict=True)
            )
            return {
                "ms": time_by_events(call),
                "graph_ms": time_by_graph([call]),
                "rel_error": 0.0 if equal else 1.0,
            }

        yield attempt({"case": f"{tokens} x {experts} top-{top_k}", "variant": name}, measure)


def section_rms_norm() -> Iterator[Row]:
    import torch
    from torch.nn import functional as F

    from workloads.kernels.rms_norm import rms_norm

    rows, width = 16_384, 4096
    x = torch.randn((rows, width), device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(width, device="cuda", dtype=torch.bfloat16)
    wide = x.double()
    truth = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5) * weight.double()
    variants = {
        "torch": lambda: F.rms_norm(x, (width,), weight, 1e-5),
        "triton": lambda: rms_norm(x, weight),
    }
    for name, call in variants.items():

        def measure(call: Callable[[], Any] = call) -> Row:
            worst, relative = relative_error(call(), truth)
            ms = time_by_graph([call])
            rate = 2 * x.numel() * x.element_size() / ms / 1e6
            return {"ms": ms, "gbytes_per_s": rate, "max_abs_error": worst, "rel_error": relative}

        yield attempt({"case": f"{rows} x {width}", "variant": name}, measure)


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "copy": section_copy,
    "attention_forward": section_attention_forward,
    "attention_backward": section_attention_backward,
    "attention_decode": section_attention_decode,
    "gemm": section_gemm,
    "moe": section_moe,
    "rms_norm": section_rms_norm,
}
