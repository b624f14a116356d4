"""The broker away, killed, or answering twice: real Redis, real processes, a stand-in program."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from redis.exceptions import ResponseError
from sqlite_utils import Database

from app.api.state import ApiState
from app.api.watch import REMIND_INGEST_S, remind_ingest
from app.stack import free_port
from app.submit import Sender, submit_jobs
from core.config import ROOT, DataDir
from core.errors import AppError
from core.spec import JobSpec
from db.connection import opened
from db.fetch import run_row
from tests.app.api_steps import MakeRun, claim, manifest, register
from tests.processes import until

FAKE_PYTHON = ROOT / "tests" / "fake_tools" / "fake_python"
NOBODY = "redis://127.0.0.1:1/0"


def test_claim_whose_answer_was_lost_is_answered_again(
    api: httpx.Client,
    make_run: MakeRun,
) -> None:
    register(api)
    first, second = make_run(), make_run(name="next")
    again = [claim(api, first, any_run=True, try_id="t1").json()["run_id"] for _ in range(2)]
    other = claim(api, first, any_run=True, try_id="t2").json()["run_id"]
    assert again == [first, first]
    assert other == second


def test_bundle_is_taken_while_the_broker_is_away(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, make_run: MakeRun, db: Database
) -> None:
    monkeypatch.setenv("WARPBOARD_BROKER", NOBODY)
    client = request.getfixturevalue("api")
    register(client)
    run_id = make_run()
    claim(client, run_id)
    answer = client.post(f"/runs/{run_id}/finish", json=manifest([]))
    assert (answer.status_code, answer.json()["status"]) == (200, "ingesting")
    assert run_row(db, run_id).status == "ingesting"


def test_heartbeat_is_answered_while_the_broker_is_away(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, make_run: MakeRun, db: Database
) -> None:
    monkeypatch.setenv("WARPBOARD_BROKER", NOBODY)
    client = request.getfixturevalue("api")
    register(client)
    run_id = make_run()
    db.conn.execute("UPDATE runs SET created_at = '2026-01-01' WHERE id = ?", [run_id])
    db.conn.commit()
    assert client.post("/workers/w1/heartbeat", json={"running": []}).json() == {"cancel": []}


def test_redis_that_takes_no_message_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, data_dir: DataDir, make_run: MakeRun
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ResponseError("MISCONF Redis is unable to persist on disk")

    monkeypatch.setenv("WARPBOARD_BROKER", "redis://:secret@127.0.0.1:1/0")
    sender = Sender(data_dir)
    monkeypatch.setattr(sender._app, "send_task", refuse)
    with pytest.raises(AppError, match=r"queued, but no worker could be told \(MISCONF") as told:
        sender.send_job(make_run(), "cpu")
    assert "secret" not in str(told.value)


def test_ingest_is_reminded_of_a_run_that_stays_next(
    monkeypatch: pytest.MonkeyPatch, data_dir: DataDir, make_run: MakeRun, db: Database
) -> None:
    sent: list[str] = []
    state = ApiState(data_dir=data_dir, send_job=lambda *_: None, send_ingest=sent.append)
    run_id = make_run()
    db.conn.execute("UPDATE runs SET status = 'ingesting' WHERE id = ?", [run_id])
    db.conn.commit()
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for now in (0.0, REMIND_INGEST_S - 1, REMIND_INGEST_S + 1, REMIND_INGEST_S + 2):
        clock[0] = now
        remind_ingest(state)
    assert sent == [run_id]


@contextmanager
def running(
    command: Sequence[str], log: Path, env: dict[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:  # Celery may wait for a broker that ended before it
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(15)


@contextmanager
def redis(port: int, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a Redis that keeps an append-only file, as the compose file's does."""
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes")
    command = ["redis-server", *options, "--dir", str(folder)]
    with running(command, folder / "redis.log", dict(os.environ)) as process:
        until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
        yield process


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_jobs_pass_through_redis_whatever_becomes_of_it(
    monkeypatch: pytest.MonkeyPatch, data_dir: DataDir, tmp_path: Path, db: Database
) -> None:
    assert shutil.which("redis-server"), "install redis-server"
    port, redis_port = free_port(), free_port()
    monkeypatch.setenv("WARPBOARD_BROKER", f"redis://127.0.0.1:{redis_port}/0")
    monkeypatch.setenv("WARPBOARD_DATA", str(data_dir.root))
    monkeypatch.setenv("WARPBOARD_PYTHON", str(FAKE_PYTHON))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    python = (sys.executable, "-m")
    worker = [*python, "worker", "--gpu", "cpu", "--data", str(tmp_path / "worker")]
    worker += ["--dashboard", f"http://127.0.0.1:{port}", "--token-file", str(data_dir.token_path)]
    with ExitStack() as stack:
        server = stack.enter_context(redis(redis_port, tmp_path))
        for name, command in (
            ("dashboard", [*python, "app.serve", "--no-pages", "--port", str(port)]),
            ("ingest", [*python, "app.ingest_worker"]),
            ("worker", worker),
        ):
            stack.enter_context(running(command, tmp_path / f"{name}.log", env))
            until(data_dir.token_path.exists)

        before = submit(data_dir, number=1)
        until(lambda: run_row(db, before).status == "done")
        sender = Sender(data_dir)
        sender.send_job(before, "cpu")  # the same message a second time
        sender.send_ingest(before)
        queued = submit(data_dir, number=2, sleep_s=1)
        server.send_signal(signal.SIGKILL)
        server.wait()
        stack.enter_context(redis(redis_port, tmp_path))
        after = submit(data_dir, number=3)

        until(lambda: all(run_row(db, r).status == "done" for r in (queued, after)))
        assert [run_row(db, r).attempt for r in (before, queued, after)] == [1, 1, 1]


def submit(data_dir: DataDir, **params: int) -> str:
    job = JobSpec(workload="decode", params=params, profilers=("trace",), gpu="cpu")
    with opened(data_dir.db_path) as db:
        return submit_jobs(db, data_dir, [job]).run_ids[0]
