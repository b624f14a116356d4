"""GPUs side by side: latency, and the share of each GPU's own peaks that it means."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import LATENCY_MEDIAN, TOKENS

STUDY = Study(
    name="gpu-scoreboard",
    title="GPU scoreboard",
    question="How close does each GPU come to its own measured peaks?",
    about="The same job on each GPU: latency, and that latency as a share of the bandwidth and "
    "of the compute peak measured on that very GPU. Blank where a peak was not measured. Jobs "
    "measured on one GPU alone are left out where others were on several.",
    filters={},
    tables=(
        Table(
            title="Scoreboard",
            rows=("workload", "model", "mode", "compile", "dtype", "seq_len", "gpu"),
            compares="gpu",
            values=(
                LATENCY_MEDIAN,
                Value("bandwidth", "of measured bandwidth", "%", "bandwidth_share"),
                Value("compute", "of measured compute peak", "%", "compute_share"),
                TOKENS,
            ),
            sources=(
                "nsight-minimal-llama",
                "flash-kernels-playground",
                "cs336-a100",
                "cs336-a100-compile",
            ),
            chart=Chart(kind="bars", x="workload", colour="gpu", value="latency"),
        ),
    ),
    job={"workload": "decode", "params": {"compile": "none"}, "repeats": 5},
)
