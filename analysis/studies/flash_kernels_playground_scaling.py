"""Published: naive against Triton attention by batch and sequence length."""

from analysis.studies.engine.records import Chart, Fit, Study, Table, Value
from analysis.studies.engine.values import LATENCY, SPEEDUP_ON_NAIVE

STUDY = Study(
    name="flash-kernels-playground-scaling",
    title="flash-kernels-playground-scaling: attention by batch and sequence",
    question="How did four attentions scale on a laptop GPU?",
    about="Latency and rate of a forward pass, fp16, on a laptop RTX 5090.",
    filters={"workload": ("attention",)},
    tables=(
        Table(
            title="Attention forward",
            rows=("batch", "seq_len"),
            columns=("model",),
            values=(
                LATENCY,
                SPEEDUP_ON_NAIVE,
                Value("rate", "rate", "GFLOP/s", "gflop_per_s", ("throughput",)),
            ),
            where={"mode": ("forward",), "dtype": ("fp16",)},
            sources=("flash-kernels-playground-scaling",),
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="latency"),
            fit=Fit(x="seq_len", value="latency"),
        ),
    ),
    job={"workload": "attention", "params": {}, "repeats": 3},
    is_publication=True,
)
