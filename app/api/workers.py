"""Routes of workers: registration and heartbeat."""

import logging
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api.auth import EMBEDDED, check_token
from app.api.errors import ApiError, field_of, read_json, route
from app.api.state import HEARTBEAT_S, ApiState, in_thread, state_of
from core import VERSION
from core.errors import AppError, UserError
from core.queues import job_queue
from db import handover
from db import workers as db_workers

LOG = logging.getLogger("warpboard.api")
RESEND_AFTER_S = 20.0
RESEND_GAP_S = 5.0
MAX_NAME_CHARS = 200


@route
async def register(request: Request) -> Response:
    """Store a worker with its GPUs and tools."""
    label = await check_token(request)
    body = await read_json(request)
    worker_id = _worker_id(field_of(body, "worker_id", str))
    clock_s = field_of(body, "clock_s", float, None)
    told = ("worker_id", "version", "queues", "gpus", "clock_s")
    info = {k: v for k, v in body.items() if k not in told}
    info |= {"clock_skew_s": time.time() - clock_s} if clock_s is not None else {}
    gpus = field_of(body, "gpus", list, [])
    if not all(isinstance(gpu, dict) for gpu in gpus):
        raise ApiError(400, "gpus is no list of objects")
    version = field_of(body, "version", str)
    await in_thread(
        request,
        db_workers.register_worker,
        worker_id,
        version=version,
        queues=[str(q) for q in field_of(body, "queues", list, [])],
        gpus=gpus,
        info=info | {"token": label, "is_embedded": label == EMBEDDED},
    )
    state = state_of(request)
    state.seen_s[worker_id] = time.monotonic()
    return JSONResponse(
        {"heartbeat_s": HEARTBEAT_S, "version": VERSION, "is_same_version": version == VERSION}
    )


@route
async def heartbeat(request: Request) -> Response:
    """Note that a worker lives; tell it what to stop."""
    await check_token(request)
    worker_id = _worker_id(request.path_params["worker_id"])
    body = await read_json(request)
    running = [str(r) for r in field_of(body, "running", list, [])]
    state = state_of(request)
    state.seen_s[worker_id] = time.monotonic()
    state.asking[worker_id] += 1
    try:
        cancel = await in_thread(request, _beat, state, worker_id, running)
    except UserError as exc:
        raise ApiError(404, str(exc)) from exc
    finally:
        state.asking[worker_id] -= 1
        if not state.asking[worker_id]:
            del state.asking[worker_id]
        state.seen_s[worker_id] = time.monotonic()
    return JSONResponse({"cancel": cancel})


def _beat(db, state: ApiState, worker_id: str, running: list[str]) -> list[str]:  # type: ignore[no-untyped-def]
    cancel = db_workers.heartbeat(db, worker_id, running)
    handover.interrupt_lost(db, worker_id, running)
    if not running:
        _resend(db, state, worker_id)
    return cancel


def _resend(db, state: ApiState, worker_id: str) -> None:  # type: ignore[no-untyped-def]
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


def _worker_id(text: str) -> str:
    if not text or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise ApiError(400, "worker_id is no printable name of at most 200 characters")
    return text
