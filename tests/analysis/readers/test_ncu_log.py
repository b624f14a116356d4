"""An ncu log has no counters; what it says decides how a run may be judged."""

from pathlib import Path

import pytest

from analysis.readers import read
from analysis.readers.ncu.log import log_warnings

NCU = Path(__file__).resolve().parents[2] / "data" / "h100" / "ncu"


def test_a_filter_that_matched_nothing_is_a_state_with_the_kernels_listed() -> None:
    tables = read(NCU / "no_kernels_profiled.ncu.log")
    found = {w.code: w.message for w in tables.warnings}
    assert "lean_reduction_kernel" in found["no_kernels_profiled"]
    assert "vectorized_elementwise_kernel" in found["no_kernels_profiled"]
    assert "log_without_counters" not in found
    assert tables.counters.empty


def test_a_plain_log_says_what_to_import_instead() -> None:
    tables = read(NCU / "decode_max_autotune.ncu.log")
    found = {w.code: w.message for w in tables.warnings}
    assert "10 profiled launches" in found["log_without_counters"]
    assert "clocks_not_locked" in found


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission",
            "counters_not_permitted",
        ),
        (
            "==WARNING== Launching the workload is taking more time than expected.",
            "profiling_incomplete",
        ),
        ("==ERROR== Driver resource already in use", "profiler_busy"),
        ("CUDA error: no kernel image is available for execution", "no_kernel_image"),
        ("==ERROR== Something new", "ncu_error"),
        ("Verification FAILED", "wrong_results"),
        ("max error 3.2: Mismatch at 12", "wrong_results"),
    ],
)
def test_lines_that_matter_have_a_code(line: str, code: str) -> None:
    assert code in {w.code for w in log_warnings(["==PROF== Connected", line])}


@pytest.mark.parametrize("line", ["0 mismatches", "no failures", "mismatch: 0", "All tests passed"])
def test_good_results_are_not_flagged(line: str) -> None:
    assert log_warnings([line]) == ()


def test_launches_that_never_ended_are_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('==PROF== Connected to process 1\n==PROF== Profiling "k" - 0: 0%....50%\n')
    assert "profiling_incomplete" in {w.code for w in read(path).warnings}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_log_that_powershell_wrote_says_the_same(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    text = (NCU / "decode_max_autotune.ncu.log").read_text().replace("\n", "\r\n")
    path.write_bytes(text.encode(encoding))
    plain = {w.code for w in read(NCU / "decode_max_autotune.ncu.log").warnings}
    assert {w.code for w in read(path).warnings} == plain


def test_words_of_the_program_itself_are_no_launch_that_did_not_finish() -> None:
    lines = [
        '==PROF== Profiling "kernel" - 0: 0%....100% - 8 passes',
        "Warn: Current measurement timed out (16.51s) while over noise threshold",
        "the learning rate changes at step 100",
        "==WARNING== Note: Changed clocks",
    ]
    assert not [w for w in log_warnings(lines) if w.code == "profiling_incomplete"]
