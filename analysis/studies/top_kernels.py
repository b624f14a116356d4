"""The longest kernel of each run and its share of the kernel time."""

from analysis.studies.engine.records import Chart, Study, Table, Value

STUDY = Study(
    name="top-kernels",
    title="Longest kernel and its share of kernel time",
    about="The kernel with the largest total time, whole capture; for training steps also inside "
    "the forward and the backward phase.",
    filters={},
    tables=(
        Table(
            title="Longest kernel",
            rows=("gpu", "workload", "model", "mode", "kernel"),
            columns=("seq_len",),
            values=(
                Value(
                    key="top_kernel",
                    label="share of kernel time",
                    unit="%",
                    measure="top_kernel",
                    extra="kernel",
                    published=("top_kernel_share",),
                ),
            ),
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="top_kernel"),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
)
