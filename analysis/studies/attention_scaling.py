"""How attention grows with the sequence: latency, rate, error and the fitted exponent."""

from analysis.studies.engine.records import Chart, Fit, Study, Table, Value
from analysis.studies.engine.values import (
    BACKWARD_LATENCY,
    FORWARD_LATENCY,
    LATENCY,
    MAX_ERROR,
    SPEEDUP_ON_NAIVE,
)

STUDY = Study(
    name="attention-scaling",
    title="Attention: growth with sequence length",
    question="How does each attention implementation scale with sequence length?",
    about="Latency of one attention by implementation with its speed-up on the naive one, on "
    "logarithmic axes; the exponent is the slope of a least-squares line through the "
    "logarithms, with its 95 % interval. 2 is what the work says; short sequences are "
    "launch-bound and pull it down, so the exponent of the three longest stands beside.",
    filters={"workload": ("attention",)},
    tables=(
        Table(
            title="Latency",
            rows=("gpu", "model", "mode", "dtype", "batch", "d_model"),
            columns=("seq_len",),
            values=(LATENCY, SPEEDUP_ON_NAIVE),
            sources=("flash-kernels-playground-scaling", "flash-kernels-playground"),
            where={"workload": ("attention",)},
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="latency"),
            fit=Fit(x="seq_len", value="latency"),
        ),
        Table(
            title="Forward and backward latency",
            rows=("gpu", "model", "dtype", "batch", "d_model"),
            columns=("seq_len",),
            values=(FORWARD_LATENCY, BACKWARD_LATENCY),
            sources=("cs336-a100-attention",),
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="forward"),
            fit=Fit(x="seq_len", value="forward"),
        ),
        Table(
            title="Rate and error",
            rows=("gpu", "model", "mode", "dtype", "batch", "d_model"),
            columns=("seq_len",),
            values=(
                Value("rate", "rate", "GFLOP/s", "gflop_per_s", ("throughput|GFLOP/s",)),
                MAX_ERROR,
            ),
            sources=("flash-kernels-playground-scaling", "flash-kernels-playground"),
            where={"workload": ("attention",)},
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="rate"),
        ),
    ),
    job={"workload": "attention", "params": {}, "repeats": 3},
)
