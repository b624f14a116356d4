"""What a lower precision buys: latency by dtype and the speed-up on fp32."""

from analysis.studies.engine.records import Study
from analysis.studies.engine.values import LATENCY_MEDIAN, latency_and_speedup

STUDY = Study(
    name="precision",
    title="Precision: latency and speed-up on fp32",
    question="How much faster is a lower precision?",
    about="The same job at each dtype. The speed-up divides the fp32 latency by the dtype's, all "
    "other fields equal. Jobs measured at one dtype alone are left out where others were at "
    "several.",
    filters={},
    tables=latency_and_speedup(
        by="dtype",
        base="fp32",
        base_name="fp32",
        latency=LATENCY_MEDIAN,
        sources=("cs336-a100",),
    ),
    job={"workload": "transformer", "params": {"dtype": "bf16"}, "repeats": 5},
)
