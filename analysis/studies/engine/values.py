"""Numbers that several studies show, each once: name, unit, and what publications call it."""

from collections.abc import Mapping

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
ALLOCATED = Value(
    key="allocated",
    label="allocated",
    unit="GB",
    measure="memory_allocated",
    published=("memory_allocated",),
)
BLOCKS = Value(
    key="blocks",
    label="grid",
    unit="blocks",
    measure="grid_blocks",
    published=("grid_blocks", "gemm_blocks"),
)
WAVES = Value(
    key="waves",
    label="waves per SM",
    unit="",
    measure="waves_per_sm",
    published=("gemm_waves_per_sm",),
)
MAX_ERROR = Value(
    key="error",
    label="largest absolute error",
    unit="",
    measure="max_abs_error",
    published=("max_abs_error",),
)
SPEEDUP_ON_NAIVE = Value(
    key="speedup",
    label="speed-up on naive",
    unit="x",
    measure="latency",
    published=("latency",),
    relative_to=("model", "naive"),
    published_ratio=("speedup",),
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


def api_table(
    *,
    where: Mapping[str, tuple[str, ...]],
    sources: tuple[str, ...] = (),
    title: str = "Host calls",
) -> Table:
    """Return the table of host calls: share of the time in calls, total, count and average."""
    parts = (
        ("share", "share", "%", "api_share"),
        ("total", "total", "ms", "api_total"),
        ("count", "calls", "", "api_calls"),
        ("mean", "average", "us", ""),
    )
    return Table(
        title=title,
        rows=("gpu", "workload", "model", "call"),
        values=tuple(
            Value(
                key=key,
                label=label,
                unit=unit,
                measure=f"call_{key}",
                extra="call",
                published=(metric,) if metric else (),
                published_field="model",
            )
            for key, label, unit, metric in parts
        ),
        where=where,
        sources=sources,
    )


def longest_kernel(prefix: str, *, name_metric: str) -> tuple[Value, ...]:
    """Return share, total and instances of a longest kernel, named by the field `kernel`."""
    return tuple(
        Value(
            key=f"{prefix}_{what}",
            label=label,
            unit=unit,
            measure=f"{prefix}_{what}",
            extra="kernel",
            named_by=name_metric,
            published=(f"{prefix}_{published}",),
        )
        for what, label, unit, published in (
            ("share", "share of kernel time", "%", "share"),
            ("total", "total", "ms", "total"),
            ("count", "instances", "", "instances"),
        )
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
