"""Published: a transformer from small to 2.7B under Nsight Systems; OOM cells included."""

from analysis.studies.engine.records import Chart, Study, Table, Value
from analysis.studies.engine.values import MATMUL, SOFTMAX, longest_kernel

STUDY = Study(
    name="cs336-nsys-new-base",
    title="cs336-nsys-new-base: model size by sequence length",
    question="What do Nsight Systems captures of the course's models show?",
    about="Forward ranges, longest kernels, GEMM fraction, softmax against matmul, on a "
    "GPU that the source does not name.",
    filters={"workload": ("transformer",)},
    tables=(
        Table(
            title="Forward range",
            rows=("model",),
            columns=("seq_len",),
            values=(
                Value(
                    "forward_range",
                    "forward, GPU projection",
                    "ms",
                    "forward_projected",
                    ("forward_range",),
                ),
            ),
            where={"mode": ("forward",)},
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="loglog", x="seq_len", colour="model", value="forward_range"),
        ),
        Table(
            title="Longest kernel",
            rows=("model", "seq_len", "mode", "kernel"),
            values=longest_kernel("top_kernel", name_metric="top_kernel_name"),
            sources=("cs336-nsys-new-base",),
        ),
        Table(
            title="Longest kernel besides GEMM",
            rows=("model", "seq_len", "kernel"),
            values=longest_kernel("top_non_gemm", name_metric="top_non_gemm_kernel"),
            where={"mode": ("forward",)},
            sources=("cs336-nsys-new-base",),
        ),
        Table(
            title="GEMM fraction",
            rows=("model", "seq_len"),
            columns=("mode",),
            values=(Value("gemm_fraction", "GEMM", "%", "gemm_fraction", ("gemm_fraction",)),),
            where={"mode": ("forward", "train_step")},
            sources=("cs336-nsys-new-base",),
            chart=Chart(kind="heatmap", x="seq_len", colour="model", value="gemm_fraction"),
        ),
        Table(
            title="Softmax and matmul",
            rows=("model", "seq_len"),
            values=(
                SOFTMAX,
                MATMUL,
                Value(
                    "ratio", "softmax / matmul", "%", "softmax_to_matmul", ("softmax_to_matmul",)
                ),
            ),
            where={"mode": ("forward",)},
            sources=("cs336-nsys-new-base",),
        ),
    ),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
    is_publication=True,
)
