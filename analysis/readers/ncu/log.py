"""Warnings from ncu's own messages and from the output of the profiled program."""

import re
from collections.abc import Sequence
from pathlib import Path

from analysis.readers.ncu.table import NO_KERNELS
from analysis.tables import COUNTER_COLUMNS, CaptureKind, CaptureTables, CaptureWarning, empty
from captures.opening import read_text, reading

_KERNEL_LINE = re.compile(r"^\s*\d+\.\s+(\S.*)$")
_FAILED = re.compile(
    r"\bFAIL(?:ED|URE)?\b|\bmis-?match\b|\bincorrect result|verification failed", re.I
)
_NO_FAILURE = re.compile(
    r"\b(?:0|no|zero) (?:\w+ )?(?:fail|mismatch)|mismatch(?:es)?\s*[:=]\s*0\b", re.I
)
_KNOWN = (
    (
        "counters_not_permitted",
        re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters", re.I),
        "Only administrators may read GPU counters with this driver's settings. "
        "On the host (a container cannot): set `options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0` and reload the driver, or run "
        "the container with --cap-add=SYS_ADMIN.",
    ),
    (
        "profiler_busy",
        re.compile(
            r"Driver resource|already in use by|another (?:tool|profiler)|InsufficientDriver", re.I
        ),
        "Another profiler held the GPU's counters: stop it (DCGM, nsys, ncu) and profile again.",
    ),
    (
        "profiling_incomplete",
        re.compile(
            r"Launching the workload is taking more time than expected"
            r"|^==\w+==.*(timed out|\bh(ang|angs|ung)\b)",
            re.I,
        ),
        "A launch did not finish under replay: the log is incomplete. Kernels "
        "that wait for others (NCCL) cannot be replayed one at a time: exclude "
        "them with --kernel-name, or use --replay-mode application or range.",
    ),
    (
        "no_kernel_image",
        re.compile(r"no kernel image is available", re.I),
        "The program has no code for this GPU: the run failed, and its times are meaningless.",
    ),
)
_MAX_SHOWN = 3


def log_warnings(lines: Sequence[str]) -> tuple[CaptureWarning, ...]:
    """Return one warning for each message that changes how the numbers may be used."""
    warnings: list[CaptureWarning] = []
    messages = [li for li in lines if li.startswith("==")]
    output = [li for li in lines if not li.startswith("==")]
    for code, pattern, meaning in _KNOWN:
        hits = [li for li in lines if pattern.search(li)]
        if hits:
            text = f"{meaning} ncu said: {_plain(hits[0])}"
            warnings.append(CaptureWarning(code=code, message=text))
    known = [p for _, p, _ in _KNOWN]
    for line in messages:
        if line.startswith("==ERROR==") and not any(p.search(line) for p in known):
            warnings.append(CaptureWarning(code="ncu_error", message=_plain(line)))
    warnings.extend(_no_kernels(lines))
    if any("unmodified GPU clocks" in li for li in messages):
        text = "ncu did not lock the clocks: durations and percentages vary with the clock."
        warnings.append(CaptureWarning(code="clocks_not_locked", message=text))
    failed = [li for li in output if _FAILED.search(li) and not _NO_FAILURE.search(li)]
    if failed:
        shown = "; ".join(li.strip()[:120] for li in failed[:_MAX_SHOWN])
        text = f"The program reports wrong results: {shown}. Fix that before judging its speed."
        warnings.append(CaptureWarning(code="wrong_results", message=text))
    return tuple(dict.fromkeys(warnings))


def _plain(line: str) -> str:
    return re.sub(r"^==\w+==\s*", "", line).strip()[:300]


def _no_kernels(lines: Sequence[str]) -> list[CaptureWarning]:
    if not any(NO_KERNELS in li for li in lines):
        return []
    start = next((i for i, li in enumerate(lines) if li.startswith("Available Kernels")), None)
    names = []
    for line in lines[start + 1 :] if start is not None else ():
        hit = _KERNEL_LINE.match(line)
        if not hit:
            break
        names.append(hit[1].strip())
    text = "ncu profiled no kernel: its filter matched none."
    if names:
        text += (
            f" The program launched: {', '.join(names)}. Match one with --kernel-name regex:NAME."
        )
    else:
        text += (
            " It listed no launches either: check that the program uses the "
            "GPU in a process that ncu follows."
        )
    return [CaptureWarning(code="no_kernels_profiled", message=text)]


def read_ncu_log(path: Path) -> CaptureTables:
    """Return the warnings that an ncu log holds; a log has no counters."""
    with reading(path):
        lines = read_text(path).splitlines()
    warnings = list(log_warnings(lines))
    codes = {w.code for w in warnings}
    profiled = [li for li in lines if li.startswith("==PROF== Profiling ")]
    unfinished = [li for li in profiled if "100%" not in li]
    if unfinished and "profiling_incomplete" not in codes:
        text = f"{len(unfinished)} launches were started but not finished: the log is incomplete."
        warnings.append(CaptureWarning(code="profiling_incomplete", message=text))
    if "no_kernels_profiled" not in codes:
        has_tables = any(re.match(r"\s+Section: ", li) for li in lines)
        text = (
            f"A log of {len(profiled)} profiled launches"
            + (" with its tables as text" if has_tables else "")
            + ": it contains no counters. Import the .ncu-rep, or its export by "
            "`ncu --import FILE --csv --page raw`."
        )
        warnings.append(CaptureWarning(code="log_without_counters", message=text))
    return CaptureTables(
        kind=CaptureKind.NCU_LOG,
        path=path,
        tool="ncu",
        counters=empty(COUNTER_COLUMNS),
        warnings=tuple(warnings),
    )
