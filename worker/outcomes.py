"""Classify how a pass ended from the output of tools and program, with the remedy.

Texts were read off ncu and nsys 2022-2026, PyTorch 2.x and the CUDA driver; a line that no rule
knows stays in the log and in the error.
"""

import json
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from captures.contents import open_plain
from core.errors import CaptureError
from worker.process import ProcessResult


class OutcomeCode(StrEnum):
    OK = "ok"
    OOM = "oom"
    COUNTERS_NOT_PERMITTED = "counters_not_permitted"
    NO_KERNEL_IMAGE = "no_kernel_image"
    DRIVER_TOO_OLD = "driver_too_old"
    TOOL_MISSING = "tool_missing"
    TOOL_CRASHED = "tool_crashed"
    TIMEOUT = "timeout"
    NO_KERNELS_PROFILED = "no_kernels_profiled"
    WORKLOAD_FAILED = "workload_failed"
    CANCELLED = "cancelled"


_C = OutcomeCode

REMEDIES: dict[OutcomeCode, str] = {
    _C.OK: "",
    _C.OOM: "Choose a smaller batch, sequence or model, or a GPU with more memory.",
    _C.COUNTERS_NOT_PERMITTED: (
        "Only the host can allow it: set `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
        "/etc/modprobe.d and reboot, or give the worker's container SYS_ADMIN "
        "(`docker compose --profile ncu up`)."
    ),
    _C.NO_KERNEL_IMAGE: (
        "This build of PyTorch (or of the program) has no code for this GPU: install a build made "
        "for its compute capability, or a newer container."
    ),
    _C.DRIVER_TOO_OLD: (
        "Update the NVIDIA driver on the host, or use a PyTorch or Nsight build for an older CUDA."
    ),
    _C.TOOL_MISSING: "Install the tool or put it on PATH; `warpboard doctor` says where it looked.",
    _C.TOOL_CRASHED: "Read the end of the log; run the command shown there by hand.",
    _C.TIMEOUT: (
        "Raise the time limit, take fewer iterations or a smaller size; under ncu leave out "
        "collectives, which wait for each other when replayed."
    ),
    _C.NO_KERNELS_PROFILED: (
        "No kernel inside the measured part was matched; the log lists the kernels there were."
    ),
    _C.WORKLOAD_FAILED: "Read the end of the log: the program itself ended with an error.",
    _C.CANCELLED: "",
}

_HOST_OOM_REMEDY = "Choose a smaller batch, sequence or model, or a host with more memory."

_COUNTERS = re.compile(
    r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters", re.I
)
_NO_IMAGE = re.compile(
    r"no kernel image is available|cudaErrorNoKernelImageForDevice|"
    r"device kernel image is invalid",
    re.I,
)
_OLD_DRIVER = re.compile(
    r"driver version is insufficient|NVIDIA driver on your system is too old|"
    r"PTX was compiled with an unsupported toolchain|driver is not compatible with|"
    r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|unsupported display driver|"
    r"requires? (?:a )?(?:newer|later) (?:CUDA )?driver",
    re.I,
)
_DEVICE_OOM = re.compile(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|"
    r"cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED"
)
_HOST_OOM = re.compile(
    r"^MemoryError\b|std::bad_alloc|DefaultCPUAllocator: can't allocate memory|"
    r"Cannot allocate memory",
    re.M,
)
_NO_KERNELS = re.compile(r"No kernels were profiled", re.I)
_TOOL_LOST = re.compile(
    r"error while loading shared libraries: \S+?:|Segmentation fault|"
    r"Failed to initialize the profiler|==ERROR== (?!The application returned).+|"
    r"QdstrmImporter|Importer error|No reports were generated",
)
_LAST_WORDS = re.compile(
    r"^(?!==)[^{\n]*(?:terminate called|\w(?:Error|Exception)\b|^KeyboardInterrupt\b|[Aa]borted"
    r"|[Ff]atal|\bfault\b)",
    re.M,
)
_APP_FAILED = re.compile(
    r"==ERROR== The application returned an error code|application returned an error", re.I
)
_REQUESTED = re.compile(
    r"Tried to allocate ([\d.]+) (GiB|MiB|KiB|bytes)|you tried to allocate (\d+) bytes"
)
_SCALE = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "bytes": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The one word for a pass, and the sentence a user reads."""

    code: OutcomeCode
    message: str = ""
    "Of `ok`: what went wrong after the result was there; of the others, why."
    oom: Mapping[str, Any] | None = None
    "For `oom`: where (device or host), phase, requested_bytes ... as far as known."

    @property
    def is_ok(self) -> bool:
        return self.code is OutcomeCode.OK

    @property
    def sentence(self) -> str:
        """Return message and remedy, for a warning or an error."""
        remedy = REMEDIES[self.code]
        if self.oom is not None and self.oom.get("where") == "host":
            remedy = _HOST_OOM_REMEDY
        return f"{self.message.rstrip('.')}. {remedy}".strip() if remedy else self.message


def judge(
    *,
    result: ProcessResult,
    text: str,
    workload_result: Mapping[str, Any] | None,
    tool: str | None = None,
) -> Outcome:
    """Return the outcome of one finished process.

    `text` is the end of its stdout and stderr, `workload_result` its result line if there was one,
    `tool` the profiler it ran under. Pure.
    """
    if result.killed_by == "cancel":
        return Outcome(code=_C.CANCELLED, message="cancelled")
    if result.timed_out:
        return Outcome(code=_C.TIMEOUT, message=f"no end after {result.duration_s:.0f} s")
    if result.killed_by == "output":
        message = f"it wrote without end and was stopped after {result.duration_s:.0f} s"
        return Outcome(code=_C.TIMEOUT, message=message)
    if result.error is not None:
        return Outcome(code=_C.TOOL_MISSING, message=result.error)
    if tool == "ncu" and _COUNTERS.search(text):
        return Outcome(
            code=_C.COUNTERS_NOT_PERMITTED,
            message="the driver keeps GPU counters to administrators (ERR_NVGPUCTRPERM)",
        )
    if workload_result is not None and workload_result.get("status") == "oom":
        oom = {"where": "device", **(workload_result.get("oom") or {})}
        which = "host" if oom["where"] == "host" else "GPU"
        return Outcome(code=_C.OOM, message=f"out of {which} memory", oom=oom)
    if workload_result is not None and workload_result.get("status") == "ok":
        return _judge_tool(result, text, tool)
    return _judge_failure(result, text, workload_result, tool)


def _judge_tool(result: ProcessResult, text: str, tool: str | None) -> Outcome:
    """Judge a process whose program ended well."""
    if tool == "ncu" and _NO_KERNELS.search(text):
        message = f"no kernels profiled{_available(text)}"
        return Outcome(code=_C.NO_KERNELS_PROFILED, message=message)
    if tool is not None and (_OLD_DRIVER.search(text)):
        return Outcome(code=_C.DRIVER_TOO_OLD, message=_line_of(_OLD_DRIVER, text))
    if result.returncode == 0:
        return Outcome(code=_C.OK)
    if tool is not None and _TOOL_LOST.search(text):
        return Outcome(code=_C.TOOL_CRASHED, message=_crash_message(result, text, tool))
    how = f"{_how_ended(result.returncode)}: {_last_words(text)}"
    message = f"the program gave its result, then {how}"
    return Outcome(code=_C.OK, message=message)


def _how_ended(returncode: int | None) -> str:
    """Say the exit code in words, with the signal's name where there was one."""
    if returncode is None:
        return "was lost"
    number = -returncode if returncode < 0 else returncode - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else ""
    if returncode < 0:
        return f"was ended by {name or f'signal {number}'}"
    return f"ended with code {returncode}" + (f" (128 + {name})" if name else "")


def _last_words(text: str) -> str:
    return _line_of(_LAST_WORDS, text) if _LAST_WORDS.search(text) else _last_line(text)


def _last_line(text: str) -> str:
    """Return the last line that is no tool's and no result line."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("{", "=="))]
    return f"its last line was {lines[-1][:300]!r}" if lines else "it said nothing"


def _judge_failure(
    result: ProcessResult,
    text: str,
    workload_result: Mapping[str, Any] | None,
    tool: str | None,
) -> Outcome:
    """Judge a process without a good result line: the program or the tool failed."""
    reported = str((workload_result or {}).get("error") or "")
    everything = f"{text}\n{reported}"
    for pattern, code in ((_NO_IMAGE, _C.NO_KERNEL_IMAGE), (_OLD_DRIVER, _C.DRIVER_TOO_OLD)):
        if pattern.search(everything):
            return Outcome(code=code, message=_line_of(pattern, everything))
    if _DEVICE_OOM.search(everything):
        return Outcome(
            code=_C.OOM, message="out of GPU memory", oom=_oom_facts("device", everything)
        )
    signal_of_rank = (workload_result or {}).get("killed_by_signal")
    if -9 in (result.returncode, -(signal_of_rank or 0)) and not _HOST_OOM.search(everything):
        return _judge_killed(result, reported)
    if _HOST_OOM.search(everything):
        return Outcome(
            code=_C.OOM, message="out of host memory", oom=_oom_facts("host", everything)
        )
    if (
        tool is not None
        and not reported
        and not _APP_FAILED.search(text)
        and _TOOL_LOST.search(text)
    ):
        return Outcome(code=_C.TOOL_CRASHED, message=_crash_message(result, text, tool))
    if workload_result is None and result.returncode == 0 and tool is None:
        return Outcome(code=_C.WORKLOAD_FAILED, message="the program ended without a result line")
    message = reported.strip() or _last_error_line(text) or f"exit code {result.returncode}"
    if result.returncode is not None and result.returncode < 0 and not reported.strip():
        message = f"the program {_how_ended(result.returncode)}: {_last_words(text)}"
    return Outcome(code=_C.WORKLOAD_FAILED, message=message)


def _judge_killed(result: ProcessResult, reported: str) -> Outcome:
    """Tell the OOM killer from any other source of signal 9; `said` names the rank."""
    if result.num_memory_kills:
        return Outcome(
            code=_C.OOM,
            message="out of host memory (the kernel killed a process, signal 9)",
            oom={"where": "host"},
        )
    unknown = " or by the kernel's OOM killer" if result.num_memory_kills is None else ""
    message = f"{reported or 'the process'} was killed from outside{unknown} (signal 9)"
    return Outcome(code=_C.WORKLOAD_FAILED, message=message)


def _oom_facts(where: str, text: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"where": where}
    match = _REQUESTED.search(text)
    if match and match.group(3):
        facts["requested_bytes"] = int(match.group(3))
    elif match:
        facts["requested_bytes"] = round(float(match.group(1)) * _SCALE[match.group(2)])
    return facts


def _available(text: str) -> str:
    names = re.findall(r"^\d+\. (\S.*)$", text, re.M)
    return f"; kernels there were: {', '.join(names[:5])}" if names else ""


def _line_of(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    assert match is not None
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[start : end if end >= 0 else None].strip()[:400]


def _crash_message(result: ProcessResult, text: str, tool: str) -> str:
    library = re.search(r"error while loading shared libraries: (\S+?):", text)
    if library:
        hint = " (Debian and Ubuntu: apt-get install libdw1)" if "libdw" in library.group(1) else ""
        return f"{tool} lacks the library {library.group(1)}{hint}"
    line = _line_of(_TOOL_LOST, text) if _TOOL_LOST.search(text) else _last_error_line(text)
    return f"{tool} ended with code {result.returncode}: {line or 'it said nothing'}"


def _last_error_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [ln for ln in lines if re.match(r"[\w.]*(Error|Exception)\b.*|.*\berror:.*", ln)]
    return (errors or lines or [""])[-1][:400]


TAIL_BYTES = 1 << 16
MAX_RESULT_BYTES = 64 << 20


def load_result(stdout_path: Path) -> dict[str, Any] | None:
    """Return the last line of stdout that is a result; None when there is none.

    Tools print after the program, so it need not be the very last line.
    """
    result: dict[str, Any] | None = None
    with suppress(OSError, CaptureError), open_plain(stdout_path) as file:
        for raw in iter(lambda: file.readline(MAX_RESULT_BYTES), b""):
            result = result_of(raw.decode(errors="replace")) or result
    return result


def result_of(line: str) -> dict[str, Any] | None:
    """Return the result of a workload in a line that it printed; None in any other line."""
    start = line.find('{"')
    if start < 0 or '"status"' not in line:
        return None
    try:
        value = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and {"status", "workload"} <= value.keys() else None


def tail_text(*paths: Path) -> str:
    """Return the ends of text files, one after the other."""
    parts = []
    for path in paths:
        with suppress(OSError, CaptureError), open_plain(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES), os.SEEK_SET)
            parts.append(file.read(TAIL_BYTES).decode(errors="replace"))
    return "\n".join(parts)
