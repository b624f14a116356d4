"""Time calls on a GPU and take their errors: what the kernel benchmark measures with."""

import statistics
import time
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
GRAPH_CALLS = 24
MIN_SAMPLES = 12
SAMPLE_SECONDS = 0.25
BATCH_CALLS = 8
HEAD_START_CYCLES = 20_000_000
"""That the GPU sleeps before a batch of calls: about 10 ms, in which a host issues all of them."""
COPY_BYTES = 2**30


def time_by_events(call: Callable[[], Any]) -> float:
    """Return the median time of a call in ms, on the GPU: the host is ahead, however slow it is."""
    import torch

    for _ in range(5):
        call()
    torch.cuda.synchronize()
    pairs: list[tuple[Any, Any]] = []
    started = time.perf_counter()
    while len(pairs) < MIN_SAMPLES or time.perf_counter() - started < SAMPLE_SECONDS:
        if len(pairs) % BATCH_CALLS == 0:
            torch.cuda.synchronize()
            torch.cuda._sleep(HEAD_START_CYCLES)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def time_by_graph(calls: list[Callable[[], Any]]) -> float:
    """Return the median time of one call in ms, replaying a graph that rotates the calls."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(GRAPH_CALLS):
            calls[index % len(calls)]()
    return time_by_events(graph.replay) / GRAPH_CALLS


def relative_error(out: Any, reference: Any) -> tuple[float, float]:
    """Return max abs error and ||out - reference|| / ||reference||, both in float64."""
    difference = out.double() - reference
    norm = (difference.norm() / reference.norm()).item()
    return difference.abs().max().item(), norm


def attempt(row: Row, measure: Callable[[], Row]) -> Row:
    """Return the row with its numbers, or with its error."""
    import torch

    try:
        return row | measure()
    except Exception as error:
        torch.cuda.empty_cache()
        return row | {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}


def copy_gbytes_per_s() -> float:
    """Return measured device copy bandwidth, bytes read and written, in GB/s."""
    import torch

    source = torch.randn(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / time_by_events(lambda: target.copy_(source)) / 1e6
