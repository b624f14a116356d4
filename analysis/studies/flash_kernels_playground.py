"""Published: MoE routing and one attention, on a laptop RTX 5090."""

from analysis.studies.engine.records import Study, Table
from analysis.studies.engine.values import LATENCY

STUDY = Study(
    name="flash-kernels-playground",
    title="flash-kernels-playground: MoE routing and attention",
    about="Routing with and without regrouping, and naive against Triton attention at one size.",
    filters={"workload": ("moe_routing", "attention")},
    tables=(
        Table(
            title="MoE routing",
            rows=("mode",),
            columns=(),
            values=(LATENCY,),
            where={"workload": ("moe_routing",)},
            sources=("flash-kernels-playground",),
        ),
        Table(
            title="Attention forward",
            rows=("model",),
            columns=(),
            values=(LATENCY,),
            where={"workload": ("attention",)},
            sources=("flash-kernels-playground",),
        ),
    ),
    job={"workload": "moe_routing", "params": {}, "repeats": 5},
    is_publication=True,
)
