"""Failures as JSON answers, and bodies that are not read past a limit."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from core.errors import AppError, UserError

LOG = logging.getLogger("warpboard.api")
MAX_JSON_BYTES = 4 * 2**20
MAX_MANIFEST_BYTES = 64 * 2**20
Handler = Callable[[Request], Awaitable[Response]]


class ApiError(Exception):
    """Answer with this HTTP status and message."""

    def __init__(self, status: int, message: str, **fields: Any) -> None:
        self.status = status
        self.message = message
        self.fields = fields
        super().__init__(message)


def route(handler: Handler) -> Handler:
    """Wrap a handler so that every failure is one JSON document, never a traceback."""

    async def wrapped(request: Request) -> Response:
        try:
            return await handler(request)
        except ApiError as exc:
            return JSONResponse({"error": exc.message, **exc.fields}, status_code=exc.status)
        except UserError as exc:
            return JSONResponse({"error": str(exc)}, status_code=404)
        except AppError as exc:
            return JSONResponse({"error": str(exc)}, status_code=422)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # the border of the API: logged, told as 500, retried by the worker
            LOG.exception("%s %s", request.method, request.url.path)
            return JSONResponse({"error": "internal error; see the log"}, status_code=500)

    return wrapped


async def read_json(request: Request, limit_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the body as a JSON object; ApiError 413 past the limit, 400 when it is none."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise ApiError(413, f"the body is larger than {limit_bytes} bytes")
        chunks.append(chunk)
    try:
        value = json.loads(b"".join(chunks) or b"{}")
    except (ValueError, RecursionError) as exc:
        raise ApiError(400, f"the body is no JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ApiError(400, "the body is no JSON object")
    return value


def field_of(body: dict[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """Return a field of a body with its type checked; ApiError 400 names the field."""
    value = body.get(name, default)
    if value is ...:
        raise ApiError(400, f"{name} is missing")
    if value is not default and not isinstance(value, kind):
        raise ApiError(400, f"{name} is no {kind.__name__}")
    return value
