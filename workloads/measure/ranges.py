"""Named ranges around parts of an iteration, and the times of the top-level ones.

A range is an NVTX range for Nsight tools and a `record_function` for the PyTorch trace. CPU builds
of PyTorch have no NVTX (`torch.cuda.nvtx.range_push` raises there), so ranges are record_function
alone. Ranges are never opened inside a compiled region: dynamo would break the graph there, so a
compiled program has the top-level phases only.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

RangeFactory = Callable[[str], AbstractContextManager[Any]]
_NOTHING = nullcontext()


def no_range(name: str) -> AbstractContextManager[Any]:
    """Open nothing: what compiled code uses in place of `Ranges.nested`."""
    return _NOTHING


class PhaseClock:
    """Collect start and end marks of top-level phases without ever synchronising."""

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._marks: dict[str, list[tuple[int, Any, Any]]] = {}
        self.iteration: int | None = None
        "Number of the measured iteration; None stops collecting."

    def mark(self) -> Any:
        """Return a point in time: a recorded CUDA event, or nanoseconds."""
        if not self._on_gpu:
            return time.perf_counter_ns()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, name: str, start: Any) -> None:
        """Keep one finished phase."""
        if self.iteration is not None:
            self._marks.setdefault(name, []).append((self.iteration, start, self.mark()))

    def samples_ns(self) -> dict[str, list[int]]:
        """Return phase -> nanoseconds an iteration, summed where a phase is opened repeatedly.

        Call after a synchronise.
        """
        result: dict[str, list[int]] = {}
        for name, marks in self._marks.items():
            sums: dict[int, int] = {}
            for iteration, start, end in marks:
                sums[iteration] = sums.get(iteration, 0) + elapsed_ns(start, end)
            result[name] = [sums[i] for i in sorted(sums)]
        return result


def elapsed_ns(start: Any, end: Any) -> int:
    """Return end - start for two marks of a PhaseClock."""
    if isinstance(start, int):
        return end - start
    return round(start.elapsed_time(end) * 1e6)


class Ranges:
    """Open ranges, remember which one an exception came out of."""

    def __init__(
        self, *, nvtx: bool, annotations: bool, nested: bool, clock: PhaseClock | None = None
    ) -> None:
        self.nvtx = nvtx
        self.annotations = annotations
        self.clock = clock
        self._nested = nested
        self.failed: list[str] = []
        "Names of the ranges that an exception left, outermost first."
        self.at_phase: Callable[[str, bool], None] | None = None
        "Called at the start (True) and the end (False) of a top-level phase."

    def mark(self, name: str) -> "_Range":
        """Open BENCHMARK or iteration_N: a range that is not a phase."""
        return _Range(self, name, is_phase=False, is_frame=True)

    def phase(self, name: str) -> "_Range":
        """Open a top-level phase of an iteration."""
        return _Range(self, name, is_phase=True, is_frame=False)

    def nested(self, name: str) -> AbstractContextManager[Any]:
        """Open a range inside a phase; nothing in the clean pass, where it would cost time."""
        if not self._nested:
            return _NOTHING
        return _Range(self, name, is_phase=False, is_frame=False)


class _Range:
    __slots__ = ("_annotation", "_is_frame", "_is_phase", "_name", "_ranges", "_start")

    def __init__(self, ranges: Ranges, name: str, *, is_phase: bool, is_frame: bool) -> None:
        self._ranges = ranges
        self._name = name
        self._is_phase = is_phase
        self._is_frame = is_frame
        self._annotation: Any = None
        self._start: Any = None

    def __enter__(self) -> None:
        ranges = self._ranges
        if ranges.nvtx:
            import torch

            torch.cuda.nvtx.range_push(self._name)
        if ranges.annotations:
            import torch

            self._annotation = torch.profiler.record_function(self._name)
            self._annotation.__enter__()
        if self._is_phase:
            if ranges.at_phase is not None:
                ranges.at_phase(self._name, True)
            if ranges.clock is not None and ranges.clock.iteration is not None:
                self._start = ranges.clock.mark()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ranges = self._ranges
        if error is not None:
            if not self._is_frame:
                ranges.failed.insert(0, self._name)
        elif self._is_phase:
            if self._start is not None and ranges.clock is not None:
                ranges.clock.add(self._name, self._start)
            if ranges.at_phase is not None:
                ranges.at_phase(self._name, False)
        if self._annotation is not None:
            self._annotation.__exit__(kind, error, trace)
        if ranges.nvtx:
            import torch

            torch.cuda.nvtx.range_pop()
