"""Read foreign files in a child process with limits: page, API, command line and ingest use it.

`run_limited` starts `python -m captures.confined MODULE` in a scratch folder of its own and calls
`MODULE.main(request, out)` there. The child and what it starts may use so much memory, processor
time, wall time and disk; all of it is ended together, daemons too (`core.supervisor`), and the end
is a `CaptureError` that names the limit. What it found comes back as files (JSON, Parquet), never
as pickles: the child is the side not trusted.

Beyond limits, as far as the kernel allows: no network (a network namespace of its own, else
Landlock, Linux 6.7 and newer, else sockets that cannot be made from Python), no writing or deleting
outside the scratch folder (Landlock, Linux 5.13 and newer), and no signals to other processes
(Landlock, Linux 6.12 and newer). `captures.confined` is that side.
A command and not multiprocessing: under Streamlit `__main__` is a page, which `spawn` would run.
"""

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import ROOT, ReadingSettings, reading_settings
from core.errors import CaptureError
from core.python import module_command
from core.tree import Tree, started

LOG = logging.getLogger("warpboard.sandbox")
REQUEST, SAID = "request.json", "said.txt"
_POLL_S = 0.1
_PROCESSES = 2
"""The kernel ends a process that takes `cpu_s`; a reader and its tool may take so much together."""
_MAPPED_BYTES = 3 << 30
"""Address space beyond the memory limit: libraries map much more than they use."""
_REPORT_MAPPED_BYTES = 64 << 30
"""The same where NVIDIA's own tools read a report: they map address space by the dozen GiB."""
_UNPACKED = 8
"""How many times a packed capture counts: real ones grow 10 to 30 times."""
_REPORT_ENDS = (".nsys-rep", ".qdrep", ".ncu-rep")
"""NVIDIA's own tools read these."""
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use."""

    memory_bytes: int
    cpu_s: float
    wall_s: float
    disk_bytes: int
    mapped_bytes: int = _MAPPED_BYTES
    "Address space of each process beyond `memory_bytes`."


_CPU_S_PER_FILE = 0.5
"""A small file of one of many ranks takes 0.1 s, whatever is in it."""


def limits_for(paths: Sequence[Path], settings: ReadingSettings | None = None) -> Limits:
    """Return limits that grow with the files' sizes and number; the settings say how."""
    chosen = settings or reading_settings()
    num_bytes = sum(_size(path) for path in paths)
    num_mb = num_bytes / 1e6
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = chosen.memory_bytes + int(chosen.memory_per_byte * num_bytes)
    cpu_s = (
        chosen.cpu_s + chosen.cpu_s_per_mb * num_mb + _CPU_S_PER_FILE * sum(map(_num_files, paths))
    )
    has_report = any(p.name.lower().endswith(_REPORT_ENDS) for p in paths)
    return Limits(
        memory_bytes=max(min(wanted, machine * 3 // 4), chosen.memory_bytes),
        cpu_s=cpu_s,
        wall_s=4 * cpu_s + 60,
        disk_bytes=chosen.disk_bytes + 8 * num_bytes,
        mapped_bytes=_REPORT_MAPPED_BYTES if has_report else _MAPPED_BYTES,
    )


def _num_files(path: Path) -> int:
    try:
        return sum(1 for e in os.scandir(path) if e.is_file()) if path.is_dir() else 1
    except OSError:
        return 1


def _size(path: Path) -> int:
    """Return the bytes of a file, or of the plain files right inside a folder, unpacked."""
    try:
        if path.is_dir():
            return sum(_size(Path(e.path)) for e in os.scandir(path) if e.is_file())
        return path.stat().st_size * (_UNPACKED if path.suffix == ".gz" else 1)
    except OSError:
        return 0


def run_limited(
    module: str,
    request: Mapping[str, Any],
    scratch: Path,
    limits: Limits,
    *,
    subject: Path,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Run `MODULE.main(request, scratch)` in a child and return when it has ended well.

    CaptureError about `subject` when it used up a limit, was cancelled or died; what it had written
    to `scratch`, which must be an empty folder, stays there for the caller.
    """
    (scratch / "tmp").mkdir()
    (scratch / REQUEST).write_text(json.dumps({**request, "limits": _as_request(limits)}))
    with _started(module, scratch) as child:
        why = _watch(child, scratch, limits, is_cancelled)
        if why is None and (code := child.exit_code()):
            why = _why_it_died(code, limits, scratch)
    if why is not None:
        where, remedy = why
        raise CaptureError(subject, where, remedy)


@contextlib.contextmanager
def _started(module: str, scratch: Path) -> Iterator[Tree]:
    """Start the child; when the block is left, nothing of it and of what it started is there."""
    command = module_command("captures.confined", module)
    with (
        (scratch / SAID).open("wb") as output,
        started(command, output=output, cwd=scratch, env=_environment(scratch)) as child,
    ):
        yield child


def _as_request(limits: Limits) -> dict[str, Any]:
    return {
        "address_bytes": limits.memory_bytes + limits.mapped_bytes,
        "cpu_s": limits.cpu_s,
        "disk_bytes": limits.disk_bytes,
    }


def _environment(scratch: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return kept | {
        "HOME": str(scratch),
        "TMPDIR": str(scratch / "tmp"),
        "PYTHONPATH": str(ROOT),
        "MALLOC_ARENA_MAX": "2",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "2",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def _watch(
    child: Tree, scratch: Path, limits: Limits, is_cancelled: Callable[[], bool]
) -> tuple[str, str] | None:
    """Wait until the child has ended; return why it must be, once it goes beyond a limit."""
    deadline = time.monotonic() + limits.wall_s
    rounds = 0
    while not child.has_ended(_POLL_S):
        rounds += 1
        resident_bytes, cpu_s = tree_usage(child.pid)
        if resident_bytes > limits.memory_bytes:
            return _used_up("memory", limits)
        if cpu_s > _PROCESSES * (limits.cpu_s + 1):
            return _used_up("cpu", limits)
        if time.monotonic() > deadline:
            return _used_up("wall", limits)
        if rounds % 10 == 0 and _disk_bytes(scratch) > limits.disk_bytes:
            return _used_up("disk", limits)
        if rounds % 10 == 0 and is_cancelled():
            return "reading it was cancelled", "Start it again"
    return None


def _used_up(limit: str, limits: Limits) -> tuple[str, str]:
    names = {
        "memory": f"more than {limits.memory_bytes / 2**30:.1f} GiB of memory",
        "cpu": f"more than {limits.cpu_s:.0f} s of CPU time",
        "wall": f"longer than {limits.wall_s:.0f} s",
        "disk": f"more than {limits.disk_bytes / 2**30:.1f} GiB of disk",
    }
    settings = {"memory": "MEMORY_GB", "cpu": "CPU_S", "wall": "CPU_S", "disk": "DISK_GB"}
    where = f"reading it was stopped: it used {names[limit]}, the limit for a file of its size"
    return where, f"Record a shorter capture, or raise WARPBOARD_READ_{settings[limit]}"


def _why_it_died(code: int, limits: Limits, scratch: Path) -> tuple[str, str]:
    if code == -signal.SIGXCPU:
        return _used_up("cpu", limits)
    if code == -signal.SIGXFSZ:
        return _used_up("disk", limits)
    output = (scratch / SAID).read_text("utf-8", "replace").strip()[-2000:]
    LOG.warning("a child that read captures ended with %s: %s", code, output)
    if "MemoryError" in output[-300:] or "bad_alloc" in output or "realloc" in output[-300:]:
        return _used_up("memory", limits)
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"its reader crashed ({how})", (
        "The file is damaged, or the reader has a bug: report it with the file"
    )


def tree_usage(pid: int) -> tuple[int, float]:
    """Return the resident bytes of a process and of those below it, and their processor seconds."""
    resident, ticks, waiting, num_seen = 0, 0, [pid], 0
    while waiting and num_seen < 1000:
        number, num_seen = waiting.pop(), num_seen + 1
        with contextlib.suppress(OSError, ValueError, IndexError):
            resident += int(Path(f"/proc/{number}/statm").read_text().split()[1])
            fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and those of ended children
            for task in os.listdir(f"/proc/{number}/task"):
                children = Path(f"/proc/{number}/task/{task}/children").read_text()
                waiting += [int(n) for n in children.split()]
    return resident * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK")


def _disk_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total
