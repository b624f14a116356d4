"""What containers ask a worker, and the second worker of a host that stands by."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core.config import ROOT, DataDir
from tests.processes import until
from tests.worker.dashboard import TOKEN, Dashboard
from worker import health
from worker.settings import lock_identity

STAND_BY = (sys.executable, "-m", "worker", "--gpu", "cpu", "--stand-by")


def test_health_is_the_age_of_the_last_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataDir(root=tmp_path)
    monkeypatch.setenv("WARPBOARD_DATA", str(tmp_path))
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert health.main() == 1
    health.note_alive(data)
    now[0] += health.MAX_AGE_S - 1
    assert health.main() == 0
    now[0] += 2
    assert health.main() == 1
    now[0] = 5.0  # the host was started again since
    assert health.age_s(data) is None


def test_unwritable_folder_does_not_end_the_worker(tmp_path: Path) -> None:
    health.note_alive(DataDir(root=tmp_path / "gone"))


def test_worker_that_stands_by_takes_over(tmp_path: Path, dashboard: Dashboard) -> None:
    data = DataDir(root=tmp_path).ensure()
    data.token_path.write_text(TOKEN)
    lock, worker_id = lock_identity(data, "cpu")
    command = [
        sys.executable,
        "-m",
        "worker",
        "--gpu",
        "cpu",
        "--stand-by",
        "--data",
        str(tmp_path),
    ]
    log = tmp_path / "log"
    with log.open("wb") as out:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_PYTHON": sys.executable + "-not"}
        worker = subprocess.Popen([*command, "--dashboard", dashboard.url], stderr=out, env=env)
    try:
        until(lambda: "standing by" in log.read_text())
        assert not dashboard.workers
        lock.close()
        until(lambda: dashboard.workers)
        assert dashboard.workers[0]["worker_id"] == worker_id
        until(lambda: (health.age_s(data) or 99) < health.MAX_AGE_S)
    finally:
        worker.terminate()
        worker.wait(30)


def test_worker_that_stands_by_ends_when_told(tmp_path: Path) -> None:
    lock, _ = lock_identity(DataDir(root=tmp_path).ensure(), "cpu")
    command = [
        sys.executable,
        "-m",
        "worker",
        "--gpu",
        "cpu",
        "--stand-by",
        "--data",
        str(tmp_path),
    ]
    log = tmp_path / "log"
    with log.open("wb") as out:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        worker = subprocess.Popen(command, stderr=out, env=env)
    until(lambda: "standing by" in log.read_text())
    worker.terminate()
    assert worker.wait(30) == 0
    lock.close()


def test_place_is_served_again_after_its_log_could_not_be_written(
    tmp_path: Path, dashboard: Dashboard
) -> None:
    data = DataDir(root=tmp_path).ensure()
    data.token_path.write_text(TOKEN)
    blocked = data.logs / "worker-cpu.out"
    blocked.mkdir()  # as good as a full disk: it cannot be opened for writing
    command = [sys.executable, "-m", "worker", "--gpu", "cpu", "--data", str(tmp_path)]
    log = tmp_path / "log"
    with log.open("wb") as out:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_PYTHON": sys.executable + "-not"}
        worker = subprocess.Popen([*command, "--dashboard", dashboard.url], stderr=out, env=env)
    try:
        until(lambda: "starts again" in log.read_text())
        blocked.rmdir()
        until(lambda: blocked.is_file())
    finally:
        worker.terminate()
        worker.wait(30)
