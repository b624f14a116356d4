"""What stands on standard input is read by each pass from its beginning."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from worker.profile.given_input import given_input

ROOT = Path(__file__).resolve().parents[2]
READS = """import sys
with open("read.txt", "a") as kept:
    print(input(), *sys.stdin.read().split(), file=kept)
"""


def piped(*parts: bytes) -> int:
    """Return the end of a pipe into which the parts are written, one after the other."""
    end, into = os.pipe()

    def write() -> None:
        for part in parts:
            os.write(into, part)
        os.close(into)

    threading.Thread(target=write).start()
    return end


def test_a_pipe_is_kept_to_its_end() -> None:
    with given_input(piped(b"3\n", b"x" * 200_000)) as path:
        assert path is not None
        assert path.read_bytes() == b"3\n" + b"x" * 200_000


def test_a_file_is_read_from_where_the_shell_left_it(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"head\nbody\n")
    fd = os.open(tmp_path / "given", os.O_RDONLY)

    with given_input(fd) as path:
        assert path is not None and path.read_bytes() == b"head\nbody\n"
    os.lseek(fd, 5, os.SEEK_SET)
    with given_input(fd) as path:
        assert path is not None and path.read_bytes() == b"body\n"


def test_a_pipe_that_nobody_writes_into_and_a_closed_one_are_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.profile.given_input.WAIT_S", 0.05)
    end, into = os.pipe()

    with given_input(end) as path:
        assert path is None
    os.close(into)
    os.close(end)
    with given_input(end) as path:
        assert path is None


def test_each_process_of_a_program_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_NSYS": "/nowhere/nsys"}

    done = subprocess.run(
        [sys.executable, "-m", "worker.profile", "--passes", "clean", "--repeats", "2",
         "--out", str(tmp_path / "out"), "--", sys.executable, str(tmp_path / "reads.py")],
        env=env | {"CUDA_VISIBLE_DEVICES": "", "WARPBOARD_DATA": str(tmp_path / "data")},
        cwd=tmp_path, input="3\nmore text\n", capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "read.txt").read_text() == "3 more text\n" * 2
