"""In a real browser: a second GPU host appears, and the same job goes to both."""

import re
from pathlib import Path
from typing import Any

import pytest

from core.config import DataDir
from core.queues import job_queue
from db.connection import opened
from db.workers import register_worker, worker_stopped
from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
MODEL = "NVIDIA H100 80GB HBM3"


def test_a_second_host_appears_and_the_same_job_waits_for_it(
    page: Any, dashboard: str, dashboard_data: Path
) -> None:
    page.goto(f"{dashboard}/gpus")
    with steps.presses_at_most(page, 1):
        page.get_by_text("Add a GPU host").click()
        for command in ("./warpboard token", "./warpboard worker --dashboard http://"):
            page.get_by_text(command).first.wait_for()
    with opened(DataDir(root=dashboard_data).db_path) as db:
        gpu = {"model": MODEL, "uuid": "GPU-second", "ordinal": 0}
        queues = [job_queue(MODEL, None)]
        info = {"host_label": "node7"}
        register_worker(db, "w-node7", version="1", queues=queues, gpus=[gpu], info=info)
    page.goto(f"{dashboard}/gpus")
    page.get_by_role("heading", name="node7, GPU 0").wait_for()

    steps.submit_form(page, dashboard, "gemm")
    with steps.presses_at_most(page, 3):
        steps.choose(page, "GPUs", MODEL, "cpu")
        page.get_by_role("button", name="Submit 2 jobs").click()
        page.wait_for_url(re.compile("/queue"))
    page.get_by_text(MODEL.removeprefix("NVIDIA ")).first.wait_for()
    with opened(DataDir(root=dashboard_data).db_path) as db:
        worker_stopped(db, "w-node7")
        steps.cancel_all(db)
