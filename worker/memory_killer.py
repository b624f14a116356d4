"""How often the kernel has killed a process of this host for want of memory.

A process that ends by signal 9 may have been killed by anyone; only this count tells that the
memory killer was at work. It is of the whole host, containers included (Linux 4.13 on).
"""

from pathlib import Path

VMSTAT = Path("/proc/vmstat")


def count_memory_kills() -> int | None:
    """Return the count since boot; None where the kernel does not tell."""
    try:
        lines = VMSTAT.read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else None


def kills_since(before: int | None) -> int | None:
    """Return the kills since `before` was counted; None where unknown."""
    now = count_memory_kills()
    return None if before is None or now is None else now - before
