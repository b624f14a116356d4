"""Published: decode of one Llama-7B layer, eager against max-autotune, on two GPUs."""

from analysis.studies.engine.records import Chart, Study, Table
from analysis.studies.engine.values import LATENCY

STUDY = Study(
    name="nsight-minimal-llama",
    title="nsight-minimal-llama: decode on RTX 3060 and 4090",
    question="How did compile modes do on one Llama layer?",
    about="One layer of Llama 7B, one token per step; the source's table: GPU by compile mode.",
    filters={"workload": ("decode",)},
    tables=(
        Table(
            title="Decode latency",
            rows=("gpu",),
            columns=("compile",),
            values=(LATENCY,),
            where={"model": ("llama-7b-layer",)},
            sources=("nsight-minimal-llama",),
            chart=Chart(kind="bars", x="gpu", colour="compile", value="latency"),
        ),
    ),
    job={"workload": "decode", "params": {"layers": 1, "compile": "none"}, "repeats": 5},
    is_publication=True,
)
