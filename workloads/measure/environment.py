"""Say what the program ran on and with, and whether torch.compile did what was asked."""

import os
import platform
import shutil
import sys
from dataclasses import dataclass, field
from typing import Any

from core.errors import ToolUnavailableError
from workloads.program import Note

GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Compile modes that ask inductor for CUDA graphs."""


def require_compiler(*, on_gpu: bool) -> None:
    """Raise ToolUnavailableError when the host lacks the compiler that `torch.compile` calls.

    On a CPU inductor writes C++; on a GPU Triton builds its launchers in C.
    """
    names = ("gcc", "cc", "clang") if on_gpu else ("g++", "c++", "clang++")
    chosen = os.environ.get("CC" if on_gpu else "CXX")
    if (chosen and shutil.which(chosen)) or any(shutil.which(name) for name in names):
        return
    raise ToolUnavailableError(
        names[0], "torch.compile needs it and it is not on PATH", "apt-get install g++"
    )


@dataclass(slots=True)
class CompileWatch:
    """Compare the compiler's counters before and after the measured part."""

    mode: str
    on_gpu: bool
    _graphs_before: int = 0
    _kernels_before: int = 0
    _kernels: list[str] = field(default_factory=list)

    def start_listening(self) -> None:
        """Count Triton kernels that are compiled from now on, autotuning trials included."""
        if not self.on_gpu:
            return
        try:
            from triton import knobs
        except ImportError:
            return

        def compiled(*args: Any, **kwargs: Any) -> None:
            self._kernels.append(str(kwargs.get("repr", "")))

        if getattr(knobs.runtime, "jit_post_compile_hook", compiled) is None:
            knobs.runtime.jit_post_compile_hook = compiled

    def start_of_measurement(self) -> None:
        self._graphs_before = _counter("stats", "unique_graphs")
        self._kernels_before = len(self._kernels)

    def report(self) -> tuple[dict[str, Any], list[Note]]:
        """Return the result's `compile` and the warnings that follow from it."""
        built = len(self._kernels) - self._kernels_before
        notes = []
        if built:
            notes.append(
                Note(
                    code="autotuned_in_measurement",
                    message=f"{built} Triton kernels were compiled inside the measured part",
                )
            )
        if self.mode == "none":
            return {"mode": "none", "cuda_graphs_used": None}, notes
        recompiles = _counter("stats", "unique_graphs") - self._graphs_before
        breaks = sum(_counters("graph_break").values())
        used = self._cuda_graphs_used()
        state = {
            "mode": self.mode,
            "graph_breaks": breaks,
            "recompiles_in_measurement": recompiles,
            "cuda_graphs_used": used,
        }
        return state, [*notes, *self._notes(breaks, recompiles, used)]

    def _cuda_graphs_used(self) -> bool | None:
        if self.mode not in GRAPH_MODES or not self.on_gpu:
            return None
        if _counter("inductor", "cudagraph_skips"):
            return False
        return _has_recorded_graphs()

    def _notes(self, breaks: int, recompiles: int, used: bool | None) -> list[Note]:
        notes = []
        if not _counter("stats", "unique_graphs"):
            notes.append(Note(code="not_compiled", message="torch.compile compiled nothing"))
        if breaks:
            why = "; ".join(str(reason).split("\n")[0] for reason in _counters("graph_break"))
            notes.append(Note(code="graph_breaks", message=f"{breaks} graph breaks: {why[:400]}"))
        if recompiles:
            notes.append(
                Note(
                    code="recompiled_in_measurement",
                    message=f"{recompiles} graphs were compiled inside the measured part; "
                    "raise warmup",
                )
            )
        if used is False:
            notes.append(
                Note(
                    code="cuda_graphs_skipped",
                    message=f"mode {self.mode} asks for CUDA graphs and inductor did not use them "
                    "(an input that is changed in place, most often)",
                )
            )
        return notes


def _counters(group: str) -> dict[str, int]:
    """Return the compiler's counts; nothing where it was never loaded, which takes 2 s to do."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dict(dynamo.counters[group]) if dynamo else {}


def _counter(group: str, name: str) -> int:
    return int(_counters(group).get(name, 0))


def _has_recorded_graphs() -> bool | None:
    """Return whether inductor's tree holds a recorded graph; None when it cannot be asked."""
    try:
        from torch._inductor.cudagraph_trees import get_container

        manager = get_container(0).tree_manager
        return manager is not None and any(bool(roots) for roots in manager.roots.values())
    except (ImportError, AttributeError):
        return None


def environment() -> dict[str, Any]:
    """Return versions and settings that change timings; no host, user or path."""
    import torch

    versions: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "torchao": _version("torchao"),
        "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        "cxx": next((name for name in ("g++", "clang++") if shutil.which(name)), None),
        "machine": platform.machine(),
        "system": platform.system(),
        "num_threads": torch.get_num_threads(),
        "cpu": None if torch.cuda.is_available() else _cpu_name(),
    }
    return {key: value for key, value in versions.items() if value is not None}


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def device_facts(*, on_gpu: bool) -> dict[str, Any]:
    """Return the result's `device`."""
    if not on_gpu:
        return {"name": _cpu_name(), "type": "cpu"}
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "type": "cuda",
        "compute_capability": f"{properties.major}.{properties.minor}",
        "num_sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
