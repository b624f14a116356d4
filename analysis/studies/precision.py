"""What a lower precision buys: latency by dtype and the speed-up on fp32."""

from analysis.studies.engine.records import Chart, Study, Table, Value

STUDY = Study(
    name="precision",
    title="Precision: latency and speed-up on fp32",
    about="The same job at each dtype. The speed-up divides the fp32 latency by the dtype's, all "
    "other fields equal.",
    filters={},
    tables=(
        Table(
            title="Latency by dtype",
            rows=("gpu", "workload", "model", "mode"),
            columns=("dtype",),
            values=(
                Value(
                    key="latency",
                    label="latency",
                    unit="ms",
                    measure="latency",
                    published=("latency", "latency_median"),
                ),
            ),
            sources=("cs336-a100",),
            chart=Chart(kind="bars", x="model", colour="dtype", value="latency"),
        ),
        Table(
            title="Speed-up on fp32",
            rows=("gpu", "workload", "model", "mode"),
            columns=("dtype",),
            values=(
                Value(
                    key="speedup",
                    label="speed-up",
                    unit="x",
                    measure="latency",
                    published=("latency_median",),
                    relative_to=("dtype", "fp32"),
                ),
            ),
            sources=("cs336-a100",),
        ),
    ),
    job={"workload": "transformer", "params": {"dtype": "bf16"}, "repeats": 5},
)
