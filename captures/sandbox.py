"""Read foreign files in a child process with limits: page, API, command line and ingest use it.

`run_limited` starts `python -m captures.sandbox MODULE` in a scratch folder of its own and calls
`MODULE.main(request, out)` there. The child may use so much memory, processor time, wall time and
disk; it is ended as a process group, and its end is a `CaptureError` that names the limit. What it
found comes back as files (JSON, Parquet), never as pickles: the child is the side not trusted.

Beyond limits, as far as the kernel allows: no network (a network namespace of its own, else
Landlock, else sockets that cannot be made from Python), and no writing or deleting outside the
scratch folder (Landlock, Linux 5.13 and newer). `protection.json` in the folder says what holds.
A command and not multiprocessing: under Streamlit `__main__` is a page, which `spawn` would run.
"""

import contextlib
import ctypes
import importlib
import json
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.config import ROOT, ReadingSettings, reading_settings
from core.errors import CaptureError

LOG = logging.getLogger("warpboard.sandbox")
REQUEST, PROTECTION, SAID = "request.json", "protection.json", "said.txt"
_POLL_S = 0.1
_MAPPED_BYTES = 3 << 30
"""Address space beyond the memory limit: libraries map much more than they use."""
_UNPACKED = 8
"""How many times a packed capture counts: real ones grow 10 to 30 times."""
_REPORT_ENDS = (".nsys-rep", ".qdrep", ".ncu-rep")
"""NVIDIA's own tools read these; they map address space by the dozen GiB."""
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_ROOMS = ("core", "captures", "analysis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one child may use."""

    memory_bytes: int
    cpu_s: float
    wall_s: float
    disk_bytes: int
    is_mapping_free: bool = False
    "Address space is not limited, resident memory is."


def limits_for(paths: Sequence[Path], settings: ReadingSettings | None = None) -> Limits:
    """Return limits that grow with the files' sizes; the settings say how."""
    chosen = settings or reading_settings()
    num_bytes = sum(_size(path) for path in paths)
    num_mb = num_bytes / 1e6
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = chosen.memory_bytes + int(chosen.memory_per_byte * num_bytes)
    cpu_s = chosen.cpu_s + chosen.cpu_s_per_mb * num_mb
    return Limits(
        memory_bytes=max(min(wanted, machine * 3 // 4), chosen.memory_bytes),
        cpu_s=cpu_s,
        wall_s=4 * cpu_s + 60,
        disk_bytes=chosen.disk_bytes + 8 * num_bytes,
        is_mapping_free=any(p.name.lower().endswith(_REPORT_ENDS) for p in paths),
    )


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
    to `scratch`, which must be an empty folder, stays there for whoever called.
    """
    (scratch / "tmp").mkdir()
    (scratch / REQUEST).write_text(json.dumps({**request, "limits": _as_request(limits)}))
    alive, child_end = os.pipe()
    try:
        with (scratch / SAID).open("wb") as said:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "captures.sandbox", module],
                cwd=scratch,
                env=_environment(scratch),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                pass_fds=(child_end,),
            )
        os.close(child_end)
        child_end = -1
        why = _watch(child, alive, scratch, limits, is_cancelled)
    finally:
        os.close(alive)
        if child_end >= 0:
            os.close(child_end)
    if why is None and child.returncode:
        why = _why_it_died(child.returncode, limits, scratch)
    if why is not None:
        where, remedy = why
        raise CaptureError(subject, where, remedy)


def _as_request(limits: Limits) -> dict[str, Any]:
    return {
        "memory_bytes": None if limits.is_mapping_free else limits.memory_bytes,
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
    child: subprocess.Popen[bytes],
    alive: int,
    scratch: Path,
    limits: Limits,
    is_cancelled: Callable[[], bool],
) -> tuple[str, str] | None:
    """Wait for the child; end its group and return why, when it goes beyond a limit."""
    deadline = time.monotonic() + limits.wall_s
    rounds = 0
    try:
        while child.poll() is None:
            select.select([alive], [], [], _POLL_S)
            rounds += 1
            if _resident_bytes(child.pid) > limits.memory_bytes:
                return _used_up("memory", limits)
            if time.monotonic() > deadline:
                return _used_up("wall", limits)
            if rounds % 10 == 0 and _disk_bytes(scratch) > limits.disk_bytes:
                return _used_up("disk", limits)
            if rounds % 10 == 0 and is_cancelled():
                return "reading it was cancelled", "Start it again"
        return None
    finally:
        # Also after a good end: what the child may have left running is of no use.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _used_up(limit: str, limits: Limits) -> tuple[str, str]:
    names = {
        "memory": f"more than {limits.memory_bytes / 2**30:.1f} GiB of memory",
        "cpu": f"more than {limits.cpu_s:.0f} s of processor time",
        "wall": f"longer than {limits.wall_s:.0f} s",
        "disk": f"more than {limits.disk_bytes / 2**30:.1f} GiB of disk",
    }
    settings = {"memory": "MEMORY_GB", "cpu": "CPU_S", "wall": "CPU_S", "disk": "DISK_GB"}
    where = f"reading it was ended: it took {names[limit]}, the limit for a file of its size"
    return where, f"Record a shorter capture, or raise WARPBOARD_READ_{settings[limit]}"


def _why_it_died(code: int, limits: Limits, scratch: Path) -> tuple[str, str]:
    if code == -signal.SIGXCPU:
        return _used_up("cpu", limits)
    if code == -signal.SIGXFSZ:
        return _used_up("disk", limits)
    said = (scratch / SAID).read_text("utf-8", "replace").strip()[-2000:]
    LOG.warning("a child that read captures ended with %s: %s", code, said)
    if "MemoryError" in said[-300:] or "bad_alloc" in said or "realloc" in said[-300:]:
        return _used_up("memory", limits)
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"its reader died ({how})", "The file is damaged, or the reader: report it with the file"


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and of those it started."""
    total, waiting = 0, [pid]
    page = os.sysconf("SC_PAGE_SIZE")
    while waiting and len(waiting) < 1000:
        number = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{number}/statm").read_text().split()[1]) * page
            for task in os.listdir(f"/proc/{number}/task"):
                children = Path(f"/proc/{number}/task/{task}/children").read_text()
                waiting += [int(n) for n in children.split()]
    return total


def _disk_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


# From here on: what runs in the child.


def main() -> int:
    """Limit this process, then run the job that `request.json` in this folder describes."""
    scratch = Path.cwd()
    request = json.loads((scratch / REQUEST).read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    _limit_resources(request.pop("limits"))
    _die_with_parent(libc)
    _keep_bytecode()
    protection = {"network": _leave_network(libc), "files": _confine_writes(libc, scratch)}
    (scratch / PROTECTION).write_text(json.dumps(protection))
    importlib.import_module(sys.argv[1]).main(request, scratch)
    return 0


def _limit_resources(limits: Mapping[str, Any]) -> None:
    if limits["memory_bytes"] is not None:
        mapped = limits["memory_bytes"] + _MAPPED_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (mapped, mapped))
    cpu_s = int(limits["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["disk_bytes"], limits["disk_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_parent(libc: ctypes.CDLL) -> None:
    pdeathsig, no_new_privileges = 1, 38
    libc.prctl(pdeathsig, signal.SIGKILL, 0, 0, 0)
    libc.prctl(no_new_privileges, 1, 0, 0, 0)


def _keep_bytecode() -> None:
    """Compile our own modules while their folders can still be written to: it halves the start."""
    import py_compile
    from importlib.util import cache_from_source

    for room in _ROOMS:
        for source in (ROOT / room).rglob("*.py"):
            compiled = Path(cache_from_source(str(source)))
            with contextlib.suppress(OSError, py_compile.PyCompileError):
                if not compiled.exists():
                    py_compile.compile(str(source), quiet=2)


def _leave_network(libc: ctypes.CDLL) -> str:
    new_user, new_network = 0x10000000, 0x40000000
    for flags in (new_network, new_user | new_network):
        if libc.unshare(flags) == 0:
            return "namespace"

    class NoSocket(socket.socket):
        def __init__(self, *_: Any, **__: Any) -> None:
            raise PermissionError("the network is closed while files are read")

    socket.socket = NoSocket  # type: ignore[misc]
    return "python"


_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITES = {1: 0b1_1111_1111_0010, 2: 0b11_1111_1111_0010, 3: 0b111_1111_1111_0010}
"""Landlock's rights to write, remove and make, by the version of its interface."""
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _confine_writes(libc: ctypes.CDLL, scratch: Path) -> str:
    """Allow writing below the scratch folder alone; "none" where the kernel has no Landlock."""
    libc.syscall.restype = ctypes.c_long
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return "none"
    handled = _WRITES[min(int(version), 3)]
    attributes = ctypes.c_uint64(handled)
    rules = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(attributes), 8, 0)
    if rules < 0:
        return "none"
    null = handled & (_WRITE_FILE | _TRUNCATE)
    for path, allowed in ((scratch, handled), (Path("/dev/null"), null)):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _PathBeneath(allowed, place)
        libc.syscall(_LANDLOCK_ADD, rules, 1, ctypes.byref(rule), 0)
        os.close(place)
    is_confined = libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(int(rules))
    return "landlock" if is_confined else "none"


if __name__ == "__main__":
    sys.exit(main())
