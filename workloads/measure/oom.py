"""Recognise failures from the text that PyTorch gives them.

Out of memory, on the device or the host, with what was asked for; and failures that a user can fix.
"""

import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import AppError, ToolUnavailableError

_UNITS: Mapping[str, int] = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_CUDA_TEXT = re.compile(r"Tried to allocate ([\d.]+) (bytes|B|KiB|MiB|GiB)")
_HOST_TEXT = re.compile(r"you tried to allocate (\d+) bytes")
_HOST_MARKS = ("can't allocate memory", "Cannot allocate memory", "std::bad_alloc")
_DEVICE_MARKS = ("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(slots=True)
class OomObserver:
    """Remember the exact size that the CUDA allocator could not give."""

    requested_bytes: int | None = None

    def attach(self) -> None:
        """Ask the allocator to report; the message alone is rounded to two decimals."""
        import torch

        def observe(device: int, requested: int, total: int, free: int) -> None:
            self.requested_bytes = requested

        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None:
            attach(observe)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error, or one it was raised from, is an exhausted memory."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, MemoryError) or type(seen).__name__ == "OutOfMemoryError":
            return True
        text = str(seen)
        if any(mark in text for mark in (*_HOST_MARKS, *_DEVICE_MARKS)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def requested_bytes(error: BaseException) -> int | None:
    """Return the size in the error's text, or None when it names none."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if match := _HOST_TEXT.search(text):
            return int(match[1])
        if match := _CUDA_TEXT.search(text):
            return round(float(match[1]) * _UNITS[match[2]])
        seen = seen.__cause__ or seen.__context__
    return None


def apply_memory_cap(cap_gib: float, *, on_gpu: bool) -> int | None:
    """Limit the memory of this process and return the limit in bytes; None when there is none.

    On a GPU the PyTorch allocator's share of the card; on a CPU the address space beyond what the
    process has mapped now (RLIMIT_AS).
    """
    if cap_gib <= 0:
        return None
    cap_bytes = int(cap_gib * 2**30)
    if on_gpu:
        import torch

        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total))
        return min(cap_bytes, total)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_mapped_bytes() + cap_bytes, hard))
    return cap_bytes


def _mapped_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def memory_numbers(*, on_gpu: bool) -> dict[str, int]:
    """Return the result's `memory`: allocator peaks on a GPU, the process's peak on a CPU."""
    if not on_gpu:
        return {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    import torch

    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def oom_record(
    error: BaseException, *, phase: str, stage: str, limit: int | None, observer: OomObserver
) -> dict[str, Any]:
    """Return the result's `oom`; what is unknown is absent."""
    on_gpu = _cuda_in_use()
    memory = memory_numbers(on_gpu=on_gpu)
    if limit is None and on_gpu:
        import torch

        limit = torch.cuda.get_device_properties(0).total_memory
    record = {
        "phase": phase,
        "stage": stage,
        "where": "device" if on_gpu else "host",
        "requested_bytes": observer.requested_bytes or requested_bytes(error),
        "peak_bytes": memory.get("peak_allocated_bytes", memory.get("peak_rss_bytes")),
        "limit_bytes": limit,
    }
    return {key: value for key, value in record.items() if value is not None}


def _cuda_in_use() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_initialized()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a failed run says: `outcome` as in the bundle's passes."""

    outcome: str
    error: str


_NO_IMAGE = "no kernel image is available"
_OLD_DRIVER = ("driver on your system is too old", "driver version is insufficient")


def describe(error: BaseException) -> Failure:
    """Return the outcome and one clear line for what a workload raised."""
    text = str(error).strip()
    first_line = text.split("\n")[0]
    if isinstance(error, ToolUnavailableError):
        return Failure(outcome="tool_missing", error=first_line)
    if isinstance(error, AppError):
        return Failure(outcome="workload_failed", error=first_line)
    if _NO_IMAGE in text:
        return Failure(
            outcome="no_kernel_image",
            error="this PyTorch build has no kernels for this GPU; install a build for its "
            f"compute capability ({first_line})",
        )
    if any(mark in text for mark in _OLD_DRIVER):
        return Failure(
            outcome="driver_too_old",
            error="the NVIDIA driver is older than this PyTorch build needs; update the driver or "
            f"install an older build ({first_line})",
        )
    if "not compiled with CUDA" in text:
        return Failure(
            outcome="tool_missing",
            error="this PyTorch build has no CUDA; install a CUDA build or run with --device cpu",
        )
    return Failure(outcome="workload_failed", error=f"{type(error).__name__}: {first_line}")
