"""What regrouping tokens by expert costs on top of routing them."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import LATENCY

STUDY = Study(
    name="moe-routing",
    title="MoE routing and regrouping",
    about="Latency of choosing experts, and of choosing and regrouping the tokens by expert (by "
    "sort or by counting sort): the difference is the price of contiguous expert batches.",
    filters={"workload": ("moe_routing",)},
    tables=(
        Table(
            title="Latency",
            rows=("gpu", "model", "batch"),
            columns=("mode",),
            values=(
                LATENCY,
                Value(key="regroup", label="regrouping", unit="ms", measure="regroup_ms"),
            ),
            sources=("flash-kernels-playground",),
            where={"workload": ("moe_routing",)},
            chart=Chart(kind="bars", x="gpu", colour="mode", value="latency"),
        ),
    ),
    job={"workload": "moe_routing", "params": {}, "repeats": 5},
)
