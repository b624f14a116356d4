"""What a workload's `build` gets and gives: the seam between a workload and the harness."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workloads.measure.ranges import Ranges
from workloads.measure.ranks import Ranks

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a result, with its unit; `phase` is empty for the whole iteration."""

    name: str
    value: float
    unit: str
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One warning of a result."""

    code: str
    message: str


@dataclass(slots=True, kw_only=True)
class Context:
    """What a build may use of the harness."""

    device: "torch.device"
    pass_name: str
    "`clean`, `nsys`, `ncu`, `memory` or `trace`."
    ranges: Ranges
    ranks: Ranks = field(default_factory=Ranks)
    notes: list[Note] = field(default_factory=list)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    "Peak of allocated bytes in each top-level phase (memory pass on a GPU)."

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_clean(self) -> bool:
        return self.pass_name == "clean"

    def warn(self, code: str, message: str) -> None:
        """Add a warning to the result."""
        self.notes.append(Note(code=code, message=message))


@dataclass(slots=True, kw_only=True)
class Timings:
    """What was measured, for a program's own metrics."""

    samples_ns: list[int]
    "Latency of one call, per iteration; empty in profiler passes."
    phase_samples_ns: dict[str, list[int]]

    @property
    def median_ns(self) -> float | None:
        return median(self.samples_ns)


@dataclass(slots=True, kw_only=True)
class Program:
    """A built workload."""

    step: Callable[[], Any]
    "One iteration; opens its own phases."
    calls_per_step: int = 1
    "How often a step does the work (graph replay of short kernels); samples are divided by it."
    compile_mode: str = "none"
    cuda_graph: bool = False
    "Whether the step replays a CUDA graph captured by hand."
    metrics: Callable[[Timings], list[Metric]] | None = None
    "The workload's own numbers, asked after the measured part."


def median(values: list[int]) -> float | None:
    """Return the median, or None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2
