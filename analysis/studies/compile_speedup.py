"""What torch.compile buys: latency by compile mode and the speed-up on eager."""

from analysis.studies.engine.records import Study
from analysis.studies.engine.values import LATENCY, latency_and_speedup

STUDY = Study(
    name="compile-speedup",
    title="torch.compile: latency and speed-up on eager",
    question="How much faster is each compile mode?",
    about="The same job in each compile mode. The speed-up divides the eager latency by the "
    "mode's, all other fields equal; below 1 compile made it slower. Jobs measured in "
    "one mode alone are left out where others were in several.",
    filters={},
    tables=latency_and_speedup(
        by="compile",
        base="none",
        base_name="eager",
        latency=LATENCY,
        sources=("nsight-minimal-llama", "cs336-a100-compile"),
    ),
    job={"workload": "decode", "params": {"compile": "default"}, "repeats": 5},
)
