"""What this host has: GPUs, driver, tools, permissions, PyTorch; each fault with its fix.

`python -m worker.probe [--json]`. Exit code 0 when nothing is at fault, 1 otherwise.
"""

import argparse
import json
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.finding import finding
from worker.tools import Tool, find_ncu, find_nsys, find_nvidia_smi, run_quietly
from workloads.allowed import allowed_entries

DRIVER_PARAMS = Path("/proc/driver/nvidia/params")
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38


def counter_permission(
    params: Path = DRIVER_PARAMS, status: Path = Path("/proc/self/status")
) -> dict[str, Any]:
    """Return whether ncu may read counters here: `allowed` is None when unknown."""
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


_SMI_FIELDS = ("index", "name", "uuid", "driver_version", "memory.total", "compute_cap")
_TORCH_PROBE = """
import json, sys
facts = {"python": sys.version.split()[0]}
try:
    import torch
    facts["torch"] = torch.__version__
    facts["cuda"] = torch.version.cuda
    facts["arch_list"] = torch.cuda.get_arch_list() if torch.version.cuda else []
    facts["devices"] = []
    if torch.version.cuda:
        try:
            torch.cuda.init()
        except Exception as error:
            facts["cuda_error"] = str(error).splitlines()[0]
        for i in range(torch.cuda.device_count() if "cuda_error" not in facts else 0):
            p = torch.cuda.get_device_properties(i)
            facts["devices"].append({"name": p.name, "num_sms": p.multi_processor_count,
                "memory_bytes": p.total_memory, "compute_capability": f"{p.major}.{p.minor}",
                "uuid": "GPU-" + str(p.uuid) if hasattr(p, "uuid") else None})
except ImportError as error:
    facts["error"] = str(error)
try:
    import triton
    facts["triton"] = triton.__version__
except ImportError:
    pass
print(json.dumps(facts))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as the driver names it."""

    ordinal: int
    model: str
    uuid: str | None = None
    driver: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    num_sms: int | None = None


def probe(python: str | None = None) -> dict[str, Any]:
    """Return gpus, tools, permissions, torch and the list of checks. Spawns processes."""
    gpus, gpu_check = probe_gpus()
    torch = probe_torch(python or os.environ.get("WARPBOARD_PYTHON") or sys.executable)
    gpus = [_with_torch_facts(g, torch.get("devices", ())) for g in gpus]
    nsys, ncu = find_nsys(), find_ncu()
    permission = counter_permission()
    is_cpu_host = gpu_check["is_ok"] and not gpus
    checks = [
        gpu_check,
        *_torch_checks(torch, gpus),
        _tool_check(nsys, "timeline, kernels and ranges", has_gpu=not is_cpu_host),
        _tool_check(ncu, "hardware counters", has_gpu=not is_cpu_host),
        _permission_check(permission, has_gpu=bool(gpus)),
        _compiler_check(has_gpu=bool(gpus)),
    ]
    return {
        "schema_version": 1,
        "host": {"label": socket.gethostname(), "cpus": os.cpu_count(), "os": _os_name()},
        "gpus": [asdict(g) for g in gpus],
        "tools": {
            t.name: {"path": t.path, "version": t.version, "fault": t.fault} for t in (nsys, ncu)
        },
        "permissions": permission | {"commands": allowed_entries()},
        "torch": torch,
        "checks": checks,
    }


def probe_gpus() -> tuple[list[Gpu], dict[str, Any]]:
    """Return the GPUs that nvidia-smi lists, and the check that says how that went."""
    smi = find_nvidia_smi()
    needed = "every GPU job"
    if smi is None:
        has_device = has_nvidia_device()
        fix = (
            "The device is there but nvidia-smi is not: start the container with the utility "
            "capability (NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
            if has_device
            else "If this host has a GPU: install the NVIDIA driver; in a container the NVIDIA "
            "container toolkit and a GPU reservation"
        )
        found = "a GPU, but no nvidia-smi" if has_device else "none: jobs run on the CPU"
        return [], finding("gpu", found, fix, needed_for=needed) | {"is_ok": not has_device}
    query = f"--query-gpu={','.join(_SMI_FIELDS)}"
    code, text = run_quietly([smi, query, "--format=csv,noheader,nounits"])
    gpus = [gpu for line in text.splitlines() if (gpu := parse_gpu(line)) is not None]
    if code != 0 or not gpus:
        lines = text.strip().splitlines()
        found = lines[-1] if lines else "it said nothing"
        fix = "Load the driver (`modprobe nvidia`), or reboot after a driver update"
        if "NVML" in text and "mismatch" in text:
            fix = "Reboot the host: the loaded kernel module and the driver's library differ"
        return [], finding("gpu", f"nvidia-smi: {found}", fix, needed_for=needed)
    found = "; ".join(f"{g.model} (driver {g.driver})" for g in gpus)
    return gpus, finding("gpu", found, needed_for=needed)


def has_nvidia_device() -> bool:
    """Return whether the kernel shows an NVIDIA GPU, whatever tools there are."""
    return Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia/version").exists()


def parse_gpu(line: str) -> Gpu | None:
    """Read one line of nvidia-smi's csv,noheader,nounits; unknown values are None."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_SMI_FIELDS) or not cells[0].isdigit():
        return None
    known = [None if c.startswith("[") or not c else c for c in cells]
    memory_mib = known[4]
    return Gpu(
        ordinal=int(cells[0]),
        model=cells[1],
        uuid=known[2],
        driver=known[3],
        memory_bytes=int(float(memory_mib) * (1 << 20)) if memory_mib else None,
        compute_capability=known[5],
    )


def _with_torch_facts(gpu: Gpu, devices: Iterable[dict[str, Any]]) -> Gpu:
    """Add what only CUDA knows; matched by UUID, else by name."""
    for device in devices:
        if device.get("uuid") in (gpu.uuid, None) and device["name"] == gpu.model:
            return Gpu(
                **{
                    **asdict(gpu),
                    "num_sms": device["num_sms"],
                    "memory_bytes": device["memory_bytes"],
                    "compute_capability": gpu.compute_capability or device["compute_capability"],
                }
            )
    return gpu


def probe_torch(python: str) -> dict[str, Any]:
    """Return versions and devices as the workloads' Python sees them; never imports torch here."""
    code, text = run_quietly([python, "-P", "-c", _TORCH_PROBE], timeout_s=120)
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    return {"error": f"{python} exited with {code}: {text.strip()[-200:]}"}


def _torch_checks(torch: dict[str, Any], gpus: list[Gpu]) -> list[dict[str, Any]]:
    needed = "running workloads"
    if "torch" not in torch:
        fix = "Install PyTorch in the worker's Python, or set WARPBOARD_PYTHON to one that has it"
        return [finding("torch", torch.get("error", "no torch"), fix, needed_for=needed)]
    versions = {"CUDA": torch.get("cuda"), "triton": torch.get("triton")}
    found = f"torch {torch['torch']}, " + ", ".join(
        f"{k} {v or 'none'}" for k, v in versions.items()
    )
    fix = ""
    if gpus and not torch.get("cuda"):
        fix = "This PyTorch is a CPU build: install a CUDA build to use the GPU"
    elif "cuda_error" in torch:
        fix = _cuda_fix(torch)
    elif gpus and not torch.get("devices"):
        fix = "PyTorch sees no GPU: check CUDA_VISIBLE_DEVICES and the driver's version"
    else:
        fix = _arch_fix(torch)
    return [finding("torch", found, fix, needed_for=needed)]


def _cuda_fix(torch: dict[str, Any]) -> str:
    """Return the fix where CUDA does not start: the driver's age, if that is why."""
    error = str(torch["cuda_error"])
    if re.search(r"driver.{0,60}(too old|insufficient)", error, re.IGNORECASE):
        return (
            f"The NVIDIA driver is too old for CUDA {torch.get('cuda')}: update the driver, or "
            f"install a PyTorch for an older CUDA ({error})"
        )
    return f"CUDA does not start ({error}): check driver and container"


def _arch_fix(torch: dict[str, Any]) -> str:
    """Return the fix when a GPU is newer than every architecture the build has code for."""
    built = [int(a) for n in torch.get("arch_list", ()) if (a := re.sub(r"\D", "", n))]
    for device in torch.get("devices", ()):
        wanted = int(device["compute_capability"].replace(".", ""))
        if built and wanted > max(built) and wanted // 10 != max(built) // 10:
            return (
                f"This PyTorch has no code for {device['name']} (sm_{wanted}; it has up to "
                f"sm_{max(built)}): install a newer build"
            )
    return ""


def _tool_check(tool: Tool, needed_for: str, *, has_gpu: bool) -> dict[str, Any]:
    """Return the check of a profiler: on a host without a GPU its absence is not a fault."""
    if tool.path is None and not has_gpu:
        found = f"{tool.name} is not installed, and not needed without an NVIDIA GPU"
        return finding(tool.name, found, needed_for=needed_for)
    found = tool.fault or f"{tool.path} {tool.version}"
    return finding(tool.name, found, tool.fix or "", needed_for=needed_for)


def _permission_check(permission: dict[str, Any], *, has_gpu: bool) -> dict[str, Any]:
    allowed = permission["counters_allowed"]
    found = {
        True: "GPU counters may be read",
        False: "GPU counters are for administrators only",
    }.get(allowed, "not known: the driver's settings cannot be read here")
    fix = (
        "On the host: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, "
        "then reboot; or give the container SYS_ADMIN"
    )
    is_ok = allowed is not False if has_gpu else True
    if not has_gpu:
        found = "no GPU, nothing to permit"
    return finding("counters", found, "" if is_ok else fix, needed_for="ncu")


def _compiler_check(*, has_gpu: bool) -> dict[str, Any]:
    """Return the check of the compiler; a CPU host without one only lacks torch.compile."""
    compiler = next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
    found = compiler or "no C++ compiler: no torch.compile"
    fix = "" if compiler else "Install g++ (Debian, Ubuntu: apt-get install g++)"
    check = finding("compiler", found, fix, needed_for="torch.compile")
    return check | {"is_ok": compiler is not None or not has_gpu}


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m worker.probe", description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    facts = probe()
    if args.json:
        print(json.dumps(facts))
    else:
        for check in facts["checks"]:
            mark = "ok   " if check["is_ok"] else "FAULT"
            print(f"{mark} {check['name']:9} {check['found']}")
            if check["fix"]:
                print(f"      {'note' if check['is_ok'] else 'fix'}: {check['fix']}")
    return 0 if all(c["is_ok"] for c in facts["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
