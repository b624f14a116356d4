"""Run the iterations: warm-up first, then the measured ones with a mark on both sides of each.

Starting Python, importing PyTorch and tracing a model cost more than most measurements. With
`WARPBOARD_GPU_LOCK=FILE` several jobs of one host may run at the same time: each waits for an
exclusive lock on FILE before it touches the GPU, and holds it to its end. Jobs that inductor
compiles without trials on the GPU take their turn after compiling; the rest before building.
"""

import fcntl
import os
import time
from typing import IO, Any

from workloads.measure.output import Events
from workloads.measure.ranges import PhaseClock, elapsed_ns
from workloads.program import Context, Program

LOCK_VARIABLE = "WARPBOARD_GPU_LOCK"
COMPILES_WITHOUT_TRIALS = ("default", "reduce-overhead")


def is_shared() -> bool:
    """Whether other programs may be measuring on this GPU."""
    return bool(os.environ.get(LOCK_VARIABLE))


class Turn:
    """The right to use the GPU alone; without the variable, always granted."""

    def __init__(self) -> None:
        self.lock_path = os.environ.get(LOCK_VARIABLE, "")
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Wait for the lock; the end of the process gives it back, however it ends."""
        if self.lock_path and self._file is None:
            self._file = open(self.lock_path, "a")  # noqa: SIM115
            fcntl.flock(self._file, fcntl.LOCK_EX)


SETTLE_NS = 300_000_000
"""Least time that a clean GPU pass warms up, so that the clocks have risen."""
SETTLE_ITERATIONS = 200


def synchronize(context: Context) -> None:
    """Wait for the device; nothing on a CPU."""
    if context.on_gpu:
        import torch

        torch.cuda.synchronize()


def warm_up(context: Context, program: Program, events: Events, num_iterations: int) -> None:
    """Run the unmeasured iterations; the first one compiles, if anything is to be compiled.

    A clean GPU pass goes on until its clocks have risen; asked for none, it starts cold.
    """
    started = time.perf_counter_ns()
    compiles = program.compile_mode != "none"
    for index in range(num_iterations):
        stage = "compile" if compiles and index == 0 else "warmup"
        events.progress(stage, index, num_iterations)
        program.step()
        if index == 0:
            synchronize(context)
    synchronize(context)
    events.progress("warmup", num_iterations, num_iterations)
    if context.on_gpu and context.is_clean and num_iterations:
        for _ in range(SETTLE_ITERATIONS):
            if context.ranks.agree(time.perf_counter_ns() - started > SETTLE_NS):
                break
            program.step()
            synchronize(context)


def measure(
    context: Context, program: Program, events: Events, num_iterations: int
) -> tuple[list[int], dict[str, list[int]]]:
    """Run the measured part and return latency samples and phase samples, in ns a call.

    Never synchronises between iterations: marks are CUDA events on a GPU. Progress lines are
    written between two iterations, outside every sample.
    """
    clock = PhaseClock(on_gpu=context.on_gpu)
    ranges = context.ranges
    ranges.clock = clock if context.is_clean else None
    marks: list[tuple[Any, Any]] = []
    synchronize(context)
    context.ranks.barrier()
    with ranges.mark("BENCHMARK"):
        for index in range(num_iterations):
            clock.iteration = index
            with ranges.mark(f"iteration_{index}"):
                start = clock.mark()
                program.step()
                marks.append((start, clock.mark()))
            events.progress("measure", index + 1, num_iterations)
        synchronize(context)
    clock.iteration = None
    ranges.clock = None
    calls = program.calls_per_step
    samples = [round(elapsed_ns(start, end) / calls) for start, end in marks]
    phases = clock.samples_ns() if calls == 1 else {}
    return samples, phases
