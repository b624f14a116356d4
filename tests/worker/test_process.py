"""A child process: its output, its limits, and that nothing of its tree outlives it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import is_alive, until
from worker.process import ProcessLimits, ProcessResult, run_process

ROOT = Path(__file__).resolve().parents[2]
SPAWN_GRANDCHILDREN = """
import os, subprocess, sys, time
own = subprocess.Popen(["sleep", "600"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[2], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
open(sys.argv[1], "w").write(str(own.pid))
time.sleep(600)
"""


def run(tmp_path: Path, code: str, *argv: str, **options: object) -> ProcessResult:
    return run_process(
        [sys.executable, "-c", code, *argv],
        stdout_path=tmp_path / "out",
        stderr_path=tmp_path / "err",
        **options,  # type: ignore[arg-type]
    )


def test_output_goes_to_files_and_lines_to_the_callback(tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    result = run(
        tmp_path,
        "import sys; print('one'); print('two', file=sys.stderr); print('end', end='')",
        on_line=lambda stream, line: lines.append((stream, line)),
    )
    assert result.returncode == 0
    assert result.killed_by is None
    assert (tmp_path / "out").read_text() == "one\nend"
    assert sorted(lines) == [("stderr", "two"), ("stdout", "end"), ("stdout", "one")]


def test_returncode_is_the_childs(tmp_path: Path) -> None:
    assert run(tmp_path, "raise SystemExit(7)").returncode == 7


def test_signal_of_a_stranger_is_named(tmp_path: Path) -> None:
    result = run(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert result.returncode == -9
    assert result.killed_by == "signal 9"


def test_missing_program_is_an_error_not_an_exception(tmp_path: Path) -> None:
    result = run_process(
        ["/nonexistent/tool"], stdout_path=tmp_path / "out", stderr_path=tmp_path / "err"
    )
    assert result.returncode is None
    assert "/nonexistent/tool" in (result.error or "")


def test_events_are_read_in_order_while_the_child_runs(tmp_path: Path) -> None:
    events: list[dict[str, object]] = []
    path = tmp_path / "events.jsonl"
    code = (
        "import sys\nwith open(sys.argv[1], 'a') as f:\n"
        "    [print('{\"index\": %d}' % i, file=f, flush=True) for i in range(200)]\n"
        "    print('not json', file=f)\n"
    )
    run(tmp_path, code, str(path), events_path=path, on_event=events.append)
    assert [e["index"] for e in events] == list(range(200))


def test_soft_limit_lets_the_child_finish_what_it_can(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "def stop(*_): print('tidied', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, stop)\ntime.sleep(600)\n"
    )
    result = run(tmp_path, code, limits=ProcessLimits(soft_s=1.0, grace_s=20))
    assert (result.timed_out, result.returncode) == (True, 3)
    assert (tmp_path / "out").read_text() == "tidied\n"


def test_hard_limit_ends_a_child_that_ignores_the_soft_one(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    result = run(tmp_path, code, limits=ProcessLimits(soft_s=0.5, grace_s=0.5))
    assert (result.timed_out, result.returncode, result.killed_by) == (True, -9, "timeout")


def test_cancel_kills_grandchildren(tmp_path: Path) -> None:
    marks = (tmp_path / "own", tmp_path / "daemon")
    result = run(
        tmp_path,
        SPAWN_GRANDCHILDREN,
        *map(str, marks),
        should_cancel=lambda: all(m.exists() and m.read_text() for m in marks),
    )
    assert result.killed_by == "cancel"
    assert [is_alive(int(m.read_text())) for m in marks] == [False, False]


def test_grandchildren_end_with_a_child_that_ends_itself(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['setsid', 'sleep', '600']).pid)"
    run(tmp_path, code)
    assert not is_alive(int((tmp_path / "out").read_text()))


def test_death_of_the_supervisor_ends_the_group_and_the_wait(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, signal, sys, time\n"
        "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "os.kill(os.getppid(), signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )
    result = run(tmp_path, code)
    assert result.killed_by == "supervisor lost"
    pid = int((tmp_path / "out").read_text())
    until(lambda: not is_alive(pid), limit_s=5)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_of_the_worker_leaves_no_process(tmp_path: Path, number: int) -> None:
    marks = (tmp_path / "own", tmp_path / "daemon")
    call = {"code": SPAWN_GRANDCHILDREN, "argv": [str(m) for m in marks], "dir": str(tmp_path)}
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import json, sys; from pathlib import Path; from worker.process import run_process\n"
            "call = json.loads(sys.argv[1]); folder = Path(call['dir'])\n"
            "run_process([sys.executable, '-c', call['code'], *call['argv']],\n"
            "    stdout_path=folder / 'out', stderr_path=folder / 'err')",
            json.dumps(call),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    until(lambda: all(m.exists() and m.read_text() for m in marks))
    worker.send_signal(number)
    worker.wait()
    pids = [int(m.read_text()) for m in marks]
    until(lambda: not any(map(is_alive, pids)))


def test_a_child_that_writes_without_end_is_stopped_and_keeps_no_more(tmp_path: Path) -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    limits = ProcessLimits(soft_s=60, grace_s=0.5, output_bytes=1 << 20)

    result = run(tmp_path, code, limits=limits)

    assert result.killed_by == "output"
    assert (tmp_path / "out").stat().st_size <= 1 << 20
