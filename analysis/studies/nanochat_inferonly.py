"""Published: nanochat inference: kernel time by class, and tile sizes."""

from analysis.studies.engine.records import Study, Table, Value

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
                Value(
                    key="blocks",
                    label="grid",
                    unit="blocks",
                    measure="grid_blocks",
                    published=("grid_blocks",),
                ),
                Value(
                    key="compute",
                    label="compute throughput",
                    unit="%",
                    measure="compute_throughput",
                    published=("compute_throughput",),
                ),
                Value(
                    key="memory",
                    label="memory throughput",
                    unit="%",
                    measure="memory_throughput",
                    published=("memory_throughput",),
                ),
                Value(
                    key="rate",
                    label="rate",
                    unit="tokens/s",
                    measure="tokens_per_s",
                    published=("throughput",),
                ),
            ),
            where={"workload": ("gemm",)},
            sources=("nanochat-inferonly",),
        ),
    ),
    job={"workload": "generate", "params": {}, "profilers": ["nsys"]},
    is_publication=True,
)
