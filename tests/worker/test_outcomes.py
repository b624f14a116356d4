"""What a pass ended as, told from the words of the real tools."""

import re
from pathlib import Path

import pytest

from worker.outcomes import REMEDIES, Outcome, OutcomeCode, judge
from worker.process import ProcessResult

OK_LINE = {"workload": "decode", "status": "ok"}
NO_KERNELS_LOG = Path(__file__).parents[1] / "data/h100/ncu/no_kernels_profiled.ncu.log"


def ended(returncode: int | None = 0, **fields: object) -> ProcessResult:
    return ProcessResult(
        returncode=returncode,
        stdout_path=Path("out"),
        stderr_path=Path("err"),
        duration_s=1.0,
        **fields,  # type: ignore[arg-type]
    )


def of(
    text: str = "",
    *,
    returncode: int | None = 1,
    line: dict[str, object] | None = None,
    tool: str | None = None,
    **fields: object,
) -> Outcome:
    return judge(result=ended(returncode, **fields), text=text, workload_result=line, tool=tool)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the "
            "device",
            "no_kernel_image",
        ),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
            "driver_too_old",
        ),
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            "driver_too_old",
        ),
        (
            "the provided PTX was compiled with an unsupported toolchain.",
            "driver_too_old",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
            "oom",
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't "
            "allocate memory: you tried to allocate 400000000000 bytes.",
            "oom",
        ),
        ("Traceback (most recent call last):\nMemoryError", "oom"),
        ("ValueError: heads must divide d_model", "workload_failed"),
    ],
)
def test_failure_of_the_program_is_told_from_its_words(text: str, code: str) -> None:
    assert of(text).code == code


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("some.py:3: UserWarning: old\n  warnings.warn(", "its last line was 'warnings.warn('"),
        ("terminate called after throwing\n  what():  no", "terminate called after throwing"),
        ("", "it said nothing"),
    ],
)
def test_a_program_that_a_signal_ended_is_said_to_be(text: str, words: str) -> None:
    outcome = of(text, returncode=-11)

    assert outcome.code == "workload_failed"
    assert outcome.message == f"the program was ended by SIGSEGV: {words}"


def test_size_and_place_of_an_exhausted_memory_are_read() -> None:
    device = of("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has")
    host = of("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")
    assert device.oom == {"where": "device", "requested_bytes": 5 << 29}
    assert host.oom == {"where": "host", "requested_bytes": 4096}


def test_a_cpu_job_out_of_memory_is_not_told_of_gpu_memory() -> None:
    line: dict[str, object] = {"status": "oom", "oom": {"where": "host"}}
    assert "GPU" not in of(line=line).sentence and "host memory" in of(line=line).sentence
    assert of(line={"status": "oom"}).sentence.startswith("out of GPU memory")


def test_killed_by_the_kernel_is_host_memory_and_killed_by_others_is_not() -> None:
    assert of(returncode=-9, killed_by="signal 9", num_memory_kills=1).code == "oom"
    assert of(returncode=-9, killed_by="signal 9", num_memory_kills=0).code == "workload_failed"
    assert of(returncode=-9, killed_by="signal 9").code == "workload_failed"
    assert of(returncode=-9, killed_by="timeout", timed_out=True).code == "timeout"
    assert of(returncode=-9, killed_by="cancel").code == "cancelled"


@pytest.mark.parametrize(
    ("text", "returncode", "code"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
            0,
            "counters_not_permitted",
        ),
        (NO_KERNELS_LOG.read_text(), 0, "no_kernels_profiled"),
        ("==ERROR== LaunchFailed", 1, "tool_crashed"),
        ("==PROF== Profiling", 0, "ok"),
    ],
)
def test_failure_of_ncu_beside_a_good_program(text: str, returncode: int, code: str) -> None:
    assert of(text, returncode=returncode, line=OK_LINE, tool="ncu").code == code


@pytest.mark.parametrize(("tool", "returncode"), [("ncu", 6), ("nsys", 134), (None, -6)])
def test_program_that_dies_after_its_result_was_measured_all_the_same(
    tool: str | None, returncode: int
) -> None:
    text = (
        "terminate called without an active exception\n"
        "==ERROR== The application returned an error code (6).\n"
        "==PROF== Report: report.ncu-rep"
    )
    found = of(text, returncode=returncode, line=OK_LINE, tool=tool)
    assert found.code == "ok"
    how = f"ended with code {returncode}" if returncode > 0 else "was ended by SIGABRT"
    assert re.search(rf"{how}[^:]*: terminate called without", found.message)


@pytest.mark.parametrize(
    ("returncode", "text", "words"),
    [
        (1, "loss 3\nno such checkpoint\n", "ended with code 1: its last line was 'no such checkp"),
        (1, "Traceback ...\nKeyboardInterrupt\n", "ended with code 1: KeyboardInterrupt"),
        (42, '{"status": "ok"}\n', "ended with code 42: it said nothing"),
        (
            137,
            "by default\n",
            "ended with code 137 (128 + SIGKILL): its last line was 'by default'",
        ),
        (-9, "", "was ended by SIGKILL: it said nothing"),
        (-15, "", "was ended by SIGTERM: it said nothing"),
    ],
)
def test_how_a_measured_program_ended_is_told_in_words(
    returncode: int, text: str, words: str
) -> None:
    found = of(text, returncode=returncode, line=OK_LINE)
    assert (found.code, words in found.message) == ("ok", True), found.message


def test_tool_that_never_started_the_program_is_the_tools_fault() -> None:
    text = "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"
    assert of(text, tool="ncu").code == "tool_crashed"
    text = "nsys: error while loading shared libraries: libdw.so.1: cannot open shared object file"
    found = of(text, returncode=127, tool="nsys")
    assert (found.code, "libdw1" in found.message) == ("tool_crashed", True)


def test_program_that_fails_under_a_tool_is_the_programs_fault() -> None:
    text = "ValueError: heads\n==ERROR== The application returned an error code (1)."
    assert of(text, tool="ncu").code == "workload_failed"


def test_program_without_a_result_is_no_success() -> None:
    assert of("done", returncode=0).code == "workload_failed"


def test_program_that_could_not_start_names_itself() -> None:
    found = of(returncode=None, error="/opt/ncu: No such file or directory")
    assert (found.code, found.message) == (
        "tool_missing",
        "/opt/ncu: No such file or directory",
    )


def test_every_outcome_has_a_remedy_or_needs_none() -> None:
    without = {code for code in OutcomeCode if not REMEDIES[code]}
    assert without == {OutcomeCode.OK, OutcomeCode.CANCELLED}
