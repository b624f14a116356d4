"""Published: the large transformer, eager against compiled, on an A100."""

from analysis.studies.engine.records import Chart, Study, Table
from analysis.studies.engine.values import LATENCY

STUDY = Study(
    name="cs336-a100-compile",
    title="cs336-a100-compile: torch.compile of the large model",
    question="What did torch.compile save on an A100?",
    about="Forward pass, training step, and its backward and optimizer part.",
    filters={"workload": ("transformer",)},
    tables=(
        Table(
            title="Latency",
            rows=("model", "mode"),
            columns=("compile",),
            values=(LATENCY,),
            sources=("cs336-a100-compile",),
            chart=Chart(kind="bars", x="mode", colour="compile", value="latency"),
        ),
    ),
    job={
        "workload": "transformer",
        "params": {"mode": "train_step", "compile": "default"},
        "repeats": 3,
    },
    is_publication=True,
)
