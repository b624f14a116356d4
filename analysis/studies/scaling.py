"""What more GPUs buy: throughput, efficiency and exposed communication over ranks."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import TOKENS

_ROWS = ("gpu", "model", "mode", "dtype", "seq_len", "batch", "parallel")
_PARALLEL = {"workload": ("transformer",), "parallel": ("ddp", "fsdp2", "tensor")}

STUDY = Study(
    name="scaling",
    title="Scaling over GPUs of one host",
    question="How well does a model scale over several GPUs?",
    about="The same model on 1, 2, 4, 8 ranks. Strong: the ranks share one batch; weak: it grows "
    "with them. Efficiency is GPU time per token on 1 rank over that on n: 1 is ideal. One job is "
    "one sample: a small difference needs several jobs.",
    filters={},
    tables=(
        Table(
            title="Throughput by ranks",
            rows=_ROWS,
            columns=("ranks",),
            values=(TOKENS,),
            where=_PARALLEL,
            chart=Chart(kind="bars", x="model", colour="ranks", value="tokens"),
        ),
        Table(
            title="Scaling efficiency",
            rows=_ROWS,
            columns=("ranks",),
            values=(
                Value(
                    "efficiency",
                    "efficiency",
                    "x",
                    "gpu_time_per_token",
                    relative_to=("ranks", "1"),
                ),
            ),
            where=_PARALLEL,
            compares="ranks",
        ),
        Table(
            title="Exposed communication",
            rows=_ROWS,
            columns=("ranks",),
            values=(Value("exposed", "of the span", "%", "exposed_communication"),),
            where=_PARALLEL,
        ),
        Table(
            title="All-reduce: bus bandwidth by size",
            rows=("gpu", "ranks", "dtype", "size"),
            values=(Value("bus", "bus bandwidth", "GB/s", "bus_bandwidth", extra="size"),),
            where={"workload": ("allreduce",)},
        ),
    ),
    job={
        "workload": "transformer",
        "params": {"gpus": 2, "parallel": "ddp", "mode": "train_step", "dtype": "bf16"},
        "profilers": ["nsys", "trace"],
        "repeats": 3,
    },
)
