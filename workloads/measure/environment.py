"""Say what the program ran on and with."""

import platform
import shutil
from typing import Any


def environment() -> dict[str, Any]:
    """Return versions and settings that change timings; no host, user or path."""
    import torch

    versions: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "torchao": _version("torchao"),
        "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        "cxx": next((name for name in ("g++", "clang++") if shutil.which(name)), None),
        "machine": platform.machine(),
        "system": platform.system(),
        "num_threads": torch.get_num_threads(),
        "cpu": None if torch.cuda.is_available() else _cpu_name(),
    }
    return {key: value for key, value in versions.items() if value is not None}


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def device_facts(*, on_gpu: bool) -> dict[str, Any]:
    """Return the result's `device`."""
    if not on_gpu:
        return {"name": _cpu_name(), "type": "cpu"}
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "type": "cuda",
        "compute_capability": f"{properties.major}.{properties.minor}",
        "num_sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
