"""Numbers that several studies show, each once: name, unit, and what publications call it."""

from collections.abc import Mapping

from analysis.studies.engine.records import Chart, Table, Value

LATENCY = Value("latency", "latency", "ms", "latency", ("latency",))
LATENCY_MEDIAN = Value("latency", "latency", "ms", "latency", ("latency", "latency_median"))
FORWARD_LATENCY = Value("forward", "forward", "ms", "forward_latency", ("forward_latency",))
BACKWARD_LATENCY = Value("backward", "backward", "ms", "backward_latency", ("backward_latency",))
TOKENS = Value("tokens", "rate", "tokens/s", "tokens_per_s", ("throughput|tokens/s",))
SOFTMAX = Value("softmax", "softmax", "ms", "softmax_kernels", ("softmax_range",))
MATMUL = Value("matmul", "matmul", "ms", "matmul_kernels", ("attention_matmul_range",))
BEFORE_BACKWARD = Value(
    "before", "memory before backward", "GB", "memory_before_backward", ("memory_before_backward",)
)
PEAK_MEMORY = Value("peak", "peak memory", "GB", "peak_memory", ("memory_peak",))
RESERVED = Value("reserved", "reserved", "GB", "memory_reserved", ("memory_reserved",))
ALLOCATED = Value("allocated", "allocated", "GB", "memory_allocated", ("memory_allocated",))
BLOCKS = Value("blocks", "grid", "blocks", "grid_blocks", ("grid_blocks", "gemm_blocks"))
WAVES = Value("waves", "waves per SM", "", "waves_per_sm", ("gemm_waves_per_sm",))
MAX_ERROR = Value("error", "largest absolute error", "", "max_abs_error", ("max_abs_error",))
SPEEDUP_ON_NAIVE = Value(
    "speedup",
    "speed-up on naive",
    "x",
    "latency",
    ("latency",),
    relative_to=("model", "naive"),
    published_ratio=("speedup",),
)
COMPUTE_THROUGHPUT = Value(
    "compute", "compute throughput", "%", "compute_throughput", ("compute_throughput",)
)
MEMORY_THROUGHPUT = Value(
    "memory", "memory throughput", "%", "memory_throughput", ("memory_throughput",)
)


def api_table(
    *,
    where: Mapping[str, tuple[str, ...]],
    sources: tuple[str, ...] = (),
) -> Table:
    """Return the table of host calls: share of the time in calls, total, count and average."""
    parts = (
        ("share", "share", "%", "api_share"),
        ("total", "total", "ms", "api_total"),
        ("count", "calls", "", "api_calls"),
        ("mean", "average", "us", ""),
    )
    return Table(
        title="Host calls",
        rows=("gpu", "workload", "model", "call"),
        values=tuple(
            Value(
                key,
                label,
                unit,
                f"call_{key}",
                (metric,) if metric else (),
                extra="call",
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
            f"{prefix}_{quantity}",
            label,
            unit,
            f"{prefix}_{quantity}",
            (f"{prefix}_{published}",),
            extra="kernel",
            named_by=name_metric,
        )
        for quantity, label, unit, published in (
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
        "speedup", "speed-up", "x", "latency", latency.published, relative_to=(by, base)
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
