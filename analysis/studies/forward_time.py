"""Forward time of the transformer by model size and sequence length."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import LATENCY_MEDIAN

STUDY = Study(
    name="forward-time",
    title="Forward time by model size and sequence length",
    question="How long does a forward pass take, on the clock and on the GPU?",
    about="Latency of a whole forward pass without a profiler, and the GPU projection of the "
    "forward range under it: from the first kernel's start to the last one's end. The "
    "range on the host ends when the last kernel is launched, not when it has run.",
    filters={"workload": ("transformer",)},
    tables=(
        Table(
            title="Forward time",
            rows=("gpu", "dtype", "model"),
            columns=("seq_len",),
            values=(
                LATENCY_MEDIAN,
                Value(
                    "forward_range",
                    "GPU projection of the range",
                    "ms",
                    "forward_projected",
                    ("forward_range",),
                ),
            ),
            where={"mode": ("forward",)},
            sources=("cs336-nsys-new-base", "cs336-a100"),
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="latency"),
        ),
    ),
    job={
        "workload": "transformer",
        "params": {"mode": "forward"},
        "profilers": ["nsys"],
        "repeats": 5,
    },
)
