"""The worker beside the dashboard's real API: measured peaks, and a run given up meanwhile."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from sqlite_utils import Database

from app.api import auth
from app.api.app import make_api
from app.cli import doctor
from app.ingest import ingest
from core.config import ROOT, DataDir
from core.queues import RUN_JOB_TASK, model_queue
from core.spec import JobSpec
from db.connection import opened
from db.fetch import run_row
from db.handover import interrupt_stale
from db.runs import insert_run
from tests.processes import until
from tests.worker.test_worker_flow import EMBEDDED, started_worker
from worker.celery_app import make_app

MEASURED = {
    "gpu": {"model": "cpu"},
    "peaks": {"copy_bytes_per_s": {"value": 5e9, "unit": "B/s", "measured_at": "2026-11-27"}},
    "noise_floor_frac": 0.02,
    "noise_floors": {"gpu_bound": 0.01, "launch_bound": 0.02},
    "measured_at": "2026-11-27",
}


@contextmanager
def served(data: DataDir) -> Iterator[str]:
    """Serve the API of a data folder and return its address."""
    auth._failures.clear()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_api(data), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def stack(tmp_path: Path, python: str) -> Iterator[tuple[DataDir, Database]]:
    data = DataDir(root=tmp_path).ensure()
    with opened(data.db_path) as db, served(data) as url:
        token = data.token_path.read_text().strip()
        with started_worker(tmp_path, url, python, token=token):
            until(lambda: rows(db, "SELECT id FROM workers"))
            yield data, db


def rows(db: Database, sql: str) -> list[Any]:
    return list(db.execute(sql).fetchall())


def test_running_worker_tells_what_was_measured_after_its_start(
    tmp_path: Path, fake_python: str
) -> None:
    with stack(tmp_path, fake_python) as (_, db):
        assert not rows(db, "SELECT * FROM gpu_peaks")
        path = tmp_path / "measured" / "cpu.json"
        path.parent.mkdir()
        path.write_text(json.dumps(MEASURED))
        until(lambda: rows(db, "SELECT * FROM gpu_peaks"), limit_s=60)
        assert rows(db, "SELECT name, value, measured_at FROM gpu_peaks") == [
            ("copy_bytes_per_s", 5e9, "2026-11-27")
        ]
        assert rows(db, "SELECT noise_floor_frac FROM gpus WHERE model = 'cpu'") == [(0.02,)]


def test_doctor_stores_what_it_measured_for_the_workers_of_the_folder(
    tmp_path: Path, fake_python: str
) -> None:
    with stack(tmp_path, fake_python) as (data, db):
        doctor._store(data, MEASURED)
        assert rows(db, "SELECT value FROM gpu_peaks") == [(5e9,)]
    gpu = {"model": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1"}
    doctor._store(data, MEASURED | {"gpu": gpu})
    without_noise = {"noise_floor_frac": None, "noise_floors": {}}
    doctor._store(data, MEASURED | {"gpu": gpu} | without_noise)  # what was known stays
    with opened(data.db_path) as db:
        found = rows(db, "SELECT p.value, noise_floor_frac, info ->> '$.noise_floors.gpu_bound'"
                         " FROM gpus JOIN gpu_peaks p ON p.gpu_id = gpus.id"
                         " WHERE uuid = 'GPU-1' OR model = 'cpu'")  # fmt: skip
    assert found == [(5e9, 0.02, 0.01)] * 2


@pytest.mark.parametrize("is_tried_again", [False, True])
def test_run_given_up_while_its_worker_was_cut_off(
    tmp_path: Path, fake_python: str, is_tried_again: bool
) -> None:
    from db.queue import retry

    with stack(tmp_path, fake_python) as (data, db):
        spec = JobSpec(workload="decode", params={"sleep_s": 4}, gpu="cpu")
        run_id = insert_run(db, spec=spec, name="a run")
        app = make_app("test", EMBEDDED, tmp_path)
        app.send_task(RUN_JOB_TASK, args=[run_id], queue=model_queue("cpu"))
        until(lambda: run_row(db, run_id).status == "running")
        worker_id = rows(db, "SELECT worker_id FROM runs")[0][0]
        assert interrupt_stale(db, worker_id=worker_id) == [run_id]
        if is_tried_again:
            retry(db, run_id)
            folder = tmp_path / "spool" / "refused" / run_id
            until(lambda: (folder / "reason.txt").exists())
            assert run_row(db, run_id).status == "queued"
        else:
            until(lambda: run_row(db, run_id).status == "ingesting")
            manifest = json.loads((data.uploads / run_id / "manifest.json").read_text())
            assert manifest["status"] == "done"


SHORT = Path(__file__).parent / "profile_programs" / "short.py"


def test_program_profiled_elsewhere_is_a_run_of_the_dashboard_that_it_was_sent_to(
    tmp_path: Path, warm_python: str
) -> None:
    data = DataDir(root=tmp_path / "data").ensure()
    token = tmp_path / "token"

    with served(data) as url:
        token.write_text(data.token_path.read_text())
        words = ["--passes", "clean", "--name", "sent", "--to", url, "--token-file", str(token)]
        done = subprocess.run(
            [sys.executable, "-m", "worker.profile", *words, "--", warm_python, str(SHORT)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_DATA": str(tmp_path / "own")},
            cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    with opened(data.db_path) as db:
        ((run_id, name),) = rows(db, "SELECT id, name FROM runs")
        ingest(data, run_id)
        ((status, latency_ms),) = rows(db, "SELECT status, latency_ms FROM runs")
        ((num_samples,),) = rows(db, "SELECT count(*) FROM samples")
    assert f"sent: {url}/run?id={run_id}" in done.stderr
    assert (name, status) == ("sent", "done")
    assert latency_ms > 0
    assert 0 < num_samples <= 12
