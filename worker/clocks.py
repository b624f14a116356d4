"""Clocks, temperature, power and throttle reasons of one GPU around and during a pass.

One `nvidia-smi` in loop mode a pass, not one per sample: starting it costs tens of milliseconds of
CPU, which a launch-bound measurement would feel.
"""

import contextlib
import csv
import ctypes
import os
import re
import resource
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from typing import IO, Any

from core.supervisor import PR_SET_PDEATHSIG
from worker.tools import find_nvidia_smi, run_quietly

FIELDS: dict[str, str] = {
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "utilization.gpu": "utilization_pct",
    "clocks_throttle_reasons.active": "throttle_mask",
}
"""nvidia-smi's field -> our name. The last one is a bit mask."""
RENAMED_FIELD = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
"""The old name, and the one that drivers from 535 on know."""

INTERVAL_MS = 1000
MAX_SAMPLES_BYTES = 64 << 20
_LIBC = ctypes.CDLL(None)  # loaded here: nothing may be imported between fork and exec
_GPU_IDLE = 0x1
THROTTLE_REASONS: dict[int, str] = {
    _GPU_IDLE: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""nvmlClocksThrottleReasons, NVML API reference."""
_HARMLESS = {"gpu_idle", "applications_clocks_setting", "display_clock_setting", "sync_boost"}


def parse_sample(line: str) -> dict[str, Any] | None:
    """Return one sample by our names, or None; what the GPU does not tell is absent."""
    cells = next(csv.reader([line], skipinitialspace=True), [])
    if len(cells) != len(FIELDS):
        return None
    sample: dict[str, Any] = {}
    for name, cell in zip(FIELDS.values(), cells, strict=True):
        text = cell.strip()
        if name == "throttle_mask":
            if re.fullmatch(r"0x[0-9a-fA-F]+", text):
                sample[name] = int(text, 16)
            continue
        try:
            sample[name] = float(text)
        except ValueError:  # [N/A], [Not Supported]
            continue
    return sample or None


def throttle_reasons(mask: int) -> list[str]:
    """Return the names of the reasons in a mask."""
    return [name for bit, name in THROTTLE_REASONS.items() if mask & bit]


def summarise(samples: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return min, median and max of each number, and the throttle reasons seen under load.

    Readings of an idle GPU count only where there are no others: a program starts for seconds, at
    clocks at which none of its kernels runs.
    """
    every = list(samples)
    busy = [row for row in every if not row.get("throttle_mask", 0) & _GPU_IDLE]
    rows = busy or every
    summary: dict[str, Any] = {
        "num_samples": len(every),
        "num_idle_samples": len(every) - len(busy),
    }
    for name in FIELDS.values():
        values = [row[name] for row in rows if name in row]
        if values and name != "throttle_mask":
            summary[name] = {
                "min": min(values),
                "median": statistics.median(values),
                "max": max(values),
            }
    masks = [row["throttle_mask"] for row in rows if "throttle_mask" in row]
    if masks:
        reasons = {reason for mask in masks for reason in throttle_reasons(mask)}
        summary["throttle_reasons"] = sorted(reasons - {"gpu_idle"})
        summary["is_throttled"] = bool(reasons - _HARMLESS)
    return summary


class ClockMonitor:
    """Samples one GPU from `start` to `stop`; does nothing where there is no nvidia-smi."""

    def __init__(self, gpu_selector: str | None) -> None:
        "`gpu_selector` is a UUID or an ordinal as nvidia-smi takes it; None for no GPU."
        self._selector = gpu_selector
        self._program = find_nvidia_smi() if gpu_selector is not None else None
        self._loop: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None
        self._before: dict[str, Any] | None = None
        self._fields = ",".join(FIELDS)

    def _command(self) -> list[str]:
        assert self._program is not None and self._selector is not None
        query = f"--query-gpu={self._fields}"
        return [self._program, "-i", self._selector, query, "--format=csv,noheader,nounits"]

    def _once(self) -> dict[str, Any] | None:
        code, text = run_quietly(self._command(), timeout_s=10)
        lines = text.strip().splitlines()
        return parse_sample(lines[-1]) if code == 0 and lines else None

    def start(self) -> None:
        if self._program is None:
            return
        self._before = self._once()
        if self._before is None:
            self._fields = self._fields.replace(*RENAMED_FIELD)
            self._before = self._once()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 closed in stop
        self._loop = subprocess.Popen(
            [*self._command(), "-lms", str(INTERVAL_MS)],
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.DEVNULL,
            preexec_fn=_bounded,
        )

    def stop(self) -> dict[str, Any]:
        """Return `{before, during, after, source}`; {} where nothing could be read."""
        if self._loop is None or self._file is None:
            return {}
        self._loop.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._loop.wait(timeout=3)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._loop.pid, signal.SIGKILL)  # it leads a session
        self._loop.wait()
        self._file.seek(0)
        lines = self._file.read(MAX_SAMPLES_BYTES).decode(errors="replace").splitlines()
        self._file.close()
        samples = [s for s in map(parse_sample, lines) if s is not None]
        self._loop = self._file = None
        record = {"before": self._before, "after": self._once(), "during": summarise(samples)}
        record = {k: v for k, v in record.items() if v}
        return record | {"source": "nvidia-smi", "at": time.time()} if self._before else {}


def _bounded() -> None:
    """Before exec, in the child: `die_with_parent`, and no more on disk than samples take."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_SAMPLES_BYTES, MAX_SAMPLES_BYTES))


def die_with_parent() -> None:
    """Before exec, in the child: be killed when the parent ends, and lead a session."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
