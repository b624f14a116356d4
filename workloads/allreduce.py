"""All-reduce over the GPUs of a job, by size: the roofline of a collective.

Per size and iteration: `calls` all-reduces one after the other, in place, timed together. Bandwidth
as NCCL's own tests define it: algorithm bandwidth = bytes / time of a call; bus bandwidth =
algorithm bandwidth * 2 (n - 1) / n for n ranks, which a link's peak can be held against whatever n.
Each size is checked once: ones summed over n ranks are n.
Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md

FLOPs: (n - 1) / n additions an element and rank; bytes: each rank reads and writes its buffer.

Ranges: a size each (`1_KiB`, ..., `1_GiB`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from core.errors import RunFailedError, UserError
from workloads.program import Context, Metric, Program, Timings, median
from workloads.spec import Cost, ParallelParams, WorkloadSpec, param

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(ParallelParams):
    """Parameters of `allreduce`."""

    gpus: int = param(
        2, doc="GPUs of one host, one rank each; on a CPU: processes", minimum=2, maximum=64,
        basic=True,
    )  # fmt: skip
    min_bytes: int = param(
        1 << 10, doc="smallest buffer", unit="B", minimum=64, maximum=1 << 34, basic=True
    )
    max_bytes: int = param(
        1 << 30, doc="largest buffer", unit="B", minimum=64, maximum=1 << 34, smallest=1 << 14,
        basic=True,
    )  # fmt: skip
    factor: int = param(
        2, doc="factor from one size to the next", minimum=2, maximum=1 << 20, smallest=4
    )
    calls: int = param(
        20, doc="calls per size, timed together", minimum=1, maximum=10_000, smallest=3
    )
    dtype: str = param("fp32", doc="element type", choices=("fp32", "bf16"), basic=True)

    def __post_init__(self) -> None:
        ParallelParams.__post_init__(self)
        if self.max_bytes < self.min_bytes:
            raise UserError(f"max_bytes: {self.max_bytes} is less than min_bytes={self.min_bytes}")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of the buffers in bytes, ascending."""
        sizes, size = [], self.min_bytes
        while size <= self.max_bytes:
            sizes.append(size)
            size *= self.factor
        return tuple(sizes)

    @property
    def element_bytes(self) -> int:
        return 2 if self.dtype == "bf16" else 4


def bus_factor(num_ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth of an all-reduce."""
    return 2 * (num_ranks - 1) / num_ranks


def size_label(num_bytes: int) -> str:
    """Return `64_MiB`: a size without blanks, as range names and tables have it."""
    for unit, name in UNITS:
        if num_bytes >= unit and num_bytes % unit == 0:
            return f"{num_bytes // unit}_{name}"
    raise ValueError(f"{num_bytes} is not a size")


def cost(p: Params) -> Cost:
    """Return one GPU's work of an iteration; see the module's docstring."""
    total = sum(p.sizes) * p.calls
    elements = total / p.element_bytes
    return Cost(
        flops=elements * (p.gpus - 1) / p.gpus,
        bytes=2.0 * total,
        flops_dtype=p.dtype,
        num_tokens=None,
    )


def estimate_memory_bytes(p: Params) -> int:
    """Return one buffer of the largest size; the smaller ones are parts of it."""
    return p.sizes[-1]


def build(p: Params, context: Context) -> Program:
    """Return an iteration: every size, `calls` times."""
    import torch

    dtype = torch.bfloat16 if p.dtype == "bf16" else torch.float32
    buffer = torch.ones(p.sizes[-1] // p.element_bytes, dtype=dtype, device=context.device)
    parts = {size_label(n): buffer[: n // p.element_bytes] for n in p.sizes}
    for label, part in parts.items():
        _check_sum(label, part, p.gpus)
    return Program(step=_step(p, parts, context), metrics=lambda t: _metrics(p, t))


def _check_sum(label: str, part: Any, num_ranks: int) -> None:
    import torch.distributed as dist

    part.fill_(1.0)
    dist.all_reduce(part)
    low, high = part.min().item(), part.max().item()
    if (low, high) != (num_ranks, num_ranks):
        raise RunFailedError(
            f"allreduce: ones of {num_ranks} ranks summed to {low:g} to {high:g} at {label}"
        )


def _step(p: Params, parts: dict[str, Any], context: Context) -> Callable[[], None]:
    import torch.distributed as dist

    def step() -> None:
        for label, part in parts.items():
            part.fill_(1.0)  # in place and repeated, the sums would grow without end
            with context.ranges.phase(label):
                for _ in range(p.calls):
                    dist.all_reduce(part)

    return step


def _metrics(p: Params, timings: Timings) -> list[Metric]:
    """Return latency, algorithm and bus bandwidth of each size: those of the median iteration."""
    metrics = []
    for num_bytes in p.sizes:
        label = size_label(num_bytes)
        total_ns = median(timings.phase_samples_ns.get(label, []))
        if not total_ns:
            continue
        call_ns = total_ns / p.calls
        algorithm = num_bytes / call_ns
        metrics += [
            Metric(name="call_latency_us", value=call_ns / 1e3, unit="us", phase=label),
            Metric(name="algorithm_gbyte_per_s", value=algorithm, unit="GB/s", phase=label),
            Metric(
                name="bus_gbyte_per_s",
                value=algorithm * bus_factor(p.gpus),
                unit="GB/s",
                phase=label,
            ),
        ]
    return metrics


WORKLOAD = WorkloadSpec(
    name="allreduce",
    title="All-reduce by size",
    about="Latency and bandwidth of all-reduce over the GPUs of one host, 1 KiB to 1 GiB.",
    source="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
    params=Params,
    modes=("all_reduce",),
    build=build,
    cost=cost,
    estimate_memory_bytes=estimate_memory_bytes,
)
