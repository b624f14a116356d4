"""Jobs over two GPUs beside single-GPU ones: real Redis, real worker, stand-ins for the GPUs."""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.queues import RUN_JOB_TASK, model_queue
from core.spec import JobSpec
from tests.processes import is_alive, redis_server, until
from tests.worker.conftest import FAKE_TOOLS
from tests.worker.dashboard import Dashboard, serve
from tests.worker.test_worker_flow import started_worker
from worker.celery_app import make_app

MODEL = "NVIDIA H100 80GB HBM3"
NUM_GPUS = 2
TIME_LIMIT_S = 20
pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server"
)]  # fmt: skip


class Host:
    """A host with two GPUs whose worker takes jobs from Redis."""

    def __init__(self, folder: Path, dashboard: Dashboard, broker: str) -> None:
        self.folder, self.dashboard = folder, dashboard
        self._app = make_app("test", broker, folder)

    def submit(self, run_id: str, num_gpus: int = 1, **params: Any) -> None:
        """Queue a job; each of its processes writes down when it had which GPUs."""
        params |= {"use_log": str(self.folder / f"{run_id}.use")}
        if num_gpus > 1:
            params["gpus"] = num_gpus
        spec = JobSpec(workload="decode", params=params, gpu=MODEL)
        self.dashboard.queued[run_id] = spec.as_dict()
        self._app.send_task(RUN_JOB_TASK, args=[run_id], queue=model_queue(MODEL))

    def manifest(self, run_id: str, limit_s: float = 90.0) -> dict[str, Any]:
        until(lambda: run_id in self.dashboard.manifests, limit_s=limit_s)
        return self.dashboard.manifests[run_id]

    def uses(self, run_id: str) -> list[tuple[str, float, int, str, tuple[str, ...]]]:
        """Return (start or end, when, process, rank, GPUs) of a job's processes."""
        path = self.folder / f"{run_id}.use"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = (line.split(" ") for line in lines)
        return [(w, float(t), int(pid), rank, tuple(g.split(","))) for w, t, pid, rank, g in rows]

    def both_ranks(self, run_id: str) -> list[int]:
        """Return the processes of a job's two ranks once both run; [] before."""
        pids = [pid for word, _, pid, _, _ in self.uses(run_id) if word == "start"]
        return pids if len(pids) == NUM_GPUS else []


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    tools = folder / "tools"
    tools.mkdir()
    one = (FAKE_TOOLS / "nvidia-smi").read_text()
    # The stand-in has one GPU; this one answers for the GPU that is asked for, else for both.
    (tools / "one-gpu").write_text(
        one.replace("value=0 ;;", "value=$GPU ;;").replace(
            "-000000000000 ;;", "-00000000000$GPU ;;"
        )
    )
    (tools / "nvidia-smi").write_text(
        '#!/bin/sh\ncase "$*" in\n  *GPU-*0) GPU=0 exec sh "$0-one" "$@" ;;\n'
        '  *GPU-*1) GPU=1 exec sh "$0-one" "$@" ;;\nesac\n'
        'for GPU in 0 1; do export GPU; sh "$0-one" "$@"; done\n'
    )
    (tools / "one-gpu").rename(tools / "nvidia-smi-one")
    (tools / "nvidia-smi").chmod(0o755)
    with redis_server(folder) as where, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("WARPBOARD_TIME_LIMIT_S", str(TIME_LIMIT_S))
        python, broker = str(FAKE_TOOLS / "fake_python"), f"redis://{where}/0"
        with (
            serve() as dashboard,
            started_worker(folder, dashboard.url, python, broker=broker, gpu="all"),
        ):
            yield Host(folder, dashboard, broker)


def test_jobs_over_both_gpus_and_single_ones_all_end_and_share_no_gpu(host: Host) -> None:
    singles = [f"single{i}" for i in range(6)]
    host.submit("both0", num_gpus=2, sleep_s=0.3)
    host.submit("both1", num_gpus=2, sleep_s=0.3)
    for run_id in singles[:3]:
        host.submit(run_id, sleep_s=0.3)
    host.submit("both2", num_gpus=2, sleep_s=0.3)
    for run_id in singles[3:]:
        host.submit(run_id, sleep_s=0.3)
    every = ["both0", "both1", "both2", *singles]

    manifests = {run_id: host.manifest(run_id, limit_s=120) for run_id in every}

    assert {m["status"] for m in manifests.values()} == {"done"}, manifests
    turns = defaultdict(list)
    for run_id in every:
        uses = host.uses(run_id)
        gpus = {gpu for *_, names in uses for gpu in names}
        assert len(gpus) == (2 if run_id.startswith("both") else 1)
        first, last = min(t for _, t, *_ in uses), max(t for _, t, *_ in uses)
        for gpu in gpus:
            turns[gpu].append((first, last, run_id))
    assert len(turns) == NUM_GPUS
    for rows in turns.values():
        rows.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(rows)), rows
    ends = {run_id: host.uses(run_id)[-1][1] for run_id in every}
    assert max(ends["both0"], ends["both1"]) < max(ends[run_id] for run_id in singles)
    assert sorted(run_id for run_id in host.dashboard.claims if run_id in every) == sorted(every)


@pytest.mark.parametrize(
    ("name", "params", "status", "words"),
    [
        ("killed", {"fault": "killed", "fault_rank": 1}, "failed", "rank 1"),
        ("crashed", {"fault": "error", "fault_rank": 0}, "failed", "rank 0"),
        ("memory", {"fault": "oom", "fault_rank": 1}, "oom", ""),
        ("hung", {}, "failed", "rank 0 warmup 1/1, rank 1 warmup 1/1"),
        ("cancelled", {}, "cancelled", ""),
    ],
)
def test_all_ranks_end_together_in_every_fault_and_leave_one_bundle(
    host: Host, name: str, params: dict[str, Any], status: str, words: str
) -> None:
    """The rank without a fault sleeps ten minutes, as one does that waits in a collective."""
    host.submit(name, num_gpus=2, sleep_s=600, **params)
    pids = until(lambda: host.both_ranks(name), limit_s=60)
    if name == "cancelled":
        host.dashboard.cancel.add(name)

    manifest = host.manifest(name)

    assert (manifest["status"], manifest["run_id"]) == (status, name), manifest
    assert words in str(manifest["error"]) + host.dashboard.log()
    assert not any(is_alive(pid) for pid in pids)
    assert [run_id for run_id in host.dashboard.claims if run_id == name] == [name]
    host.submit(f"after-{name}", num_gpus=2)
    assert host.manifest(f"after-{name}")["status"] == "done"
