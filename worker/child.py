"""Start a workload under a profiler: event file and profiler switch are set inside its process.

`python -m worker.child EVENTS_PATH SWITCH NAME ARGS...` is `python -m workloads NAME ARGS...
--events-fd N`. Profilers may close descriptors that they do not know before they start a program,
so the descriptor is opened here. SWITCH is the name of a range, or empty: while that range is open
the CUDA profiler API is on. ncu's own NVTX filter goes by the launching thread's ranges and so
never sees a backward kernel, which autograd's thread launches.
"""

import os
import runpy
import sys
from typing import Any


def main() -> None:
    path, switch, *argv = sys.argv[1:]
    events_fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    if switch:
        switch_profiler_with_range(switch)
    sys.argv = ["workloads", *argv, "--events-fd", str(events_fd)]
    runpy.run_module("workloads", run_name="__main__", alter_sys=True)


def switch_profiler_with_range(name: str) -> None:
    """Make the push of NVTX range `name` start the CUDA profiler, and its pop stop it."""
    import torch

    nvtx: Any = torch.cuda.nvtx
    profiler: Any = torch.cuda.profiler
    push, pop = nvtx.range_push, nvtx.range_pop
    depth = 0

    def range_push(message: str) -> int:
        nonlocal depth
        if depth or message == name:
            depth += 1
        if depth == 1:
            torch.cuda.synchronize()
            profiler.start()
        return int(push(message))

    def range_pop() -> int:
        nonlocal depth
        level = int(pop())
        if depth == 1:
            torch.cuda.synchronize()
            profiler.stop()
        depth = max(0, depth - 1)
        return level

    nvtx.range_push, nvtx.range_pop = range_push, range_pop


if __name__ == "__main__":
    main()
