"""Tile size of a product with few rows: blocks in the grid and what of the GPU they use."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import BLOCKS, COMPUTE_THROUGHPUT, MEMORY_THROUGHPUT, TOKENS

STUDY = Study(
    name="gemm-tiles",
    title="GEMM tiles: blocks, throughput and rate",
    about="With few rows a large tile leaves most SMs without a block. Blocks and waves from the "
    "launch, throughput from the counters of the longest product.",
    filters={"workload": ("gemm",)},
    tables=(
        Table(
            title="Tiles",
            rows=("gpu", "model"),
            values=(
                BLOCKS,
                Value(key="waves", label="waves per SM", unit="", measure="waves_per_sm"),
                COMPUTE_THROUGHPUT,
                MEMORY_THROUGHPUT,
                TOKENS,
                Value(key="latency", label="latency", unit="ms", measure="latency"),
            ),
            sources=("nanochat-inferonly",),
            where={"workload": ("gemm",)},
            chart=Chart(kind="bars", x="model", colour="gpu", value="memory"),
        ),
    ),
    job={"workload": "gemm", "params": {}, "profilers": ["ncu"]},
)
