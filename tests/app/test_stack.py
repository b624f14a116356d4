"""The whole stack with real processes: one CPU job end to end, kill -9, Ctrl-C, used ports."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlite_utils import Database

from app.stack import Stack, StackOptions, check_port, free_port, running_stack
from core.config import ROOT, DataDir
from core.errors import UserError
from db.connection import opened
from db.fetch import run_row
from tests.app.api_steps import TRACE_SHA256, manifest, trace_capture
from tests.app.conftest import Cli
from tests.conftest import H100
from tests.processes import is_alive, until

pytestmark = pytest.mark.slow

FAKE_PYTHON = ROOT / "tests/fake_tools/fake_python"
WITHOUT_TORCH = f"""#!/bin/sh
case "$1 $2" in
  "-m workloads") exec {sys.executable} {FAKE_PYTHON} "$@" ;;
  "-P -c") exit 1 ;;
esac
exec {sys.executable} "$@"
"""
"""A Python for the worker that takes jobs as far as their processes go; importing PyTorch costs."""
CLI = [sys.executable, "-m", "app.cli"]
START_S, JOB_S = 120, 240


def environment(data_dir: DataDir, python: str = sys.executable) -> dict[str, str]:
    own = {"WARPBOARD_PYTHON": python, "WARPBOARD_DATA": str(data_dir.root)}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT)}


def status_of(data_dir: DataDir, run_id: str) -> str:
    with opened(data_dir.db_path) as db:
        return run_row(db, run_id).status


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if is_alive(pid)}


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


@pytest.fixture
def python(data_dir: DataDir) -> str:
    """Write WITHOUT_TORCH and return its path."""
    path = data_dir.root.parent / "python"
    path.write_text(WITHOUT_TORCH)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def stack(data_dir: DataDir, python: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `up` on a free port, without examples, until the test ends."""
    command = [*CLI, "up", "--port", str(free_port()), "--no-demo", "--gpu", "cpu"]
    log = (data_dir.root / "up.log").open("wb")
    env = environment(data_dir, python)
    process = subprocess.Popen(
        command, env=env, stderr=log, stdout=log, cwd="/", start_new_session=True
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


def parts(data_dir: DataDir) -> dict[str, Any]:
    return dict(json.loads(data_dir.stack_path.read_text())["parts"])


def open_to_others(root: Path) -> list[str]:
    """Return what in the data directory is not its owner's alone, sockets and pipes included."""
    found = []
    for path in [root, *sorted(root.rglob("*"))]:
        mode = path.lstat().st_mode
        allowed = 0o700 if path.is_dir() else 0o600
        if not path.is_symlink() and mode & 0o777 & ~allowed:
            found.append(f"{path.relative_to(root)} {mode & 0o777:o}")
    return found


def test_submit_and_wait_works_without_a_dashboard_and_leaves_nothing_open_to_others(
    data_dir: DataDir, cli: Cli, python: str, tmp_path: Path
) -> None:
    words = ("--set", "compile=none", "--gpu", "cpu", "--repeats", "1", "--wait", "--json")

    done = subprocess.run(
        [*CLI, "submit", "decode", *words],
        env=environment(data_dir, python),
        capture_output=True,
        text=True,
        timeout=JOB_S,
        cwd="/",
        umask=0o022,
    )

    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["runs"]
    assert found["status"] == "done"
    shown = cli.json("show", found["run_id"])
    assert shown["summary"]["latency_ms"]["n"] >= 10
    assert 0 < shown["summary"]["gemm_frac"] <= 1
    assert shown["kernels"]
    assert running_stack(data_dir) is None
    live_on(cli, found["run_id"], tmp_path)
    assert open_to_others(data_dir.root) == []


def live_on(cli: Cli, run_id: str, tmp_path: Path) -> None:
    """Do what else writes to the data directory, refused imports among it, under an open umask."""
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes((H100 / "nsys" / "decode_eager.sqlite").read_bytes()[:60_000])
    before = os.umask(0o022)
    try:
        imported = cli.json("import", str(H100 / "nsys" / "decode_eager.sqlite"))["run_id"]
        assert cli("import", str(broken)) == 2
        assert cli("compare", run_id, imported) in (0, 4)
        assert cli("token", "host-b") == 0
        assert cli("reparse", imported) == 0
        assert cli("delete", imported) == 0
    finally:
        os.umask(before)


def test_a_data_directory_that_a_reading_command_makes_is_its_owners_alone(tmp_path: Path) -> None:
    data = DataDir(root=tmp_path / "fresh")
    env = environment(data)
    subprocess.run([*CLI, "runs"], env=env, cwd="/", umask=0o022, check=True, capture_output=True)
    assert data.db_path.exists()
    assert open_to_others(data.root) == []


def half_uploaded(data_dir: DataDir) -> None:
    """Leave a run that waits for a capture of which a half has come."""
    url = json.loads(data_dir.stack_path.read_text())["url"] + "/api/v1/runs"
    headers = {"Authorization": f"Bearer {data_dir.token_path.read_text().strip()}"}
    with httpx.Client(headers=headers, trust_env=False, timeout=20) as api:
        run = api.post(url, json={"job": manifest([])["job"]}).json()["run_id"]
        where = f"{url}/{run}/captures/{TRACE_SHA256}"
        half = api.put(where, params={"file": "t.gz", "offset": 0}, content=b"half")
        ended = api.post(f"{url}/{run}/finish", json=manifest([trace_capture()]))
    assert (half.status_code, ended.status_code) == (202, 409)
    assert list(data_dir.uploads.rglob("*.part"))


def refused_up(data: DataDir, port: str) -> str:
    """Return the line with which a second `up` is refused."""
    done = subprocess.run(
        [*CLI, "up", "--port", port, "--no-worker"],
        env=environment(data),
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2
    return line


def test_up_serves_refuses_a_second_one_and_ends_without_a_process_left(
    data_dir: DataDir, tmp_path: Path, stack: subprocess.Popen[bytes]
) -> None:
    state = until(lambda: running_stack(data_dir), START_S)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for path in ("/_stcore/health", "/api/v1/health"):
        assert opener.open(state["url"] + path, timeout=20).status == 200
    until(lambda: "worker" in parts(data_dir), START_S)
    below = descendants(stack.pid)
    assert len(below) >= 3

    port = state["url"].rsplit(":", 1)[1]
    assert "another `warpboard up`" in refused_up(data_dir, str(free_port()))
    assert f"port {port}" in refused_up(DataDir(root=tmp_path / "other"), port)

    stack.send_signal(signal.SIGINT)

    assert stack.wait(40) == 0
    assert alive(below) == set()
    assert not data_dir.stack_path.exists()


def test_killed_worker_interrupts_its_run_alone_and_a_killed_supervisor_leaves_no_process(
    data_dir: DataDir, cli: Cli, stack: subprocess.Popen[bytes]
) -> None:
    def submitted(*words: str) -> str:
        found = cli.json("submit", "decode", *words, "--profilers=none", "--repeats=1", "--gpu=cpu")
        return str(found["runs"][0]["run_id"])

    long = submitted("--set", "preset=tiny", "--set", "iterations=100000")
    short = submitted()
    until(lambda: status_of(data_dir, long) == "running", START_S)
    worker = parts(data_dir)["worker"]["pid"]
    below = descendants(worker) | {worker}

    os.kill(worker, signal.SIGKILL)

    until(lambda: status_of(data_dir, long) == "interrupted", 60)
    until(lambda: alive(below) == set(), 30, lambda: str(alive(below)))
    until(lambda: status_of(data_dir, short) == "done", JOB_S)
    assert cli.json("retry", long)["status"] == "queued"
    cli.json("cancel", long)
    until(lambda: status_of(data_dir, long) == "cancelled", 60)
    half_uploaded(data_dir)
    assert cli("delete", short) == 0
    (data_dir.root / "up.log").chmod(0o600)  # the test's own
    assert open_to_others(data_dir.root) == []
    below = descendants(stack.pid)
    assert len(below) >= 3

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
