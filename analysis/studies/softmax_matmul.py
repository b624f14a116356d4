"""Softmax against the matrix products of attention: time ratio beside FLOP ratio."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import MATMUL, SOFTMAX

STUDY = Study(
    name="softmax-matmul",
    title="Softmax against matmul inside attention",
    question="Does softmax cost more than its FLOPs say?",
    about="Kernel time of the softmax range over that of the score and output products, beside "
    "the ratio of their FLOPs (5 per element for softmax, 4 d_head for the products): the gap "
    "between the two is memory traffic.",
    filters={"workload": ("transformer",)},
    tables=(
        Table(
            title="Softmax and matmul",
            rows=("gpu", "mode", "model"),
            columns=("seq_len",),
            values=(
                SOFTMAX,
                MATMUL,
                Value("time_ratio", "time ratio", "%", "softmax_to_matmul", ("softmax_to_matmul",)),
                Value("flop_ratio", "FLOP ratio", "%", "softmax_to_matmul_flops"),
            ),
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="bars", x="seq_len", colour="model", value="time_ratio"),
        ),
    ),
    job={
        "workload": "transformer",
        "params": {"mode": "forward", "attention": "naive"},
        "profilers": ["nsys"],
    },
)
