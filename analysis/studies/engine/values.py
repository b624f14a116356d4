"""Numbers that several studies show, each once: name, unit, and what publications call it."""

from analysis.studies.engine.records import Chart, Table, Value

LATENCY = Value(
    key="latency", label="latency", unit="ms", measure="latency", published=("latency",)
)
LATENCY_MEDIAN = Value(
    key="latency",
    label="latency",
    unit="ms",
    measure="latency",
    published=("latency", "latency_median"),
)
FORWARD_LATENCY = Value(
    key="forward",
    label="forward",
    unit="ms",
    measure="forward_latency",
    published=("forward_latency",),
)
BACKWARD_LATENCY = Value(
    key="backward",
    label="backward",
    unit="ms",
    measure="backward_latency",
    published=("backward_latency",),
)
TOKENS = Value(
    key="tokens",
    label="rate",
    unit="tokens/s",
    measure="tokens_per_s",
    published=("throughput|tokens/s",),
)
SOFTMAX = Value(
    key="softmax",
    label="softmax",
    unit="ms",
    measure="softmax_kernels",
    published=("softmax_range",),
)
MATMUL = Value(
    key="matmul",
    label="matmul",
    unit="ms",
    measure="matmul_kernels",
    published=("attention_matmul_range",),
)
BEFORE_BACKWARD = Value(
    key="before",
    label="memory before backward",
    unit="GB",
    measure="memory_before_backward",
    published=("memory_before_backward",),
)
PEAK_MEMORY = Value(
    key="peak", label="peak memory", unit="GB", measure="peak_memory", published=("memory_peak",)
)
RESERVED = Value(
    key="reserved",
    label="reserved",
    unit="GB",
    measure="memory_reserved",
    published=("memory_reserved",),
)
BLOCKS = Value(
    key="blocks", label="grid", unit="blocks", measure="grid_blocks", published=("grid_blocks",)
)
COMPUTE_THROUGHPUT = Value(
    key="compute",
    label="compute throughput",
    unit="%",
    measure="compute_throughput",
    published=("compute_throughput",),
)
MEMORY_THROUGHPUT = Value(
    key="memory",
    label="memory throughput",
    unit="%",
    measure="memory_throughput",
    published=("memory_throughput",),
)


def latency_and_speedup(
    *, by: str, base: str, base_name: str, latency: Value, sources: tuple[str, ...]
) -> tuple[Table, Table]:
    """Return the latency by one field, and how much faster each of its values is than `base`."""
    rows = ("gpu", "workload", "model", "mode", "seq_len")
    speedup = Value(
        key="speedup",
        label="speed-up",
        unit="x",
        measure="latency",
        published=latency.published,
        relative_to=(by, base),
    )
    return (
        Table(
            title=f"Latency by {by.replace('compile', 'compile mode')}",
            rows=rows,
            columns=(by,),
            needs=(by,),
            compares=by,
            values=(latency,),
            sources=sources,
            chart=Chart(kind="bars", x="gpu", colour=by, value="latency"),
        ),
        Table(
            title=f"Speed-up on {base_name}",
            rows=rows,
            columns=(by,),
            needs=(by,),
            compares=by,
            values=(speedup,),
            sources=sources,
            chart=Chart(kind="bars", x="gpu", colour=by, value="speedup"),
        ),
    )
