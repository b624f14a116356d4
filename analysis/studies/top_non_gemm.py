"""The longest kernel that is not a matrix product."""

from analysis.studies.engine.records import Chart, Study, Table
from analysis.studies.engine.values import longest_kernel

STUDY = Study(
    name="top-non-gemm",
    title="Longest kernel besides matrix products",
    question="What is left to gain beside the matrix products?",
    about="The longest kernel that is neither GEMM nor GEMV, and its share of all kernel time: "
    "what is left to gain where the products are near their peak.",
    filters={},
    tables=(
        Table(
            title="Longest kernel besides GEMM and GEMV",
            rows=("gpu", "workload", "model", "mode", "kernel"),
            columns=("seq_len",),
            values=longest_kernel("top_non_gemm", name_metric="top_non_gemm_kernel"),
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="top_non_gemm_share"),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
)
