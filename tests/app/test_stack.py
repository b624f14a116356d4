"""The whole stack with real processes: one CPU job end to end, kill -9, Ctrl-C, used ports."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlite_utils import Database

from app.stack import Stack, StackOptions, check_port, free_port, running_stack
from core.config import ROOT, DataDir
from core.errors import UserError
from db.connection import opened
from db.fetch import run_row

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

CLI = [sys.executable, "-m", "app.cli"]
START_S, JOB_S = 120, 240
SHORT_JOB = ("--profilers", "none", "--repeats", "1", "--gpu", "cpu")
LONG_JOB = ("--set", "preset=tiny", "--set", "iterations=100000", *SHORT_JOB)


def environment(data_dir: DataDir) -> dict[str, str]:
    own = {"WARPBOARD_PYTHON": sys.executable, "WARPBOARD_DATA": str(data_dir.root)}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT)}


def cli(data_dir: DataDir, *words: str, code: int = 0) -> Any:
    done = subprocess.run(
        [*CLI, *words, "--json"],
        env=environment(data_dir),
        capture_output=True,
        text=True,
        timeout=JOB_S,
        cwd="/",
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def until(what: Callable[[], Any], limit_s: float, why: Callable[[], str] = str) -> Any:
    """Return the first true answer; the time limit only ends a test that hangs."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        found = what()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {limit_s} s: {why()}")


def status_of(data_dir: DataDir, run_id: str) -> str:
    with opened(data_dir.db_path) as db:
        return run_row(db, run_id).status


def descendants(pid: int) -> set[int]:
    """Return the processes below one, by /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found |= set(below)
        waiting += below
    return found


def alive(pids: set[int]) -> set[int]:
    """Return those that still run (zombies do not)."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found


@pytest.fixture
def stack(data_dir: DataDir) -> Iterator[subprocess.Popen[bytes]]:
    """Run `up` on a free port, without examples, until the test ends."""
    command = [*CLI, "up", "--port", str(free_port()), "--no-demo", "--gpu", "cpu"]
    log = (data_dir.root / "up.log").open("wb")
    process = subprocess.Popen(
        command, env=environment(data_dir), stderr=log, stdout=log, cwd="/", start_new_session=True
    )
    try:
        until(lambda: running_stack(data_dir), START_S, (data_dir.root / "up.log").read_text)
        yield process
    finally:
        below = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(40)
        for pid in alive(below):
            os.kill(pid, signal.SIGKILL)
        log.close()


def part(data_dir: DataDir, name: str) -> dict[str, Any]:
    return dict(json.loads(data_dir.stack_path.read_text())["parts"][name])


def test_submit_and_wait_works_without_a_dashboard(data_dir: DataDir) -> None:
    words = ("--set", "compile=none", "--gpu", "cpu", "--repeats", "1", "--wait")

    found = cli(data_dir, "submit", "decode", *words)["runs"]

    assert [r["status"] for r in found] == ["done"]
    shown = cli(data_dir, "show", found[0]["run_id"])
    assert shown["summary"]["latency_ms"]["n"] >= 10
    assert 0 < shown["summary"]["gemm_frac"] <= 1
    assert shown["kernels"]
    assert "BENCHMARK/iteration_0/forward" in {p["path"] for p in shown["phases"]}
    assert running_stack(data_dir) is None


def test_up_serves_pages_and_api_and_ends_without_a_process_left(
    data_dir: DataDir, stack: subprocess.Popen[bytes]
) -> None:
    state = until(lambda: running_stack(data_dir), START_S)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for path in ("/_stcore/health", "/api/v1/health"):
        assert opener.open(state["url"] + path, timeout=20).status == 200
    until(lambda: "worker" in json.loads(data_dir.stack_path.read_text())["parts"], START_S)
    below = descendants(stack.pid)
    assert len(below) >= 3

    stack.send_signal(signal.SIGINT)

    assert stack.wait(40) == 0
    assert alive(below) == set()
    assert not data_dir.stack_path.exists()


def test_second_up_on_the_same_data_or_port_is_refused_in_one_line(
    data_dir: DataDir, tmp_path: Path, stack: subprocess.Popen[bytes]
) -> None:
    port = json.loads(data_dir.stack_path.read_text())["url"].rsplit(":", 1)[1]

    def up(data: DataDir, port_text: str) -> tuple[int, str]:
        done = subprocess.run(
            [*CLI, "up", "--port", port_text, "--no-worker"],
            env=environment(data),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stderr.strip()

    same_data = up(data_dir, str(free_port()))
    same_port = up(DataDir(root=tmp_path / "other"), port)

    assert (same_data[0], same_port[0]) == (2, 2)
    assert "another `warpboard up`" in same_data[1]
    assert f"port {port}" in same_port[1]
    assert [len(text.splitlines()) for _, text in (same_data, same_port)] == [1, 1]


def test_killed_worker_leaves_an_interrupted_run_and_a_queue_that_goes_on(
    data_dir: DataDir, stack: subprocess.Popen[bytes]
) -> None:
    long = cli(data_dir, "submit", "decode", *LONG_JOB)["runs"][0]["run_id"]
    short = cli(data_dir, "submit", "decode", *SHORT_JOB)["runs"][0]["run_id"]
    until(lambda: status_of(data_dir, long) == "running", START_S)
    worker = part(data_dir, "worker")["pid"]
    below = descendants(worker) | {worker}

    os.kill(worker, signal.SIGKILL)

    until(lambda: status_of(data_dir, long) == "interrupted", 60)
    until(lambda: alive(below) == set(), 30, lambda: str(alive(below)))
    until(lambda: status_of(data_dir, short) == "done", JOB_S)
    assert cli(data_dir, "retry", long)["status"] == "queued"
    cli(data_dir, "cancel", long)
    until(lambda: status_of(data_dir, long) == "cancelled", 60)


def test_killed_supervisor_leaves_no_process(
    data_dir: DataDir, stack: subprocess.Popen[bytes]
) -> None:
    until(lambda: "worker" in json.loads(data_dir.stack_path.read_text())["parts"], START_S)
    below = descendants(stack.pid)

    stack.kill()

    until(lambda: alive(below) == set(), 40, lambda: str(alive(below)))


def test_stopping_gives_up_what_the_worker_was_running(
    data_dir: DataDir, db: Database, make_run: Callable[..., str]
) -> None:
    run_id = make_run()
    with db.atomic():
        db.conn.execute("UPDATE runs SET status = 'running', worker_id = 'w1'")
    (data_dir.root / "worker-all.id").write_text("w1")
    stopped = Stack(data_dir, StackOptions(), print)
    stopped._parts["worker"] = SimpleNamespace(ask_to_stop=str, end=str)

    stopped.stop()

    assert status_of(data_dir, run_id) == "interrupted"


def test_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port}"):
            check_port("127.0.0.1", port)
