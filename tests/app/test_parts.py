"""Processes of the stack end with their whole trees, and start again after an end of their own."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from app.parts import Part, stop_all
from core.config import ROOT
from core.restarts import STEADY_S, Restarts
from tests.processes import is_alive, until

DAEMON = (
    "import subprocess, sys, time\n"
    "p = subprocess.Popen(['setsid', 'sleep', '600'])\n"
    "open(sys.argv[1], 'w').write(str(p.pid))\n"
    "time.sleep(float(sys.argv[2]))\n"
)


def part_with_daemon(tmp_path: Path, lives_s: float) -> tuple[Part, int]:
    """Start a part whose child puts itself into a session of its own; return both."""
    mark = tmp_path / "pid"
    command = [sys.executable, "-S", "-c", DAEMON, str(mark), str(lives_s)]
    part = Part("x", command, tmp_path / "x.log", once=True)
    part.start()
    until(lambda: mark.exists() and mark.read_text() != "")
    return part, int(mark.read_text())


PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
HOSTILE = {
    "LD_PRELOAD": "/nowhere/x.so",
    "LD_AUDIT": "/nowhere/x.so",
    "PYTHONSTARTUP": "/nowhere/x.py",
    "PYTHONHOME": "/nowhere",
    "PYTHONWARNINGS": "ignore::x.y",
    "PYTHONINTMAXSTRDIGITS": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": "/nowhere",
    "PYTHONINSPECT": "1",
    "STREAMLIT_SERVER_TRUSTED_USER_HEADERS": "{}",
    "AUTHLIB_INSECURE_TRANSPORT": "1",
    "CELERY_CONFIG_MODULE": "x",
    "SQLITE_TMPDIR": "/nowhere",
    "GIT_DIR": "/nowhere",
    "BASH_ENV": "/nowhere/x.sh",
    "AWS_SECRET_ACCESS_KEY": "x",
}


def test_a_part_sees_of_the_shell_what_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = {"PATH": os.environ["PATH"], "WARPBOARD_HOSTS": "a", "https_proxy": "b", "LC_ALL": "C"}
    for name, value in (shell | HOSTILE).items():
        monkeypatch.setenv(name, value)
    part = Part("x", [sys.executable, "-c", PRINT_ENVIRONMENT], tmp_path / "x.log", once=True)

    part.start()

    until(lambda: (part.poll(), part.state == "done")[1])
    found = json.loads(part.log_path.read_text())
    assert shell.items() <= found.items()
    assert found["PYTHONPATH"] == str(ROOT)
    assert HOSTILE.keys() & found.keys() == {"PYTHONPATH"}


def test_a_child_in_a_session_of_its_own_ends_with_the_part(tmp_path: Path) -> None:
    part, daemon = part_with_daemon(tmp_path, 600)

    stop_all([part])

    assert part.state == "stopped"
    assert not is_alive(daemon)


def test_a_child_in_a_session_of_its_own_ends_when_the_part_does(tmp_path: Path) -> None:
    part, daemon = part_with_daemon(tmp_path, 0.1)

    until(lambda: (part.poll(), part.state == "done")[1])
    until(lambda: not is_alive(daemon))


def test_what_a_part_writes_is_its_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "made"
    part = Part("x", ["touch", str(path)], tmp_path / "x.log", once=True)
    part.start()

    until(lambda: (part.poll(), part.state == "done")[1])
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("code", [0, 3])
def test_how_a_part_ended_is_known(tmp_path: Path, code: int) -> None:
    part = Part("x", ["sh", "-c", f"exit {code}"], tmp_path / "x.log", once=True)
    part.start()

    until(lambda: (part.poll(), part.returncode is not None)[1])
    assert (part.returncode, part.state) == (code, "done" if code == 0 else "failed")


def test_a_part_that_was_killed_starts_again(tmp_path: Path) -> None:
    part = Part("x", ["sleep", "600"], tmp_path / "x.log")
    part.start()
    first = part.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    until(lambda: (part.poll(), part.state == "running" and part.pid != first)[1])
    assert part.num_failures == 1
    stop_all([part])


def test_delays_grow_and_begin_anew_after_a_long_life() -> None:
    restarts = Restarts((1.0, 2.0, 5.0))

    delays_s = [restarts.delay_s(lived) for lived in (0, 0, 0, 0, STEADY_S + 1, 0)]

    assert delays_s == [1.0, 2.0, 5.0, 5.0, 1.0, 2.0]
