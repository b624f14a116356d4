"""Peak memory of each phase of a training step, and of the whole."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import RESERVED

STUDY = Study(
    name="memory-phases",
    title="Peak memory by phase",
    question="In which phase does memory peak?",
    about="Peak of allocated memory inside forward, backward and optimizer, over the whole, and "
    "what the allocator had reserved (GB = 1e9 bytes).",
    filters={},
    tables=(
        Table(
            title="Peak by phase",
            rows=("gpu", "workload", "model", "mode", "seq_len"),
            columns=("phase",),
            values=(Value("phase_peak", "allocated peak", "GB", "phase_memory", extra="phase"),),
            chart=Chart(kind="bars", x="model", colour="phase", value="phase_peak"),
        ),
        Table(
            title="Peak of the whole",
            rows=("gpu", "workload", "model", "mode", "dtype"),
            columns=("seq_len",),
            values=(
                Value("peak", "allocated peak", "GB", "peak_memory"),
                RESERVED,
            ),
            sources=("cs336-a100",),
        ),
    ),
    job={
        "workload": "transformer",
        "params": {"mode": "train_step"},
        "profilers": ["memory"],
    },
)
