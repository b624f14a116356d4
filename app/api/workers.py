"""Routes of workers: registration and heartbeat."""

import json
import logging
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api.auth import check_token
from app.api.errors import ApiError, field_of, read_json, route
from app.api.state import HEARTBEAT_S, ApiState, in_thread, state_of
from core import VERSION
from core.errors import AppError, UserError
from core.foreign import checked_gpu, checked_json, checked_mapping, checked_number, checked_text
from core.queues import job_queue
from db import Database, handover
from db import workers as db_workers
from db.tokens import EMBEDDED, NotYours, check_worker

LOG = logging.getLogger("warpboard.api")
RESEND_AFTER_S = 20.0
RESEND_GAP_S = 5.0
MAX_GPUS = 64
MAX_INFO_CHARS = 200_000


@route
async def register(request: Request) -> Response:
    """Store a worker with its GPUs and tools."""
    label = await check_token(request)
    body = await read_json(request)
    worker_id = checked_text(field_of(body, "worker_id", str), "worker_id")
    version = checked_text(field_of(body, "version", str), "version")
    gpus = [checked_gpu(gpu, f"gpus[{i}]") for i, gpu in enumerate(_few(body, "gpus"))]
    queues = [checked_text(name, "queues") for name in _few(body, "queues")]
    await in_thread(
        request,
        db_workers.register_worker,
        worker_id,
        version=version,
        queues=queues,
        gpus=gpus,
        info=_info(body) | {"is_embedded": label == EMBEDDED},
        token_label=label,
    )
    state = state_of(request)
    state.seen_s[worker_id] = time.monotonic()
    return JSONResponse(
        {"heartbeat_s": HEARTBEAT_S, "version": VERSION, "is_same_version": version == VERSION}
    )


def _few(body: dict[str, Any], name: str) -> list[Any]:
    entries: list[Any] = field_of(body, name, list, [])
    if len(entries) > MAX_GPUS * 2:
        raise ApiError(400, f"{name}: more than {MAX_GPUS * 2} entries")
    return entries


def _info(body: dict[str, Any]) -> dict[str, Any]:
    """Return a worker's report about its host; the parts that pages read are checked."""
    columns = ("worker_id", "version", "queues", "gpus", "clock_s")
    info: dict[str, Any] = checked_json(
        {k: v for k, v in body.items() if k not in columns}, "worker"
    )
    for name in ("tools", "permissions", "torch"):
        if not isinstance(info.get(name), str | None):
            checked_mapping(info[name], name)
    if info.get("host_label") is not None:
        checked_text(info["host_label"], "host_label")
    if "clock_s" in body:
        info["clock_skew_s"] = time.time() - checked_number(body["clock_s"], "clock_s", 1e11)
    if len(json.dumps(info)) > MAX_INFO_CHARS:
        raise ApiError(400, f"the worker's description is longer than {MAX_INFO_CHARS} characters")
    return info


@route
async def heartbeat(request: Request) -> Response:
    """Note that a worker lives; tell it what to stop."""
    label = await check_token(request)
    worker_id = checked_text(request.path_params["worker_id"], "worker_id")
    body = await read_json(request)
    running = [checked_text(r, "running") for r in _few(body, "running")]
    state = state_of(request)
    await in_thread(request, _check_worker, label, worker_id)
    state.seen_s[worker_id] = time.monotonic()
    state.asking[worker_id] += 1
    try:
        cancel = await in_thread(request, _beat, state, worker_id, running)
    finally:
        state.asking[worker_id] -= 1
        if not state.asking[worker_id]:
            del state.asking[worker_id]
        state.seen_s[worker_id] = time.monotonic()
    return JSONResponse({"cancel": cancel})


def _check_worker(db: Database, label: str, worker_id: str) -> None:
    try:
        check_worker(db, label, worker_id)
    except NotYours:
        raise
    except UserError as exc:  # the database was replaced: the worker registers again
        raise ApiError(404, str(exc)) from exc


def _beat(db: Database, state: ApiState, worker_id: str, running: list[str]) -> list[str]:
    cancel = db_workers.heartbeat(db, worker_id, running)
    handover.interrupt_lost(db, worker_id, running)
    if not running:
        _resend(db, state, worker_id)
    return cancel


def _resend(db: Database, state: ApiState, worker_id: str) -> None:
    """Send a message again for a run that waits although its worker is idle: it was lost."""
    now = time.monotonic()
    for run_id, model, device in handover.waiting_for(db, worker_id, RESEND_AFTER_S):
        queue = job_queue(model, device)
        if now - state.resent_s.get(queue, float("-inf")) > RESEND_GAP_S:
            state.resent_s[queue] = now
            try:
                state.send_job(run_id, model, device)
            except AppError as exc:
                LOG.warning("%s", exc)
