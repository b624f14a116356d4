"""What names in a timeline mean, for every format and page: launches, waits, iterations, paths."""

import re
from functools import lru_cache

MEASURED_RANGE = "BENCHMARK"
"""The range that a workload opens around what it measures."""
PATH_SEPARATOR = "/"
SLASH_IN_NAME = "\u2215"
"""Stands in a path for a slash of a range's own name: `layers/0` is not a range `0` in `layers`."""

_VERSION_SUFFIX = re.compile(r"(?:_ptsz|_ptds)?_v\d{4,5}$")
_LAUNCH = re.compile(r"(?<!Get)(?<!Set)Launch(?!HostFunc)", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch", re.IGNORECASE)
_SEVERAL_KERNELS = re.compile(r"Graph|MultiDevice")
_WAIT = re.compile(
    r"Synchronize|^(?:cuda|cu|hip)Memcpy(?!.*Async)|^(?:ur|pi)(?:EventsWait|EventWait$|QueueFinish)"
)
_CAPTURE_BEGIN = re.compile(r"^(?:cuda|cu|hip)StreamBeginCapture")
_CAPTURE_END = re.compile(r"^(?:cuda|cu|hip)StreamEndCapture")
_ITERATION = re.compile(r"(?:iteration|iter|step|ProfilerStep)[ _#]?\d+", re.IGNORECASE)


def api_name(recorded: str) -> str:
    """Return an API call's name without its version suffix: `cudaLaunchKernel_v7000`."""
    return _VERSION_SUFFIX.sub("", recorded)


def is_launch(call: str) -> bool:
    """Say whether a host call starts a kernel or a graph; a host function is none."""
    return _LAUNCH.search(call) is not None


def is_graph_launch(call: str) -> bool:
    """Say whether a host call starts a CUDA graph."""
    return _GRAPH_LAUNCH.search(call) is not None


def launches_one_kernel(call: str) -> bool:
    """Say whether a host call starts one kernel: no graph, no launch on several devices."""
    return is_launch(call) and _SEVERAL_KERNELS.search(call) is None


def is_wait(call: str) -> bool:
    """Say whether a host call returns only when the GPU, or a copy, has finished."""
    return _WAIT.search(call) is not None


def is_asynchronous(call: str) -> bool:
    """Say whether a copying call returns before the copy is done: `cudaMemcpyAsync`."""
    return "Async" in call


def begins_capture(call: str) -> bool:
    """Say whether launches after this call go into a CUDA graph instead of running."""
    return _CAPTURE_BEGIN.match(call) is not None


def ends_capture(call: str) -> bool:
    """Say whether this call ends the capture of a CUDA graph."""
    return _CAPTURE_END.match(call) is not None


def is_iteration(name: str) -> bool:
    """Say whether a range's name numbers repetitions: `iteration_3`, `ProfilerStep#3`, `step 3`."""
    return _ITERATION.fullmatch(name) is not None


def path_part(name: str) -> str:
    """Return a range's name as a path segment."""
    return name.replace(PATH_SEPARATOR, SLASH_IN_NAME)


@lru_cache(maxsize=65_536)
def iteration_path(path: str) -> str | None:
    """Return a path down to its iteration, the outermost numbered range; None outside of one.

    Numbered ranges inside an iteration (denoising steps, the program's own counter in a profiler
    step) are parts of it: counted as well, its time would count twice.
    """
    parts = path.split(PATH_SEPARATOR)
    for number, part in enumerate(parts):
        if is_iteration(part):
            return PATH_SEPARATOR.join(parts[: number + 1])
    return None


def is_iteration_path(path: str) -> bool:
    """Say whether a phase is an iteration as a whole, and no part of one."""
    return path != "" and iteration_path(path) == path
