"""Tile size of a product with few rows: blocks in the grid and what of the GPU they use."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import BLOCKS, COMPUTE_THROUGHPUT, MEMORY_THROUGHPUT, WAVES

STUDY = Study(
    name="gemm-tiles",
    title="GEMM tiles: blocks, throughput and rate",
    question="Which tile fills the GPU when a product has few rows?",
    about="With few rows a large tile leaves most SMs without a block. Blocks are M / tile x N "
    "/ tile, rounded up; waves are blocks over what the GPU holds at once (one per SM where "
    "no launch was profiled); throughput from the counters of the longest product.",
    filters={"workload": ("gemm",)},
    tables=(
        Table(
            title="Tiles",
            rows=("gpu", "model", "m", "n"),
            values=(
                BLOCKS,
                WAVES,
                COMPUTE_THROUGHPUT,
                MEMORY_THROUGHPUT,
                Value("rate", "rate", "GFLOP/s", "gflop_per_s"),
                Value("latency", "latency", "ms", "latency"),
            ),
            sources=("nanochat-inferonly",),
            where={"workload": ("gemm",)},
            chart=Chart(kind="bars", x="model", colour="gpu", value="memory"),
        ),
    ),
    job={"workload": "gemm", "params": {}, "profilers": ["ncu"]},
)
