"""Where the NVIDIA tools of this host are, which versions, and why one cannot be used."""

import glob
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from typing import IO

from captures.sandbox import tree_usage
from core.tree import Tree, started

NSYS_PATTERNS = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-x64/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
)
NCU_PATTERNS = ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu")
MAX_SAID_BYTES = 16 << 20
MAX_PROBE_BYTES = 16 << 30
OLDEST = {"nsys": (2022, 4), "ncu": (2022, 4)}
"""What came with CUDA 12.0; older ones lack options of the passes and were never tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One program, found or not."""

    name: str
    path: str | None = None
    version: str | None = None
    fault: str | None = None
    "Why it cannot be used; None when it can."
    fix: str | None = None

    @property
    def is_usable(self) -> bool:
        return self.path is not None and self.fault is None


def run_quietly(command: list[str], timeout_s: float = 20.0) -> tuple[int | None, str]:
    """Return (exit code, stdout and stderr); the code is None if it could not run or was ended.

    That is when it hangs, writes more than MAX_SAID_BYTES or takes more than MAX_PROBE_BYTES of
    memory. Its whole tree ends with it, including new sessions.
    """
    with tempfile.TemporaryFile() as output:
        with started(command, output=output) as tree:
            why = _watch(tree, output, timeout_s)
        if why is not None:
            return None, why
        try:
            code = tree.exit_code()
        except OSError as error:
            return None, str(error)
        output.seek(0)
        return code, output.read(MAX_SAID_BYTES).decode(errors="replace")


def _watch(tree: Tree, output: IO[bytes], timeout_s: float) -> str | None:
    """Wait for the end of a command; return why it must be ended, once it must."""
    deadline_s = time.monotonic() + timeout_s
    pause_s = 0.01
    while not tree.has_ended(pause_s):
        pause_s = min(2 * pause_s, 0.2)
        if os.fstat(output.fileno()).st_size > MAX_SAID_BYTES:
            return f"it wrote more than {MAX_SAID_BYTES >> 20} MiB"
        if tree_usage(tree.pid)[0] > MAX_PROBE_BYTES:
            return f"it took more than {MAX_PROBE_BYTES >> 30} GiB of memory"
        if time.monotonic() > deadline_s:
            return f"no answer within {timeout_s:.0f} s"
    return None


def _candidates(name: str, patterns: tuple[str, ...]) -> list[str]:
    """Return where the tool may be: the operator's choice, PATH, then the newest installed."""
    chosen = os.environ.get(f"WARPBOARD_{name.upper()}")
    if chosen:
        return [chosen]
    on_path = shutil.which(name)
    installed = [
        path for p in patterns for path in sorted(glob.glob(p), key=_version_key, reverse=True)
    ]
    return list(dict.fromkeys(([on_path] if on_path else []) + installed))


def _version_key(path: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", path))


def _probe(name: str, patterns: tuple[str, ...], product: str) -> Tool:
    faults: list[Tool] = []
    for path in _candidates(name, patterns):
        code, text = run_quietly([path, "--version"])
        version = re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", text)
        if code != 0 or version is None:
            faults.append(_fault(name, path, text))
        elif _version_key(version[1])[:2] < OLDEST[name]:
            faults.append(_too_old(name, path, version[1]))
        else:
            return Tool(name=name, path=path, version=version[1])
    if faults:
        return faults[0]
    return Tool(
        name=name,
        fault=f"{name} is not installed",
        fix=f"Install {product} (NVIDIA's PyTorch container has it), or set "
        f"WARPBOARD_{name.upper()} to its path",
    )


def _too_old(name: str, path: str, version: str) -> Tool:
    needed = ".".join(map(str, OLDEST[name]))
    return Tool(
        name=name,
        path=path,
        version=version,
        fault=f"{path} is version {version}, {needed} or newer is needed",
        fix=f"Install a newer one, or set WARPBOARD_{name.upper()} to its path",
    )


def _fault(name: str, path: str, text: str) -> Tool:
    missing = re.search(r"error while loading shared libraries: (\S+?):", text)
    if missing:
        library = missing.group(1)
        package = "libdw1" if library.startswith("libdw") else f"the package that holds {library}"
        return Tool(
            name=name,
            path=path,
            fault=f"{path} lacks the library {library}",
            fix=f"Install {package} (Debian, Ubuntu: apt-get install {package})"
            if package == "libdw1"
            else f"Install {package}",
        )
    lines = [line for line in text.splitlines() if line.strip()]
    return Tool(
        name=name,
        path=path,
        fault=f"{path} --version failed: {lines[-1].strip() if lines else 'it said nothing'}",
        fix=f"Reinstall it, or set WARPBOARD_{name.upper()} to another copy",
    )


@cache
def find_nsys() -> Tool:
    """Return Nsight Systems: PATH, its own folders, the copy inside Nsight Compute."""
    return _probe("nsys", NSYS_PATTERNS, "NVIDIA Nsight Systems")


@cache
def find_ncu() -> Tool:
    """Return Nsight Compute."""
    return _probe("ncu", NCU_PATTERNS, "NVIDIA Nsight Compute")


def find_nvidia_smi() -> str | None:
    return shutil.which("nvidia-smi")
