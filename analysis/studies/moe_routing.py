"""What regrouping tokens by expert costs on top of routing them."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import LATENCY

REGROUPING = Value("regroup", "regrouping", "ms", "regroup_ms", ("regroup_overhead_time",))
OVERHEAD = Table(
    title="Overhead of regrouping",
    rows=("gpu", "model", "batch"),
    columns=("mode",),
    values=(
        Value(
            "overhead",
            "more than routing alone",
            "%",
            "latency",
            ("latency",),
            relative_to=("mode", "route"),
            is_overhead=True,
            published_ratio=("regroup_overhead",),
        ),
    ),
    sources=("flash-kernels-playground",),
    where={"workload": ("moe_routing",)},
)
STUDY = Study(
    name="moe-routing",
    title="MoE routing and regrouping",
    question="What does routing tokens to experts cost, and what does a better way save?",
    about="Latency of choosing experts (route), and of choosing and regrouping the tokens by "
    "expert: the plain way by a sort (route_regroup), or by counting (route_fused). The "
    "overhead on routing alone is the price of contiguous expert batches.",
    filters={"workload": ("moe_routing",)},
    tables=(
        Table(
            title="Latency",
            rows=("gpu", "model", "batch"),
            columns=("mode",),
            values=(
                LATENCY,
                REGROUPING,
            ),
            sources=("flash-kernels-playground",),
            where={"workload": ("moe_routing",)},
            chart=Chart(kind="bars", x="gpu", colour="mode", value="latency"),
        ),
        OVERHEAD,
    ),
    job={"workload": "moe_routing", "params": {}, "repeats": 5},
)
