"""The longest kernel that is no matrix product."""

from analysis.studies.engine.records import Chart, Study, Table, Value

STUDY = Study(
    name="top-non-gemm",
    title="Longest kernel besides matrix products",
    about="The longest kernel that is neither GEMM nor GEMV, and its share of all kernel time: "
    "what is left to gain where the products are near their peak.",
    filters={},
    tables=(
        Table(
            title="Longest kernel besides GEMM and GEMV",
            rows=("gpu", "workload", "model", "mode", "kernel"),
            columns=("seq_len",),
            values=(
                Value(
                    key="top_non_gemm",
                    label="share of kernel time",
                    unit="%",
                    measure="top_non_gemm",
                    extra="kernel",
                    published=("top_non_gemm_share",),
                ),
            ),
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="top_non_gemm"),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
)
