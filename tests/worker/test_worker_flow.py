"""`python -m worker` on the real embedded broker: one job from the queue to the dashboard."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.queues import RUN_JOB_TASK, device_queue, model_queue
from core.spec import JobSpec
from core.supervisor import descendants
from tests.processes import is_alive, redis_server, until
from tests.worker.conftest import FAKE_TOOLS
from tests.worker.dashboard import TOKEN, Dashboard, serve
from worker.celery_app import make_app

EMBEDDED = "filesystem://"
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(120)


def submit(
    data: Path, dashboard: Dashboard, run_id: str, *, broker: str = EMBEDDED, **params: Any
) -> None:
    spec = JobSpec(workload="decode", params=params, profilers=("trace",), gpu="cpu")
    dashboard.queued[run_id] = spec.as_dict()
    send(data, run_id, broker)


def send(data: Path, run_id: str, broker: str = EMBEDDED) -> None:
    app = make_app("test", broker, data)
    app.send_task(RUN_JOB_TASK, args=[run_id], queue="cpu")


@contextmanager
def started_worker(
    data: Path,
    url: str,
    python: str,
    *,
    token: str = TOKEN,
    broker: str = EMBEDDED,
    gpu: str = "cpu",
) -> Iterator["subprocess.Popen[str]"]:
    data.mkdir(exist_ok=True)
    (data / "token").write_text(token)
    env = {**os.environ, "WARPBOARD_PYTHON": python, "PYTHONPATH": str(ROOT)}
    with open(data / "worker.err", "a") as log:
        worker = subprocess.Popen(
            [
                *(sys.executable, "-m", "worker", "--dashboard", url, "--gpu", gpu),
                *("--data", str(data), "--token-file", str(data / "token"), "--broker", broker),
            ],
            env=env,
            stderr=log,
            text=True,
        )
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait(timeout=30)


def sleeper(dashboard: Dashboard) -> int | None:
    """Return the pid of the job's grandchild, once the job has told it."""
    lines = [e["message"] for e in list(dashboard.events) if "sleeping in" in e["message"]]
    return int(lines[-1].rsplit(" ", 1)[1]) if lines else None


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Dashboard]]:
    """A worker that several tests give jobs, one after the other: its folder and dashboard."""
    folder = tmp_path_factory.mktemp("worker")
    with serve() as running, started_worker(folder, running.url, str(FAKE_TOOLS / "fake_python")):
        yield folder, running


def test_a_job_is_claimed_run_and_delivered(long_lived: tuple[Path, Dashboard]) -> None:
    folder, dashboard = long_lived
    submit(folder, dashboard, "r1")
    until(lambda: "r1" in dashboard.manifests)
    send(folder, "r1")  # a second delivery of the same message
    submit(folder, dashboard, "r2")
    until(lambda: "r2" in dashboard.manifests)
    until(lambda: not list((folder / "spool").iterdir()))
    manifest = dashboard.manifests["r1"]
    assert (manifest["status"], manifest["run_id"], manifest["attempt"]) == ("done", "r1", 1)
    assert [run_id for run_id in dashboard.claims if run_id in ("r1", "r2")] == ["r1", "r2"]
    cpu = f"cpu.{dashboard.workers[0]['worker_id']}-0"
    assert dashboard.workers[0]["queues"] == ["cpu", cpu]
    assert any(p.get("stage") == "measure" for p in dashboard.progress)
    assert "a line of the program" in dashboard.log()


def test_settings_of_a_job_and_nothing_else_reach_its_own_program(
    tmp_path: Path, dashboard: Dashboard, fake_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "own"
    program.write_text('#!/bin/sh\necho "tf32 $NVIDIA_TF32_OVERRIDE preload 0$LD_PRELOAD"\n')
    program.chmod(0o755)
    monkeypatch.setenv("WARPBOARD_ALLOW_COMMANDS", str(program))
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # the worker's own
    jobs = {"r1": "NVIDIA_TF32_OVERRIDE=1", "r2": "none", "r3": "LD_PRELOAD=1"}
    metrics = json.dumps(["tf32 ([0-9]+)", "preload ([0-9]+)"])

    with started_worker(tmp_path / "data", dashboard.url, fake_python):
        for run_id, settings in jobs.items():
            params = {"argv": json.dumps([str(program)]), "metrics": metrics, "settings": settings}
            dashboard.queued[run_id] = JobSpec(workload="command", params=params).as_dict()
            send(tmp_path / "data", run_id)
        until(lambda: len(dashboard.manifests) == len(jobs))

    printed = {
        run_id: [m["value"] for m in dashboard.manifests[run_id]["passes"][0]["result"]["metrics"]]
        for run_id in ("r1", "r2")
    }
    assert {run_id: values[:2] for run_id, values in printed.items()} == {
        "r1": [1, 0], "r2": [0, 0],
    }  # fmt: skip
    assert dashboard.manifests["r3"]["status"] == "failed"
    assert "LD_PRELOAD" in dashboard.manifests["r3"]["error"]


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as where:
        yield f"redis://{where}/0"


def test_the_same_worker_takes_jobs_from_redis(
    tmp_path: Path, dashboard: Dashboard, fake_python: str, redis_url: str
) -> None:
    with started_worker(tmp_path, dashboard.url, fake_python, broker=redis_url):
        submit(tmp_path, dashboard, "r1", broker=redis_url)
        until(lambda: "r1" in dashboard.manifests)
    assert dashboard.claims == ["r1"]


def test_gpu_of_the_host_has_its_queues_and_profilers(
    tmp_path: Path, dashboard: Dashboard, fake_python: str, gpu_host: None
) -> None:
    model = "NVIDIA H100 80GB HBM3"
    with started_worker(tmp_path, dashboard.url, fake_python, gpu="all"):
        spec = JobSpec(workload="decode", profilers=("nsys", "ncu"), gpu=model)
        dashboard.queued["r1"] = spec.as_dict()
        app = make_app("test", EMBEDDED, tmp_path)
        app.send_task(RUN_JOB_TASK, args=["r1"], queue=model_queue(model))
        until(lambda: "r1" in dashboard.manifests)
        uuid = "GPU-00000000-0000-0000-0000-000000000000"
        dashboard.queued["r2"] = JobSpec(workload="decode", gpu=model, device=uuid).as_dict()
        app.send_task(RUN_JOB_TASK, args=["r2"], queue=device_queue(model, uuid))
        until(lambda: "r2" in dashboard.manifests)
    registered = dashboard.workers[0]
    assert registered["queues"] == [
        "gpu.nvidia-h100-80gb-hbm3",
        "gpu.nvidia-h100-80gb-hbm3.gpu-00000000-0000-0000-0000-000000000000",
    ]
    assert registered["gpus"][0]["driver"] == "580.159.04"
    manifest = dashboard.manifests["r1"]
    assert [(p["pass"], p["outcome"]) for p in manifest["passes"]] == [
        ("clean", "ok"),
        ("nsys", "ok"),
        ("ncu", "ok"),
    ]
    assert manifest["gpu"]["model"] == model


def test_killed_job_process_is_replaced_and_the_queue_goes_on(
    long_lived: tuple[Path, Dashboard],
) -> None:
    folder, dashboard = long_lived
    dashboard.events.clear()
    submit(folder, dashboard, "killed", sleep_s=600)
    pid = until(lambda: sleeper(dashboard))
    owner = int((folder / "spool" / "killed" / ".owner").read_text().split()[0])
    os.kill(owner, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    until(lambda: dashboard.heartbeats[-1] == [])
    submit(folder, dashboard, "next")
    until(lambda: "next" in dashboard.manifests)
    assert "killed" not in dashboard.manifests


def test_cancel_ends_the_job_within_seconds(long_lived: tuple[Path, Dashboard]) -> None:
    folder, dashboard = long_lived
    dashboard.events.clear()
    submit(folder, dashboard, "cancelled", sleep_s=600)
    pid = until(lambda: sleeper(dashboard))
    until(lambda: ["cancelled"] in dashboard.heartbeats)
    dashboard.cancel.add("cancelled")
    until(lambda: "cancelled" in dashboard.manifests, limit_s=10)
    assert dashboard.manifests["cancelled"]["status"] == "cancelled"
    assert not is_alive(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_end_of_the_worker_leaves_no_process(
    tmp_path: Path, dashboard: Dashboard, fake_python: str, number: int
) -> None:
    with started_worker(tmp_path, dashboard.url, fake_python) as worker:
        submit(tmp_path, dashboard, "r1", sleep_s=600)
        pid = until(lambda: sleeper(dashboard))
        tree = descendants(worker.pid)
        assert pid in tree
        worker.send_signal(number)
        worker.wait(timeout=30)
        until(lambda: not any(is_alive(p) for p in tree), limit_s=15)
    assert "r1" not in dashboard.manifests


def test_bundle_outlives_an_absent_dashboard_and_a_killed_worker(
    tmp_path: Path, dashboard: Dashboard, fake_python: str
) -> None:
    with started_worker(tmp_path, dashboard.url, fake_python) as worker:
        submit(tmp_path, dashboard, "r1", sleep_s=2)
        until(lambda: sleeper(dashboard))
        dashboard.is_away = True
        until(lambda: (tmp_path / "spool" / "r1" / "delivery.json").exists())
        worker.kill()
        worker.wait()
    assert "r1" not in dashboard.manifests
    dashboard.is_away = False
    with started_worker(tmp_path, dashboard.url, fake_python):
        until(lambda: "r1" in dashboard.manifests)
    assert dashboard.manifests["r1"]["status"] == "done"


def test_wrong_token_is_said(tmp_path: Path, dashboard: Dashboard, fake_python: str) -> None:
    with started_worker(tmp_path, dashboard.url, fake_python, token="stolen") as worker:
        assert worker.wait(timeout=30) == 2
    assert "--token-file" in (tmp_path / "worker.err").read_text()


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("http://[::1", "good", "--dashboard"),
        ("gpu.example.com:8501", "good", "--dashboard"),
        ("http://127.0.0.1:1", "schl\u00fcssel\u4e2d", "--token-file"),
        ("http://127.0.0.1:1", "a\x00b", "--token-file"),
    ],
)
def test_address_or_token_that_none_can_be_is_said_in_one_line(
    tmp_path: Path, fake_python: str, url: str, token: str, told: str
) -> None:
    with started_worker(tmp_path, url, fake_python, token=token) as worker:
        assert worker.wait(timeout=60) == 2
    last = (tmp_path / "worker.err").read_text().splitlines()[-1]
    assert last.startswith("warpboard: ") and told in last


def test_other_major_version_is_refused(
    tmp_path: Path, dashboard: Dashboard, fake_python: str
) -> None:
    dashboard.version = "7.0.0"
    with started_worker(tmp_path, dashboard.url, fake_python) as worker:
        assert worker.wait(timeout=30) == 2
    assert "7.0.0" in (tmp_path / "worker.err").read_text()


def test_a_measurement_made_while_the_worker_registers_is_told_too(
    tmp_path: Path, dashboard: Dashboard, fake_python: str
) -> None:
    measured = tmp_path / "measured" / "cpu.json"
    measured.parent.mkdir()
    peaks = {"copy_bytes_per_s": {"value": 5e9, "unit": "B/s"}}
    dashboard.on_register = lambda: measured.write_text(json.dumps({"peaks": peaks}))
    with started_worker(tmp_path, dashboard.url, fake_python):
        until(lambda: len(dashboard.workers) == 2)
    assert [w["gpus"][0].get("peaks") for w in dashboard.workers] == [None, peaks]
