"""The longest kernel of each run and its share of the kernel time."""

from analysis.studies.engine.records import Chart, Study, Table
from analysis.studies.engine.values import longest_kernel

STUDY = Study(
    name="top-kernels",
    title="Longest kernel and its share of kernel time",
    question="Which kernel takes the most time?",
    about="The kernel with the largest total time, whole capture; for training steps also inside "
    "the forward and the backward phase.",
    filters={},
    tables=(
        Table(
            title="Longest kernel",
            rows=("gpu", "workload", "model", "mode", "kernel"),
            columns=("seq_len",),
            values=longest_kernel("top_kernel", name_metric="top_kernel_name"),
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="top_kernel_share"),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
)
