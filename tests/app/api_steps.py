"""What a worker does with the API, for tests: register, claim, upload, hand in."""

import hashlib
from collections.abc import Callable
from typing import Any

import httpx

from tests.conftest import SMALL_TRACE

TRACE = SMALL_TRACE
TRACE_SHA256 = hashlib.sha256(TRACE.read_bytes()).hexdigest()
MakeRun = Callable[..., str]


def register(api: httpx.Client, worker_id: str = "w1") -> None:
    body = {"worker_id": worker_id, "version": "0.1.0", "queues": ["cpu"], "tools": {}}
    assert api.post("/workers", json=body | {"gpus": [{"model": "cpu"}]}).status_code == 200


def claim(api: httpx.Client, run_id: str, **more: Any) -> httpx.Response:
    """Claim a run for the worker w1, which registers first where the caller did not do so."""
    if api.post("/workers/w1/heartbeat", json={}).status_code == 404:
        register(api)
    body = {"worker_id": "w1", "gpu": {"model": "cpu"}, "task_id": "t", **more}
    return api.post(f"/runs/{run_id}/claim", json=body)


def manifest(captures: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    job = {"schema_version": 1, "workload": "decode", "params": {}, "profilers": ["trace"]}
    clean = {"pass": "clean", "process": 0, "captures": [], "result": {"samples_ns": [10, 20, 30]}}
    trace = {"pass": "trace", "process": 0, "captures": captures}
    return {
        "schema_version": 1,
        "status": "done",
        "job": job | {"repeats": 1, "gpu": "cpu"},
        "passes": [clean, trace],
        "attempt": 1,
        **more,
    }


def trace_capture() -> dict[str, Any]:
    return {
        "file": "trace-0.json.gz",
        "kind": "torch_trace",
        "bytes": TRACE.stat().st_size,
        "sha256": TRACE_SHA256,
    }


def claimed(api: httpx.Client, make_run: MakeRun) -> str:
    """Return a run that the worker w1 has claimed."""
    run_id = make_run()
    assert claim(api, run_id).status_code == 200
    return run_id


def upload_path(run_id: str) -> str:
    return f"/runs/{run_id}/captures/{TRACE_SHA256}"
