"""Published: what others measured, each source's own tables with the runs that measure the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.studies.engine.records import Chart, Fit, Study, Table, Value
from analysis.studies.engine.values import (
    ALLOCATED,
    BACKWARD_LATENCY,
    BEFORE_BACKWARD,
    BLOCKS,
    COMPUTE_THROUGHPUT,
    FORWARD_LATENCY,
    LATENCY,
    MATMUL,
    MAX_ERROR,
    MEMORY_THROUGHPUT,
    PEAK_MEMORY,
    RESERVED,
    SOFTMAX,
    SPEEDUP_ON_NAIVE,
    TOKENS,
    WAVES,
    api_table,
    longest_kernel,
)
from analysis.studies.moe_routing import OVERHEAD, REGROUPING


def _publication(
    name: str,
    title: str,
    *tables: Table,
    question: str,
    about: str,
    workloads: tuple[str, ...],
    job: Mapping[str, Any],
) -> Study:
    """Return the study of one source; its tables lay that source's figures beside ours."""
    return Study(
        name=name,
        title=f"{name}: {title}",
        question=question,
        about=about,
        filters={"workload": workloads},
        tables=tuple(replace(table, sources=(name,)) for table in tables),
        job=job,
        is_publication=True,
    )


def _of(name: str, label: str, unit: str, measure: str = "", **options: Any) -> Value:
    """Return a number that publications call by its key."""
    return Value(name, label, unit, measure or name, (name,), **options)


_LATENCIES = (
    Value("mean", "mean", "ms", "latency_mean", ("latency_mean",)),
    Value("std", "std", "ms", "latency_std", ("latency_std",)),
    Value("median", "median", "ms", "latency", ("latency_median", "latency")),
    *(
        Value(name, name, unit, f"latency_{name}", (f"latency_{name}",))
        for name, unit in (("min", "ms"), ("max", "ms"), ("cv", "%"))
    ),
)
_ONE_ATTENTION = {
    "workload": ("attention",),
    "mode": ("forward",),
    "dtype": ("fp16",),
    "batch": ("1",),
    "heads": ("32",),
    "seq_len": ("2048",),
    "d_model": ("128",),
}
_OF_CLASSES = (
    Value("time", "time", "ms", "category_ms", ("kernel_time:*",), extra="category"),
    Value("share", "share", "%", "category_share", ("kernel_share:*",), extra="category"),
)
_COPIES = (
    Value("d2h", "device to host", "us/token", "dtoh_us_per_token", ("d2h_time_per_token",)),
    Value("d2d", "device to device", "us/token", "dtod_us_per_token", ("d2d_time_per_token",)),
    Value(
        "allocations",
        "driver allocations a step",
        "",
        "allocations",
        ("allocations_per_forward",),
    ),
    *(
        Value(what, f"allocations, {what.replace('_', ' ')}", "", "", (f"allocations_{what}",))
        for what in ("weights", "kv_cache", "scratch")
    ),
)

STUDIES = (
    _publication(
        "cs336-a100",
        "precision on an A100",
        Table(
            title="Benchmark",
            rows=("model", "batch", "seq_len", "mode", "dtype"),
            values=(*_LATENCIES, TOKENS, ALLOCATED, RESERVED),
            where={"mode": ("forward", "forward_backward")},
        ),
        question="How did the course's models do on an A100?",
        about="Mean, spread, median, extremes, rate, allocated and reserved memory by model, mode "
        "and dtype; one cell ran out of memory.",
        workloads=("transformer",),
        job={
            "workload": "transformer",
            "params": {"mode": "forward", "dtype": "bf16"},
            "repeats": 3,
        },
    ),
    _publication(
        "cs336-a100-attention",
        "attention by width and sequence",
        Table(
            title="Attention",
            rows=("model", "d_model", "seq_len"),
            values=(FORWARD_LATENCY, BACKWARD_LATENCY, BEFORE_BACKWARD, PEAK_MEMORY),
            where={"mode": ("forward_backward",)},
            chart=Chart(kind="loglog", x="seq_len", colour="d_model", value="forward"),
            fit=Fit(x="seq_len", value="forward"),
        ),
        question="What does naive attention cost on an A100, in time and memory?",
        about="Forward and backward latency, memory before the backward pass and at the peak, "
        "batch 8, fp32, on an A100.",
        workloads=("attention",),
        job={"workload": "attention", "params": {"mode": "forward_backward"}, "repeats": 3},
    ),
    _publication(
        "cs336-a100-compile",
        "torch.compile of the large model",
        Table(
            title="Latency",
            rows=("model", "mode"),
            columns=("compile",),
            values=(LATENCY,),
            chart=Chart(kind="bars", x="mode", colour="compile", value="latency"),
        ),
        question="What did torch.compile save on an A100?",
        about="Forward pass, training step, and its backward and optimizer part.",
        workloads=("transformer",),
        job={
            "workload": "transformer",
            "params": {"mode": "train_step", "compile": "default"},
            "repeats": 3,
        },
    ),
    _publication(
        "cs336-nsys-new-base",
        "model size by sequence length",
        Table(
            title="Forward range",
            rows=("model",),
            columns=("seq_len",),
            values=(_of("forward_range", "forward, GPU projection", "ms", "forward_projected"),),
            where={"mode": ("forward",)},
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="forward_range"),
        ),
        Table(
            title="Longest kernel",
            rows=("model", "seq_len", "mode", "kernel"),
            values=longest_kernel("top_kernel", name_metric="top_kernel_name"),
        ),
        Table(
            title="Longest kernel besides GEMM",
            rows=("model", "seq_len", "kernel"),
            values=longest_kernel("top_non_gemm", name_metric="top_non_gemm_kernel"),
            where={"mode": ("forward",)},
        ),
        Table(
            title="GEMM fraction",
            rows=("model", "seq_len"),
            columns=("mode",),
            values=(_of("gemm_fraction", "GEMM", "%"),),
            where={"mode": ("forward", "train_step")},
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="gemm_fraction"),
        ),
        Table(
            title="Softmax and matmul",
            rows=("model", "seq_len"),
            values=(
                SOFTMAX,
                MATMUL,
                Value(
                    "ratio", "softmax / matmul", "%", "softmax_to_matmul", ("softmax_to_matmul",)
                ),
            ),
            where={"mode": ("forward",)},
        ),
        question="What do Nsight Systems captures of the course's models show?",
        about="Forward ranges, longest kernels, GEMM fraction, softmax against matmul, on a "
        "GPU that the source does not name.",
        workloads=("transformer",),
        job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
    ),
    _publication(
        "flash-kernels-playground",
        "MoE routing and attention",
        Table(
            title="MoE routing",
            rows=("mode",),
            values=(LATENCY, REGROUPING),
            where={"workload": ("moe_routing",)},
        ),
        OVERHEAD,
        Table(
            title="Attention forward",
            rows=("model",),
            values=(LATENCY, SPEEDUP_ON_NAIVE, MAX_ERROR),
            where=_ONE_ATTENTION,
        ),
        api_table(where={"workload": ("attention",)}),
        question="What did fused routing and a Triton attention save?",
        about="Routing with and without regrouping, and naive against Triton attention at one "
        "size.",
        workloads=("moe_routing", "attention"),
        job={"workload": "moe_routing", "params": {}, "repeats": 5},
    ),
    _publication(
        "flash-kernels-playground-scaling",
        "attention by batch and sequence",
        Table(
            title="Attention forward",
            rows=("batch", "seq_len"),
            columns=("model",),
            values=(
                LATENCY,
                SPEEDUP_ON_NAIVE,
                Value("rate", "rate", "GFLOP/s", "gflop_per_s", ("throughput",)),
            ),
            where={"mode": ("forward",), "dtype": ("fp16",)},
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="latency"),
            fit=Fit(x="seq_len", value="latency"),
        ),
        question="How did four attentions scale on a laptop GPU?",
        about="Latency and rate of a forward pass, fp16, on a laptop RTX 5090.",
        workloads=("attention",),
        job={"workload": "attention", "params": {}, "repeats": 3},
    ),
    _publication(
        "nanochat-inferonly",
        "where decode time goes, and GEMM tiles",
        Table(
            title="Kernel time by class",
            rows=("category",),
            values=_OF_CLASSES,
            where={"workload": ("generate",)},
        ),
        Table(
            title="Copies and allocations",
            rows=("gpu", "model"),
            values=_COPIES,
            where={"workload": ("generate",)},
        ),
        Table(
            title="Tile size",
            rows=("model",),
            values=(BLOCKS, WAVES, COMPUTE_THROUGHPUT, MEMORY_THROUGHPUT, TOKENS),
            where={"workload": ("gemm",)},
        ),
        question="Where does the time of a generation go on an RTX 4090?",
        about="Kernel time by class of a whole generation, copies and allocations, then one "
        "product with two tile sizes, on an RTX 4090. What an allocation is for (weights, cache, "
        "scratch) is told by the source alone.",
        workloads=("generate", "gemm"),
        job={"workload": "generate", "params": {}, "profilers": ["nsys"]},
    ),
    _publication(
        "nsight-minimal-llama",
        "decode on RTX 3060 and 4090",
        Table(
            title="Decode latency",
            rows=("gpu",),
            columns=("compile",),
            values=(LATENCY,),
            where={"model": ("llama-7b-layer",)},
            chart=Chart(kind="bars", x="gpu", colour="compile", value="latency"),
        ),
        question="How did compile modes do on one Llama layer?",
        about="One layer of Llama 7B, one token per step; the source's table: GPU by compile mode.",
        workloads=("decode",),
        job={"workload": "decode", "params": {"layers": 1, "compile": "none"}, "repeats": 5},
    ),
)
