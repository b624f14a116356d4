"""Time a piece of torch code: CUDA events on a GPU, the clock on a CPU. torch only."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

WARM_UP_S = 0.3
MEASURE_S = 0.6
MIN_REPEATS, MAX_REPEATS = 5, 200


def median(values: Sequence[float]) -> float:
    """Return the middle value, the mean of the two middle ones for an even number."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2


class Timer:
    """Times on the first visible GPU, or on the CPU without one."""

    def __init__(self) -> None:
        import torch

        self.on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.on_gpu else "cpu")

    @property
    def device_name(self) -> str:
        import torch

        return torch.cuda.get_device_name(0) if self.on_gpu else "CPU"

    def free_bytes(self) -> int:
        """Return free device memory, on a CPU the host's available memory."""
        import torch

        if self.on_gpu:
            return int(torch.cuda.mem_get_info()[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def median_s(self, work: Callable[[], Any]) -> float:
        """Return the median seconds of one call after a warm-up."""
        once_s = self._warm_up(work)
        repeats = min(MAX_REPEATS, max(MIN_REPEATS, int(MEASURE_S / max(once_s, 1e-7))))
        times = [self._time_gpu(work) if self.on_gpu else _time_cpu(work) for _ in range(repeats)]
        return median(times)

    def _warm_up(self, work: Callable[[], Any]) -> float:
        """Run for a while, at least twice; return the seconds of the last call."""
        import torch

        started = time.perf_counter()
        calls = 0
        while calls < 2 or time.perf_counter() - started < WARM_UP_S:
            before = time.perf_counter()
            work()
            if self.on_gpu:
                torch.cuda.synchronize()
            once_s = time.perf_counter() - before
            calls += 1
        return once_s

    def _time_gpu(self, work: Callable[[], Any]) -> float:
        import torch

        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def _time_cpu(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
