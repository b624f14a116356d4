"""Latency of one decoded token: GPU against torch.compile mode."""

from analysis.studies.engine.records import Chart, Study, Table
from analysis.studies.engine.values import LATENCY

STUDY = Study(
    name="decode-latency",
    title="Decode latency by GPU and compile mode",
    question="How long does one decoded token take, by GPU and compile mode?",
    about="Median time of one decode step of Llama-sized layers. Launch-bound where the model is "
    "small: compile modes then change the number of launches more than the work.",
    filters={"workload": ("decode",)},
    tables=(
        Table(
            title="Latency of a decode step",
            rows=("model", "compile"),
            columns=("gpu",),
            values=(LATENCY,),
            sources=("nsight-minimal-llama",),
            where={"workload": ("decode",)},
            chart=Chart(kind="bars", x="compile", colour="gpu", value="latency"),
        ),
    ),
    job={
        "workload": "decode",
        "params": {"compile": "none"},
        "profilers": ["nsys"],
        "repeats": 5,
    },
)
