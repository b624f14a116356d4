"""Published: MoE routing and one attention, on a laptop RTX 5090."""

from analysis.studies.engine.records import Study, Table
from analysis.studies.engine.values import LATENCY, MAX_ERROR, SPEEDUP_ON_NAIVE, api_table
from analysis.studies.moe_routing import OVERHEAD, REGROUPING

STUDY = Study(
    name="flash-kernels-playground",
    title="flash-kernels-playground: MoE routing and attention",
    question="What did fused routing and a Triton attention save?",
    about="Routing with and without regrouping, and naive against Triton attention at one size.",
    filters={"workload": ("moe_routing", "attention")},
    tables=(
        Table(
            title="MoE routing",
            rows=("mode",),
            columns=(),
            values=(LATENCY, REGROUPING),
            where={"workload": ("moe_routing",)},
            sources=("flash-kernels-playground",),
        ),
        OVERHEAD,
        Table(
            title="Attention forward",
            rows=("model",),
            columns=(),
            values=(LATENCY, SPEEDUP_ON_NAIVE, MAX_ERROR),
            where={
                "workload": ("attention",),
                "mode": ("forward",),
                "dtype": ("fp16",),
                "batch": ("1",),
                "heads": ("32",),
                "seq_len": ("2048",),
                "d_model": ("128",),
            },
            sources=("flash-kernels-playground",),
        ),
        api_table(where={"workload": ("attention",)}, sources=("flash-kernels-playground",)),
    ),
    job={"workload": "moe_routing", "params": {}, "repeats": 5},
    is_publication=True,
)
