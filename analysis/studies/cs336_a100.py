"""Published: forward and backward of two model sizes in fp32 and bf16 on an A100."""

from analysis.studies.engine.records import Study, Table, Value
from analysis.studies.engine.values import ALLOCATED, RESERVED, TOKENS

STUDY = Study(
    name="cs336-a100",
    title="cs336-a100: precision on an A100",
    question="How did the course's models do on an A100?",
    about="Mean, spread, median, extremes, rate, allocated and reserved memory by model, mode "
    "and dtype; one cell ran out of memory.",
    filters={"workload": ("transformer",)},
    tables=(
        Table(
            title="Benchmark",
            rows=("model", "batch", "seq_len", "mode", "dtype"),
            values=(
                Value("mean", "mean", "ms", "latency_mean", ("latency_mean",)),
                Value("std", "std", "ms", "latency_std", ("latency_std",)),
                Value("median", "median", "ms", "latency", ("latency_median", "latency")),
                *(
                    Value(name, name, unit, f"latency_{name}", (f"latency_{name}",))
                    for name, unit in (("min", "ms"), ("max", "ms"), ("cv", "%"))
                ),
                TOKENS,
                ALLOCATED,
                RESERVED,
            ),
            where={"mode": ("forward", "forward_backward")},
            sources=("cs336-a100",),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward", "dtype": "bf16"}, "repeats": 3},
    is_publication=True,
)
