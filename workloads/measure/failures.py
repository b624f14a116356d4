"""Name the failures that a user can mend, from the text PyTorch gives them."""

from dataclasses import dataclass

from core.errors import AppError, ToolUnavailableError


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
