"""Whether ncu may read hardware counters here, told from the driver's settings and capabilities."""

import re
from pathlib import Path
from typing import Any

DRIVER_PARAMS = Path("/proc/driver/nvidia/params")
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38


def counter_permission(
    params: Path = DRIVER_PARAMS, status: Path = Path("/proc/self/status")
) -> dict[str, Any]:
    """Return whether ncu may read counters here: `allowed` is None when that cannot be told."""
    admin_only: bool | None = None
    if params.is_file():
        match = re.search(r"RmProfilingAdminOnly:\s*(\d)", params.read_text())
        admin_only = match.group(1) == "1" if match else None
    capabilities = _effective_capabilities(status)
    has_capability = any(capabilities >> bit & 1 for bit in (CAP_SYS_ADMIN, CAP_PERFMON))
    allowed = (
        True if has_capability or admin_only is False else None if admin_only is None else False
    )
    return {
        "counters_allowed": allowed,
        "admin_only": admin_only,
        "has_capability": has_capability,
    }


def _effective_capabilities(status: Path) -> int:
    match = (
        re.search(r"^CapEff:\s*([0-9a-f]+)", status.read_text(), re.M) if status.is_file() else None
    )
    return int(match.group(1), 16) if match else 0
