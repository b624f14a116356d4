"""Published: nanochat inference: kernel time by class, and tile sizes."""

from analysis.studies.engine.records import Study, Table, Value
from analysis.studies.engine.values import (
    BLOCKS,
    COMPUTE_THROUGHPUT,
    MEMORY_THROUGHPUT,
    TOKENS,
    WAVES,
)

STUDY = Study(
    name="nanochat-inferonly",
    title="nanochat-inferonly: where decode time goes, and GEMM tiles",
    question="Where does the time of a generation go on an RTX 4090?",
    about="Kernel time by class of a whole generation, copies and allocations, then one product "
    "with two tile sizes, on an RTX 4090. What an allocation is for (weights, cache, scratch) "
    "is told by the source alone.",
    filters={"workload": ("generate", "gemm")},
    tables=(
        Table(
            title="Kernel time by class",
            rows=("category",),
            values=(
                Value("time", "time", "ms", "category_ms", ("kernel_time:*",), extra="category"),
                Value(
                    "share", "share", "%", "category_share", ("kernel_share:*",), extra="category"
                ),
            ),
            where={"workload": ("generate",)},
            sources=("nanochat-inferonly",),
        ),
        Table(
            title="Copies and allocations",
            rows=("gpu", "model"),
            values=(
                Value(
                    "d2h",
                    "device to host",
                    "us/token",
                    "dtoh_us_per_token",
                    ("d2h_time_per_token",),
                ),
                Value(
                    "d2d",
                    "device to device",
                    "us/token",
                    "dtod_us_per_token",
                    ("d2d_time_per_token",),
                ),
                Value(
                    "allocations",
                    "driver allocations a step",
                    "",
                    "allocations",
                    ("allocations_per_forward",),
                ),
                *(
                    Value(
                        what,
                        f"allocations, {what.replace('_', ' ')}",
                        "",
                        "",
                        (f"allocations_{what}",),
                    )
                    for what in ("weights", "kv_cache", "scratch")
                ),
            ),
            where={"workload": ("generate",)},
            sources=("nanochat-inferonly",),
        ),
        Table(
            title="Tile size",
            rows=("model",),
            values=(
                BLOCKS,
                WAVES,
                COMPUTE_THROUGHPUT,
                MEMORY_THROUGHPUT,
                TOKENS,
            ),
            where={"workload": ("gemm",)},
            sources=("nanochat-inferonly",),
        ),
    ),
    job={"workload": "generate", "params": {}, "profilers": ["nsys"]},
    is_publication=True,
)
