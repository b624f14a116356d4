"""How much memory attention takes: before the backward pass, and at the peak."""

from analysis.studies.engine.records import Chart, Fit, Study, Table
from analysis.studies.engine.values import BEFORE_BACKWARD, PEAK_MEMORY

STUDY = Study(
    name="attention-memory",
    title="Attention: memory by sequence length",
    question="How much memory does attention hold before its backward pass and at the peak?",
    about="Allocated memory before the backward pass and at the peak (GB = 1e9 bytes). A kernel "
    "that keeps the scores grows with the square of the sequence, one that recomputes them "
    "linearly; a cell that ran out of memory is a result.",
    filters={"workload": ("attention",)},
    tables=(
        Table(
            title="Memory",
            rows=("gpu", "model", "dtype", "batch", "d_model"),
            columns=("seq_len",),
            values=(BEFORE_BACKWARD, PEAK_MEMORY),
            sources=("cs336-a100-attention",),
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="peak"),
            fit=Fit(x="seq_len", value="peak"),
        ),
    ),
    job={"workload": "attention", "params": {"mode": "forward_backward"}, "profilers": ["memory"]},
)
