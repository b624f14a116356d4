"""How much memory attention takes: before the backward pass, and at the peak."""

from analysis.studies.engine.records import Chart, Fit, Study, Table, Value

STUDY = Study(
    name="attention-memory",
    title="Attention: memory by sequence length",
    about="Allocated memory before the backward pass and at the peak (GB = 1e9 bytes). A kernel "
    "that keeps the scores grows with the square of the sequence, one that recomputes them "
    "linearly; a cell that ran out of memory is a result.",
    filters={"workload": ("attention",)},
    tables=(
        Table(
            title="Memory",
            rows=("gpu", "model", "compile", "dtype", "batch", "d_model"),
            columns=("seq_len",),
            values=(
                Value(
                    key="before",
                    label="before backward",
                    unit="GB",
                    measure="memory_before_backward",
                    published=("memory_before_backward",),
                ),
                Value(
                    key="peak",
                    label="peak",
                    unit="GB",
                    measure="peak_memory",
                    published=("memory_peak",),
                ),
            ),
            sources=("cs336-a100-attention",),
            chart=Chart(kind="loglog", x="seq_len", colour="compile", value="peak"),
            fit=Fit(x="seq_len", value="peak"),
        ),
    ),
    job={"workload": "attention", "params": {"mode": "forward_backward"}, "profilers": ["memory"]},
)
