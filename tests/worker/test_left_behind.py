"""What a program leaves running when it ends: waited for while it works, ended once it is idle."""

import sys
import time
from pathlib import Path

import pytest

from worker import left_behind
from worker.left_behind import LeftBehind
from worker.process import ProcessLimits, ProcessResult, run_process

WORK = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
open('worked', 'w').write('all of it')
"""


def run(folder: Path, script: str, left: LeftBehind | None, **options: object) -> ProcessResult:
    return run_process(
        ["sh", "-c", script],
        cwd=folder,
        stdout_path=folder / "out",
        stderr_path=folder / "err",
        left_behind=left,
        **options,  # type: ignore[arg-type]
    )


def is_running(pid_file: Path) -> bool:
    try:
        stat = Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def test_what_works_on_in_the_background_is_waited_for_and_named(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    said: list[str] = []
    left = LeftBehind(said.append)

    ended = run(tmp_path, f"setsid {sys.executable} work.py 2 >/dev/null 2>&1 & exit 3", left)

    assert (tmp_path / "worked").read_text() == "all of it"
    assert (ended.returncode, ended.killed_by) == (3, None)
    assert 1.5 < ended.duration_s < 60
    assert len(said) == 1 and "left python" in said[0]
    [warning] = left.warnings("clean")
    assert "which worked for another" in warning["message"]
    assert not left.were_ended


def test_what_is_idle_is_ended_and_its_time_is_none_of_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_behind, "IDLE_S", 1.5)
    left = LeftBehind()

    ended = run(tmp_path, "setsid sleep 600 & echo $! > pid; exit 0", left)

    assert not is_running(tmp_path / "pid")
    assert (ended.returncode, ended.killed_by) == (0, None)
    assert ended.duration_s < 1.5
    [warning] = left.warnings("clean")
    assert warning["code"] == "left_running"
    assert "left sleep running; idle for" in warning["message"]


def test_what_ends_by_itself_at_once_is_not_worth_a_word(tmp_path: Path) -> None:
    left = LeftBehind()

    run(tmp_path, "sleep 0.2 & exit 0", left)

    assert left.warnings("clean") == []


def test_a_time_limit_and_a_stop_end_what_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    script = f"{sys.executable} work.py 600 & echo $! > pid; exit 0"

    late = run(tmp_path, script, LeftBehind(), limits=ProcessLimits(soft_s=2, grace_s=5))
    assert late.killed_by == "timeout" and not is_running(tmp_path / "pid")

    began = time.monotonic()
    stopped = run(
        tmp_path, script, LeftBehind(), should_cancel=lambda: time.monotonic() > began + 2
    )
    assert stopped.killed_by == "cancel" and not is_running(tmp_path / "pid")


def test_without_a_wish_to_wait_nothing_outlives_the_program(tmp_path: Path) -> None:
    began = time.monotonic()

    ended = run(tmp_path, "setsid sleep 600 & echo $! > pid; exit 0", None)

    assert ended.returncode == 0 and not is_running(tmp_path / "pid")
    assert time.monotonic() - began < 30
