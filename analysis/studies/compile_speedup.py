"""What torch.compile buys: latency by compile mode and the speed-up on eager."""

from analysis.studies.engine.records import Chart, Study, Table, Value

SOURCES = ("nsight-minimal-llama", "cs336-a100-compile")

STUDY = Study(
    name="compile-speedup",
    title="torch.compile: latency and speed-up on eager",
    about="The same job in each compile mode. The speed-up divides the eager latency by the "
    "mode's, all other fields equal; below 1 compile made it slower.",
    filters={},
    tables=(
        Table(
            title="Latency by compile mode",
            rows=("gpu", "workload", "model", "mode"),
            columns=("compile",),
            values=(
                Value(
                    key="latency",
                    label="latency",
                    unit="ms",
                    measure="latency",
                    published=("latency",),
                ),
            ),
            sources=SOURCES,
            chart=Chart(kind="bars", x="gpu", colour="compile", value="latency"),
        ),
        Table(
            title="Speed-up on eager",
            rows=("gpu", "workload", "model", "mode"),
            columns=("compile",),
            values=(
                Value(
                    key="speedup",
                    label="speed-up",
                    unit="x",
                    measure="latency",
                    published=("latency",),
                    relative_to=("compile", "none"),
                ),
            ),
            sources=SOURCES,
            chart=Chart(kind="bars", x="gpu", colour="compile", value="speedup"),
        ),
    ),
    job={"workload": "decode", "params": {"compile": "default"}, "repeats": 5},
)
