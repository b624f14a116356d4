"""The API's routes, and the background work that goes with them, for any ASGI server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.api import docs, runs, uploads, workers
from app.api.auth import ensure_token
from app.api.state import ApiState
from app.api.watch import watch
from app.submit import Sender
from core import VERSION
from core.config import DataDir
from db.connection import opened

PREFIX = "/api/v1"


async def health(request: Request) -> Response:
    """Say that the API answers, and as which version."""
    return JSONResponse({"status": "ok", "version": VERSION})


def routes() -> list[Route]:
    """Return every route of the API."""
    run = PREFIX + "/runs/{run_id}"
    capture = run + "/captures/{sha256}"
    return [
        Route(PREFIX + "/health", health, methods=["GET"]),
        Route(PREFIX + "/workers", workers.register, methods=["POST"]),
        Route(PREFIX + "/workers/{worker_id}/heartbeat", workers.heartbeat, methods=["POST"]),
        Route(PREFIX + "/runs", runs.listed, methods=["GET"]),
        Route(run, runs.shown, methods=["GET"]),
        Route(run + "/claim", runs.claim, methods=["POST"]),
        Route(run + "/events", runs.events, methods=["POST"]),
        Route(run + "/finish", runs.finish, methods=["POST"]),
        Route(capture, uploads.head, methods=["HEAD"]),
        Route(capture, uploads.put, methods=["PUT"]),
        Route("/api/docs", docs.page, methods=["GET"]),
        Route("/api/openapi.json", docs.openapi, methods=["GET"]),
    ]


def make_state(data_dir: DataDir) -> ApiState:
    """Return the state of one API process; makes the data directory, database and token."""
    data_dir.ensure()
    ensure_token(data_dir)
    with opened(data_dir.db_path):
        pass  # made and migrated once, before anybody asks
    sender = Sender(data_dir)
    return ApiState(data_dir=data_dir, send_job=sender.send_job, send_ingest=sender.send_ingest)


def lifespan_for(data_dir: DataDir) -> Any:
    """Return the lifespan that puts the state on the application and watches the workers."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
        state = make_state(data_dir)
        app.state.api = state
        async with anyio.create_task_group() as background:
            background.start_soon(watch, state)
            yield {}
            background.cancel_scope.cancel()

    return lifespan


def make_api(data_dir: DataDir) -> Starlette:
    """Return the API on its own, without the pages."""
    return Starlette(routes=routes(), lifespan=lifespan_for(data_dir))
