"""What a profiled process says of itself: versions that matter for a comparison, and its GPU.

Standard library and the program's own torch only; Python 3.8 and newer.
"""

import os
import sys


def facts_of(torch):
    """Return the versions that matter for a comparison."""
    facts = {"python": sys.version.split()[0]}
    version = getattr(torch, "version", None)
    if version is not None:
        facts["torch"] = torch.__version__
        if version.cuda:
            facts["cuda"] = version.cuda
        if getattr(version, "hip", None):
            facts["hip"] = version.hip
    for name in ("transformers", "triton", "numpy"):
        text = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(text, str):
            facts[name] = text
    return facts


def threads_of(torch):
    """Return how many of its cores PyTorch used, and whether a variable says so.

    {} where CUDA began: the GPU decides there. A rank of several has its share of the cores.
    """
    if torch.cuda.is_initialized():
        return {}
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    threads = str(torch.get_num_threads())
    text = f"{threads} of {max(1, usable_cores() // int(ranks))} cores"
    is_set = os.environ.get("OMP_NUM_THREADS") == threads
    return {"threads": text + ", by OMP_NUM_THREADS" * is_set}


def usable_cores(system="/sys"):
    """Return the cores that this process may use: two threads of one count once, a quota counts."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = {_core_of(cpu, system) for cpu in os.sched_getaffinity(0)}
    try:
        with open(f"{system}/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return max(1, min(len(cores), -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no quota: "max"
        return len(cores)


def _core_of(cpu, system):
    try:
        with open(f"{system}/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)


def device_of(torch):
    """Return the GPU that was used; the CPU where CUDA never began."""
    if not torch.cuda.is_initialized():
        return {"name": "cpu"}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "num_sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }
