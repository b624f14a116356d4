"""Say which limit ended NVIDIA's tool that reads a report: it has those of the reader."""

import resource
import signal
from pathlib import Path

from core.errors import CaptureError


def check_end(path: Path, returncode: int) -> None:
    """Raise CaptureError where the kernel ended the tool (or what its script ran) for a limit."""
    number = -returncode if returncode < 0 else returncode - 128
    if number == signal.SIGXCPU:
        cpu_s, _ = resource.getrlimit(resource.RLIMIT_CPU)
        limit, setting = f"more than {cpu_s} s of CPU time", "CPU_S"
    elif number == signal.SIGXFSZ:
        num_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit, setting = f"more than {num_bytes / 2**30:.1f} GiB of disk", "DISK_GB"
    else:
        return
    where = f"reading it was stopped: NVIDIA's tool used {limit}, the limit for a file of its size"
    raise CaptureError(path, where, f"Record a shorter capture, or raise WARPBOARD_READ_{setting}")
