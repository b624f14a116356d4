"""Failures as JSON answers, and bodies that are not read past a limit."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from core.errors import AppError, UserError
from core.foreign import bounded_json
from db.tokens import NotYours

LOG = logging.getLogger("warpboard.api")
MAX_JSON_BYTES = 4 * 2**20
MAX_JSON_S = 120.0
IDLE_S = 30.0
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
        except NotYours as exc:
            return JSONResponse({"error": str(exc)}, status_code=403)
        except UserError as exc:
            return JSONResponse({"error": str(exc)}, status_code=400)
        except AppError as exc:
            return JSONResponse({"error": str(exc)}, status_code=422)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # top-level handler: logged, answered as 500, retried by the worker
            LOG.exception("%s %s", request.method, request.url.path)
            return JSONResponse({"error": "internal error; see the log"}, status_code=500)

    return wrapped


async def read_chunks(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes; ApiError 415 for an encoded one, 408 when it stops coming.

    A peer that vanishes without closing would otherwise hold its locks for ever.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise ApiError(415, f"content-encoding {encoding!r} is not taken; send the body as it is")
    stream = aiter(request.stream())
    while True:
        try:
            with anyio.fail_after(IDLE_S):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError as exc:
            raise ApiError(408, f"nothing of the body came for {IDLE_S:.0f} s") from exc
        yield chunk


async def read_json(request: Request, limit_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the body as a JSON object; ApiError 413 past the limit, 400 for anything else."""
    too_large = ApiError(413, f"the body is larger than {limit_bytes} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 15 or int(announced) > limit_bytes):
        raise too_large
    chunks: list[bytes] = []
    size = 0
    begin_s = time.monotonic()
    async for chunk in read_chunks(request):
        size += len(chunk)
        if time.monotonic() - begin_s > MAX_JSON_S:
            raise ApiError(408, f"the body took longer than {MAX_JSON_S:.0f} s")
        if size > limit_bytes:
            raise too_large
        chunks.append(chunk)
    try:
        # A thread: what is as large as a manifest may be takes tenths of a second.
        value = await anyio.to_thread.run_sync(bounded_json, b"".join(chunks) or b"{}")
    except ValueError as exc:
        raise ApiError(400, f"the body is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object")
    return value


def field_of(body: dict[str, Any], name: str, kind: type, default: Any = ...) -> Any:
    """Return a field of a body with its type checked; ApiError 400 names the field."""
    value = body.get(name, default)
    if value is ...:
        raise ApiError(400, f"{name} is missing")
    is_kind = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if value is not default and not is_kind:
        raise ApiError(400, f"{name} is no {kind.__name__}")
    return value
