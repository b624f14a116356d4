"""Measure our Triton kernels on this GPU against the libraries: prints a table and one JSON line.

    python bench/kernels.py [--out FILE] [--section NAME]... [--budget SECONDS]

Every section runs in a process of its own, so that a kernel that does not compile, crashes or hangs
is a row of the table and not its end. Short kernels are timed by replaying a CUDA graph of many
calls (events around one launch measure the launch); long ones by events. Errors are against
float64 on the same inputs: the whole output for products and routing, one head for attention.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

Row = dict[str, Any]
GRAPH_CALLS = 24
MIN_SAMPLES = 12
SAMPLE_SECONDS = 0.25
COPY_BYTES = 2**30


def time_by_events(call: Callable[[], Any]) -> float:
    """Return the median time of a call in ms."""
    import torch

    for _ in range(5):
        call()
    torch.cuda.synchronize()
    pairs = []
    started = time.perf_counter()
    while len(pairs) < MIN_SAMPLES or time.perf_counter() - started < SAMPLE_SECONDS:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        pairs.append((start, end))
        if len(pairs) % 8 == 0:
            torch.cuda.synchronize()
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


ATTENTION_CASES = [(seq, causal) for seq in (2048, 4096) for causal in (False, True)]
BATCH, HEADS, HEAD_DIM = 4, 32, 128


def attention_variants() -> dict[str, Callable[..., Any]]:
    """Return name -> function(q, k, v, causal)."""
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from workloads.kernels.attention import attention

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

    for seq, causal in ATTENTION_CASES:
        torch.manual_seed(seq)
        shape = (BATCH, HEADS, seq, HEAD_DIM)
        tensors = [
            torch.randn(shape, device="cuda", dtype=torch.float16, requires_grad=is_backward)
            for _ in range(3)
        ]
        grad = torch.randn(shape, device="cuda", dtype=torch.float16)
        truth = reference_head(tensors, grad, causal)
        truth = truth[1:] if is_backward else truth[:1]
        flops = 4 * BATCH * HEADS * seq**2 * HEAD_DIM * (2.5 if is_backward else 1)
        flops = flops / 2 if causal else flops
        for name, function in attention_variants().items():
            if name == "triton pointers" and seq != ATTENTION_CASES[0][0]:
                continue
            row = {"case": f"{seq}{' causal' if causal else ''}", "variant": name}

            def measure(function: Callable[..., Any] = function) -> Row:
                return measure_attention(function, tensors, grad, causal, truth, flops, is_backward)

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


def tile_rows(kernels: dict[str, Any]) -> Iterator[Row]:
    """Yield what the autotuner measured for its last key, one row a tile."""
    for name, kernel in kernels.items():
        timings = getattr(kernel, "configs_timings", None) or {}
        for config, times in sorted(timings.items(), key=lambda item: _first(item[1])):
            yield {"case": f"tiles of {name}", "variant": str(config), "ms": _first(times)}


def _first(times: Any) -> float:
    return float(times[0] if isinstance(times, list | tuple) else times)


def section_attention_forward() -> Iterator[Row]:
    yield from attention_rows(False)
    from workloads.kernels import attention

    yield from tile_rows({"attention_forward": attention.forward_kernel})


def section_attention_backward() -> Iterator[Row]:
    yield from attention_rows(True)
    from workloads.kernels import attention

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
        moved = 2 * (n * k + m * k + m * n)
        for name, function in (("cublas", F.linear), ("triton", gemm.small_gemm)):

            def measure(function: Callable[..., Any] = function, a: Any = a) -> Row:
                calls = [lambda w=w: function(a, w) for w in weights]
                worst, relative = relative_error(function(a, weights[0]), truth)
                ms = time_by_graph(calls)
                rate = moved / ms / 1e6
                return {
                    "ms": ms, "gbytes_per_s": rate, "of_copy": rate / copy,
                    "max_abs_error": worst, "rel_error": relative,
                }  # fmt: skip

            yield attempt({"case": f"M={m}", "variant": name}, measure)
        if m in (1, 16):
            yield from tile_rows({f"small gemm M={m}": gemm._small_kernel})


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
    "gemm": section_gemm,
    "moe": section_moe,
    "rms_norm": section_rms_norm,
}


def run_section(name: str, budget_s: float) -> list[Row]:
    """Run one section in a child and return its rows; a crash or time-out is a row."""
    command = [sys.executable, __file__, "--child", name]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        text, _ = child.communicate(timeout=max(10.0, budget_s))
        failure = f"exit code {child.returncode}" if child.returncode else ""
    except subprocess.TimeoutExpired:
        child.kill()
        text, _ = child.communicate()
        failure = f"stopped after {budget_s:.0f} s"
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if failure:
        rows.append({"case": "", "variant": "", "error": failure})
    return [{"section": name} | row for row in rows]


def goals(rows: list[Row]) -> list[Row]:
    """Return each goal with the ratio reached: attention, gemm and regroup."""
    found = []
    for section, least in (("attention_forward", 0.9), ("attention_backward", 0.6)):
        timed = [r for r in rows if r["section"] == section and "ms" in r]
        for case in dict.fromkeys(r["case"] for r in timed if not r["case"].startswith("tiles")):
            of = {r["variant"]: r["ms"] for r in timed if r["case"] == case}
            libraries = [ms for name, ms in of.items() if name.startswith("sdpa")]
            if "triton" in of and libraries:
                reached = min(libraries) / of["triton"]
                found.append(_goal(f"{section} {case}: speed of best SDPA", reached, least, True))
    for row in rows:
        if row["section"] == "gemm" and row["variant"] == "triton" and "of_copy" in row:
            name = f"gemm {row['case']}: of copy bandwidth"
            found.append(_goal(name, row["of_copy"], 0.85, True))
    for key in ("ms", "graph_ms"):
        of = {r["variant"]: r[key] for r in rows if r["section"] == "moe" and key in r}
        if len(of) == 3:
            route, by_sort, by_count = of.values()
            if by_sort > route:
                reached = (by_count - route) / (by_sort - route)
                found.append(_goal(f"moe ({key}): share of what sort adds", reached, 0.4, False))
    return found


def _goal(name: str, reached: float, goal: float, is_least: bool) -> Row:
    met = reached >= goal if is_least else reached <= goal
    return {"goal": name, "reached": reached, "limit": goal, "met": met}


COLUMNS = ("ms", "graph_ms", "tflop_per_s", "gbytes_per_s", "of_copy", "max_abs_error", "rel_error")


def print_rows(rows: list[Row]) -> None:
    for row in rows:
        numbers = [f"{key}={row[key]:.4g}" for key in COLUMNS if key in row]
        note = f"FAILED {row['error']}" if "error" in row else "  ".join(numbers)
        print(f"{row['section']:19} {row['case']:22} {row['variant']:24} {note}", flush=True)


def main() -> int:
    """Run the sections and return 0 when no row failed, 1 otherwise, 3 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--section", action="append", choices=tuple(SECTIONS))
    parser.add_argument("--child", choices=tuple(SECTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument("--budget", type=float, default=230.0, help="seconds for all sections")
    args = parser.parse_args()
    if args.child:
        for row in SECTIONS[args.child]():
            print(json.dumps(row), flush=True)
        return 0
    import torch

    if not torch.cuda.is_available():
        print("bench/kernels.py needs a CUDA GPU; on a CPU the kernels are tested by pytest")
        return 3
    started = time.monotonic()
    rows: list[Row] = []
    for name in args.section or SECTIONS:
        new = run_section(name, args.budget - (time.monotonic() - started))
        print_rows(new)
        rows += new
    reached = goals(rows)
    for goal in reached:
        sign = "met" if goal["met"] else "NOT MET"
        print(f"goal {goal['goal']:60} {goal['reached']:.3f} (limit {goal['limit']}) {sign}")
    document = {
        "schema_version": 1,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": __import__("triton").__version__,
        "seconds": round(time.monotonic() - started, 1),
        "rows": rows,
        "goals": reached,
    }
    text = json.dumps(document)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
