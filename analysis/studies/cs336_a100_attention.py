"""Published: naive attention by head width and sequence, eager and compiled."""

from analysis.studies.engine.records import Chart, Fit, Study, Table
from analysis.studies.engine.values import (
    BACKWARD_LATENCY,
    BEFORE_BACKWARD,
    FORWARD_LATENCY,
    PEAK_MEMORY,
)

STUDY = Study(
    name="cs336-a100-attention",
    title="cs336-a100-attention: attention by width and sequence",
    question="What does naive attention cost on an A100, in time and memory?",
    about="Forward and backward latency, memory before the backward pass and at the peak, "
    "batch 8, fp32, on an A100.",
    filters={"workload": ("attention",)},
    tables=(
        Table(
            title="Attention",
            rows=("model", "d_model", "seq_len"),
            columns=(),
            values=(
                FORWARD_LATENCY,
                BACKWARD_LATENCY,
                BEFORE_BACKWARD,
                PEAK_MEMORY,
            ),
            where={"mode": ("forward_backward",)},
            sources=("cs336-a100-attention",),
            chart=Chart(kind="loglog", x="seq_len", colour="d_model", value="forward"),
            fit=Fit(x="seq_len", value="forward"),
        ),
    ),
    job={"workload": "attention", "params": {"mode": "forward_backward"}, "repeats": 3},
    is_publication=True,
)
