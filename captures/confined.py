"""The side of `captures.sandbox` that runs foreign files' readers: confine it, then start them.

What holds depends on the kernel; `protection.json` in the scratch folder says it.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captures.sandbox import REQUEST
from core.config import ROOT

PROTECTION = "protection.json"
_ROOMS = ("core", "captures", "analysis")
_LIBRARIES = ("pandas", "pyarrow.parquet", "adbc_driver_sqlite.dbapi")
"""What readers import."""


def main() -> int:
    """Limit this process, then run the job that `request.json` in this folder describes."""
    scratch = Path.cwd()
    request = json.loads((scratch / REQUEST).read_text())
    libc = ctypes.CDLL(None, use_errno=True)
    _limit_resources(request.pop("limits"))
    _die_with_parent(libc)
    _keep_bytecode()
    network = "namespace" if _has_own_network(libc) else "python"
    version = _confine(libc, scratch)
    if network == "python" and version >= _TCP_SINCE:
        network = "landlock"
    if network == "python":
        socket.socket = _NoSocket  # type: ignore[misc]
    protection = {
        "network": network,
        "files": "landlock" if version else "none",
        "signals": "landlock" if version >= _SCOPED_SINCE else "none",
    }
    (scratch / PROTECTION).write_text(json.dumps(protection))
    _imported(sys.argv[1]).main(request, scratch)
    return 0


def _imported(name: str) -> Any:
    """Import the job; what libraries make then stays, so the collector need never look at it."""
    gc.disable()
    job = importlib.import_module(name)
    gc.freeze()
    gc.enable()
    return job


def _limit_resources(limits: Mapping[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits["address_bytes"],) * 2)
    cpu_s = int(limits["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["disk_bytes"], limits["disk_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _die_with_parent(libc: ctypes.CDLL) -> None:
    pdeathsig, no_new_privileges = 1, 38
    libc.prctl(pdeathsig, signal.SIGKILL, 0, 0, 0)
    libc.prctl(no_new_privileges, 1, 0, 0, 0)


def _keep_bytecode() -> None:
    """Have what is imported compiled while folders can still be written to: a third of the start.

    Nothing else may have imported these libraries: the command line stores runs without them.
    """
    import py_compile

    for room in _ROOMS:
        for source in (ROOT / room).rglob("*.py"):
            with contextlib.suppress(OSError, py_compile.PyCompileError):
                if not _is_compiled(source):
                    py_compile.compile(str(source), quiet=2)
    missing = [s for s in map(_source, _LIBRARIES) if s is not None and not _is_compiled(s)]
    if any(os.access(source.parent, os.W_OK) for source in missing):
        command = [sys.executable, "-P", "-c", f"import {', '.join(_LIBRARIES)}"]
        subprocess.run(command, check=False, capture_output=True)


def _source(name: str) -> Path | None:
    """Return the file of a module without importing its package; None if it does not exist."""
    top, *inner = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin is None:
        return None
    module = Path(spec.origin).parent.joinpath(*inner) if inner else Path(spec.origin)
    choices = (module, module / "__init__.py", module.with_suffix(".py"))
    return next((path for path in choices if path.is_file()), None)


def _is_compiled(source: Path) -> bool:
    """Say whether a module's compiled form is there and no older than the module."""
    try:
        compiled = os.stat(importlib.util.cache_from_source(str(source)))
    except OSError:
        return False
    return compiled.st_mtime >= source.stat().st_mtime


def _has_own_network(libc: ctypes.CDLL) -> bool:
    """Leave the network for an empty one of this process, where the kernel allows that."""
    new_user, new_network = 0x10000000, 0x40000000
    return any(libc.unshare(flags) == 0 for flags in (new_network, new_user | new_network))


class _NoSocket(socket.socket):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise PermissionError("the network is closed while files are read")


_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITES = {1: 0b1_1111_1111_0010, 2: 0b11_1111_1111_0010, 3: 0b111_1111_1111_0010}
"""Landlock's rights to write, remove and make, by the version of its interface."""
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_TCP, _TCP_SINCE = 0b11, 4
"""To bind and to connect, and the version that knows it."""
_OUTSIDE, _SCOPED_SINCE = 0b11, 6
"""Abstract sockets and signals of processes that are not below this one."""


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _confine(libc: ctypes.CDLL, scratch: Path) -> int:
    """Allow writing below the scratch folder alone; no TCP and no signals to other processes.

    Returns the Landlock version in force, 0 without Landlock.
    """
    libc.syscall.restype = ctypes.c_long
    version = int(libc.syscall(_LANDLOCK_CREATE, None, 0, 1))
    if version < 1:
        return 0
    handled = _WRITES[min(version, 3)]
    tcp, outside = _TCP * (version >= _TCP_SINCE), _OUTSIDE * (version >= _SCOPED_SINCE)
    num_bytes = 8 + 8 * (version >= _TCP_SINCE) + 8 * (version >= _SCOPED_SINCE)
    attributes = _Ruleset(handled, tcp, outside)
    rules = int(libc.syscall(_LANDLOCK_CREATE, ctypes.byref(attributes), num_bytes, 0))
    if rules < 0:
        return 0
    null = handled & (_WRITE_FILE | _TRUNCATE)
    for path, allowed in ((scratch, handled), (Path("/dev/null"), null)):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _PathBeneath(allowed, place)
        libc.syscall(_LANDLOCK_ADD, rules, 1, ctypes.byref(rule), 0)
        os.close(place)
    is_confined = libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return version if is_confined else 0


if __name__ == "__main__":
    sys.exit(main())
