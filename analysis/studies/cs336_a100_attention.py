"""Published: naive attention by head width and sequence, eager and compiled."""

from analysis.studies.engine.records import Chart, Fit, Study, Table, Value

STUDY = Study(
    name="cs336-a100-attention",
    title="cs336-a100-attention: attention by width and sequence",
    about="Forward and backward latency, memory before the backward pass and at the peak, "
    "batch 8, fp32, on an A100.",
    filters={"workload": ("attention",)},
    tables=(
        Table(
            title="Attention",
            rows=("compile", "d_model", "seq_len"),
            columns=(),
            values=(
                Value(
                    key="forward",
                    label="forward",
                    unit="ms",
                    measure="forward_latency",
                    published=("forward_latency",),
                ),
                Value(
                    key="backward",
                    label="backward",
                    unit="ms",
                    measure="backward_latency",
                    published=("backward_latency",),
                ),
                Value(
                    key="before",
                    label="memory before backward",
                    unit="GB",
                    measure="memory_before_backward",
                    published=("memory_before_backward",),
                ),
                Value(
                    key="peak",
                    label="peak memory",
                    unit="GB",
                    measure="peak_memory",
                    published=("memory_peak",),
                ),
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
