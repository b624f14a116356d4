"""The API described: `/api/openapi.json` for programs, `/api/docs` for people."""

from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from core import VERSION

_OPERATIONS: tuple[tuple[str, str, str, str, str], ...] = (
    ("GET", "/api/v1/health", "Say that the API answers; needs no token", "", "status, version"),
    ("GET", "/api/v1/runs", "List runs", "query: filter, limit, offset", "runs, total"),
    ("GET", "/api/v1/runs/{run_id}", "One run, as `show --json`", "", "run, summary, ..."),
    (
        "POST",
        "/api/v1/runs",
        "Add a run that was measured elsewhere (`warpboard profile --to`); its captures and its "
        "manifest follow, by the same token",
        "job: the job spec, name",
        "run_id, attempt",
    ),
    (
        "POST",
        "/api/v1/workers",
        "Register a worker",
        "worker_id, version, queues, gpus, tools, host_label, clock_s",
        "heartbeat_s, version, is_same_version",
    ),
    (
        "POST",
        "/api/v1/workers/{worker_id}/heartbeat",
        "Note that a worker lives",
        "running: list of run ids",
        "cancel: list of run ids",
    ),
    (
        "POST",
        "/api/v1/runs/{run_id}/claim",
        "Take a run from the queue; 409 when it is not queued. With any_run true: the run that is "
        "first in line for the GPU that asks, of the same model. Asked again with its try_id it "
        "gives the same run",
        "worker_id, gpu, task_id, any_run, try_id",
        "run_id, spec, attempt",
    ),
    (
        "POST",
        "/api/v1/runs/{run_id}/events",
        "Report progress and log lines",
        "attempt, events: list of {at, kind, message}, progress",
        "cancel",
    ),
    (
        "HEAD",
        "/api/v1/runs/{run_id}/captures/{sha256}",
        "Ask whether a capture is complete: 200, else 404 with Upload-Offset",
        "",
        "",
    ),
    (
        "PUT",
        "/api/v1/runs/{run_id}/captures/{sha256}",
        "Append to a capture; 201 complete, 202 more is needed, 409 wrong offset, 413 too large",
        "query: file, offset; body: bytes",
        "complete",
    ),
    (
        "POST",
        "/api/v1/runs/{run_id}/finish",
        "Hand in the manifest; 409 with `missing` until every capture is here",
        "the bundle's manifest",
        "status",
    ),
)


async def openapi(request: Request) -> Response:
    """Return the OpenAPI 3.1 description."""
    paths: dict[str, Any] = {}
    for method, path, summary, takes, gives in _OPERATIONS:
        operation: dict[str, Any] = {
            "summary": summary,
            "description": f"Takes: {takes or 'nothing'}. Gives: {gives or 'nothing'}.",
            "responses": {"200": {"description": gives or "no body"}},
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]
            ],
        }
        if path.endswith("/health"):
            operation["security"] = []
        paths.setdefault(path, {})[method.lower()] = operation
    return JSONResponse(
        {
            "openapi": "3.1.0",
            "info": {"title": "Warpboard", "version": VERSION},
            "paths": paths,
            "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
            "security": [{"token": []}],
        }
    )


async def page(request: Request) -> Response:
    """Return the same as a plain page."""
    rows = "".join(
        f"<tr><td>{method}</td><td><code>{escape(path)}</code></td><td>{escape(summary)}</td>"
        f"<td>{escape(takes)}</td><td>{escape(gives)}</td></tr>"
        for method, path, summary, takes, gives in _OPERATIONS
    )
    return HTMLResponse(
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Warpboard API</title>"
        "<style>body{font-family:system-ui;margin:2rem;max-width:75rem}"
        "td,th{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0}</style>"
        f"<h1>Warpboard API {VERSION}</h1>"
        "<p>JSON over HTTP. Every route but <code>health</code> needs "
        "<code>Authorization: Bearer TOKEN</code>; <code>warpboard token LABEL</code> makes one. "
        "Machine-readable: <a href='/api/openapi.json'>openapi.json</a>.</p>"
        "<table><tr><th>Method</th><th>Path</th><th>Does</th><th>Takes</th><th>Gives</th></tr>"
        f"{rows}</table></html>",
        headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
    )
