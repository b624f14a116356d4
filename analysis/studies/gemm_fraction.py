"""Share of kernel time in matrix products, by size."""

from analysis.studies.engine.records import Chart, Study, Table, Value

STUDY = Study(
    name="gemm-fraction",
    title="GEMM fraction by model size and sequence length",
    question="How much of the kernel time is matrix products?",
    about="Kernel time of GEMM and GEMV kernels (split-K reductions included) over all kernel "
    "time; whole CUDA graphs whose kernels were not recorded count in the denominator.",
    filters={},
    tables=(
        Table(
            title="GEMM fraction",
            rows=("gpu", "workload", "mode", "model"),
            columns=("seq_len",),
            values=(
                Value("gemm_fraction", "GEMM and GEMV", "%", "gemm_fraction", ("gemm_fraction",)),
            ),
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="gemm_fraction"),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
)
