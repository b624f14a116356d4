"""Published: nanochat inference: kernel time by class, and tile sizes."""

from analysis.studies.engine.records import Study, Table, Value
from analysis.studies.engine.values import BLOCKS, COMPUTE_THROUGHPUT, MEMORY_THROUGHPUT, TOKENS

STUDY = Study(
    name="nanochat-inferonly",
    title="nanochat-inferonly: where decode time goes, and GEMM tiles",
    about="Kernel time by class of a whole generation, then one product with two tile "
    "sizes, on an RTX 4090.",
    filters={"workload": ("generate", "gemm")},
    tables=(
        Table(
            title="Kernel time by class",
            rows=("category",),
            columns=(),
            values=(
                Value(
                    key="time",
                    label="time",
                    unit="ms",
                    measure="category_ms",
                    published=("kernel_time:*",),
                    extra="category",
                ),
                Value(
                    key="share",
                    label="share",
                    unit="%",
                    measure="category_share",
                    published=("kernel_share:*",),
                    extra="category",
                ),
            ),
            where={"workload": ("generate",)},
            sources=("nanochat-inferonly",),
        ),
        Table(
            title="Tile size",
            rows=("model",),
            columns=(),
            values=(
                BLOCKS,
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
