"""The API's routes, and the background work that goes with them, for any ASGI server."""

import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.api import docs, runs, uploads, workers
from app.api.auth import ensure_token
from app.api.errors import Handler
from app.api.state import ApiState
from app.api.watch import watch
from app.submit import Sender
from core import VERSION
from core.config import DataDir
from db.connection import opened


def answer_at_once() -> int:
    """Turn Nagle's delay off for all connections to come; return how many sockets listen.

    An answer is two small writes, and the second would wait for the caller's delayed
    acknowledgement: 40 ms on Linux. asyncio turns it off for sockets that it opens itself, but not
    for one that Streamlit hands to the server. Accepted connections inherit the option.
    """
    return sum(_make_prompt(int(name)) for name in os.listdir("/proc/self/fd"))


def _make_prompt(fd: int) -> bool:
    """Set the option if this is a listening TCP socket; say whether it is one."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        with socket.socket(fileno=os.dup(fd)) as sock:
            is_tcp = sock.family in (socket.AF_INET, socket.AF_INET6)
            if not is_tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return False
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return True
    except OSError:  # closed meanwhile
        return False


PREFIX = "/api/v1"
log = logging.getLogger(__name__)
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ANSWER_FIRST_S = 0.3
"""So long the server has the interpreter to itself before it loads ahead."""


async def health(request: Request) -> Response:
    """Say that the API answers, and as which version."""
    state: ApiState | None = request.scope.get("warpboard")
    disk = state.disk if state is not None else "ok"
    return JSONResponse({"status": "ok", "version": VERSION, "disk": disk})


@dataclass(slots=True)
class Box:
    """Where the lifespan puts the state and the routes find it.

    Not the application's own `state`: inside Streamlit's application the routes belong to another.
    """

    state: ApiState | None = None


def routes(box: Box) -> list[Route]:
    """Return every route of the API."""

    def with_state(handler: Handler) -> Handler:
        async def found(request: Request) -> Response:
            request.scope["warpboard"] = box.state
            return await handler(request)

        return found

    known = [Route(path, with_state(handler), methods=[m]) for m, path, handler in _routes()]
    others = (PREFIX + "/{rest:path}", PREFIX)
    return [*known, *(Route(path, nothing_here, methods=_METHODS) for path in others)]


async def nothing_here(_: Request) -> Response:
    """Answer below the API's prefix for what is not a route: pages must not."""
    return JSONResponse({"error": "the API has no such route"}, status_code=404)


def _routes() -> list[tuple[str, str, Handler]]:
    run = PREFIX + "/runs/{run_id}"
    capture = run + "/captures/{sha256}"
    return [
        ("GET", PREFIX + "/health", health),
        ("POST", PREFIX + "/workers", workers.register),
        ("POST", PREFIX + "/workers/{worker_id}/heartbeat", workers.heartbeat),
        ("GET", PREFIX + "/runs", runs.listed),
        ("POST", PREFIX + "/runs", runs.expected),
        ("GET", run, runs.shown),
        ("POST", run + "/claim", runs.claim),
        ("POST", run + "/events", runs.events),
        ("POST", run + "/finish", runs.finish),
        ("HEAD", capture, uploads.head),
        ("PUT", capture, uploads.put),
        ("GET", "/api/docs", docs.page),
        ("GET", "/api/openapi.json", docs.openapi),
    ]


def make_state(data_dir: DataDir) -> ApiState:
    """Return the state of one API process; makes the data directory, database and token."""
    data_dir.ensure()
    ensure_token(data_dir)
    with opened(data_dir.db_path):
        pass  # made and migrated once, before anybody asks
    sender = Sender(data_dir)
    return ApiState(data_dir=data_dir, send_job=sender.send_job, send_ingest=sender.send_ingest)


def lifespan_for(
    data_dir: DataDir,
    box: Box,
    *,
    load: Callable[[], None] | None = None,
    keep_ahead: Callable[[DataDir], Coroutine[Any, Any, None]] | None = None,
) -> Any:
    """Return the lifespan that makes the state and watches the workers.

    `load` runs once, on its own thread, `keep_ahead` as long as the server.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
        state = make_state(data_dir)
        box.state = state
        answer_at_once()
        async with anyio.create_task_group() as background:
            background.start_soon(watch, state)
            if load is not None:
                background.start_soon(_beside, load)
            if keep_ahead is not None:
                background.start_soon(keep_ahead, data_dir)
            yield {}
            background.cancel_scope.cancel()

    return lifespan


async def _beside(load: Callable[[], None]) -> None:
    await anyio.sleep(_ANSWER_FIRST_S)
    try:
        await run_sync(load, abandon_on_cancel=True)
    except Exception:  # pages then say so themselves; the API goes on
        log.exception("loading ahead failed")


def make_api(data_dir: DataDir) -> Starlette:
    """Return the API on its own, without the pages."""
    box = Box()
    return Starlette(routes=routes(box), lifespan=lifespan_for(data_dir, box))
