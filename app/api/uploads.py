"""Captures on their way in: streamed to disk at an offset, taken when the hash is right."""

import fcntl
import hashlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import IO

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from app.api.auth import check_token
from app.api.errors import ApiError, read_chunks, route
from app.api.state import in_thread, state_of
from captures.manifest import is_plain_name
from core.config import DataDir
from core.errors import UserError
from db import Database
from db.handover import AWAITING, run_exists, run_status
from db.status import has_capture
from db.tokens import check_run

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_RUN_ID = re.compile(r"[a-z0-9]{4,40}\Z")
DEFAULT_MAX_CAPTURE_BYTES = 8 * 2**30
RECHECK_S = 5.0
"How often an upload that goes on is asked whether its token still holds."
KEEP_FREE_BYTES = 256 * 2**20
"Room that is left on the disk for the database, whatever is uploaded."


def max_capture_bytes() -> int:
    """Return the largest capture that is taken: WARPBOARD_MAX_CAPTURE_BYTES, else 8 GiB."""
    given = os.environ.get("WARPBOARD_MAX_CAPTURE_BYTES", "").strip()
    if not given:
        return DEFAULT_MAX_CAPTURE_BYTES
    if not (given.isascii() and given.isdigit() and 0 < len(given) < 19 and int(given)):
        raise UserError(f"WARPBOARD_MAX_CAPTURE_BYTES={given!r}: must be a whole number above 0")
    return int(given)


def check_run_id(run_id: str) -> str:
    """Return an id that is safe as a folder name; ApiError 400 otherwise."""
    if not _RUN_ID.match(run_id):
        raise ApiError(400, "the run id has the wrong form")
    return run_id


def upload_path(data_dir: DataDir, run_id: str, sha256: str) -> Path:
    """Return where a complete upload lies; `.part` is added while it is not."""
    if not _SHA256.match(sha256):
        raise ApiError(400, "the capture's name is not a SHA-256 in hex")
    return data_dir.uploads / check_run_id(run_id) / sha256


@route
async def head(request: Request) -> Response:
    """Say whether a capture is here, and if not, how much of it is."""
    label = await check_token(request)
    run_id, sha256 = request.path_params["run_id"], request.path_params["sha256"]
    path = upload_path(state_of(request).data_dir, run_id, sha256)
    await in_thread(request, check_run, label, run_id)
    if path.exists() or await in_thread(request, has_capture, run_id, sha256):
        return Response(status_code=200)
    return Response(status_code=404, headers={"Upload-Offset": str(_size(_partial(path)))})


@route
async def put(request: Request) -> Response:
    """Append a streamed body at `offset`."""
    label = await check_token(request)
    run_id, sha256 = request.path_params["run_id"], request.path_params["sha256"]
    path = upload_path(state_of(request).data_dir, run_id, sha256)
    if not is_plain_name(request.query_params.get("file", "")):
        raise ApiError(400, "file is not a plain file name")
    if not await in_thread(request, run_exists, run_id):
        raise ApiError(404, f"run {run_id} does not exist")
    await in_thread(request, _check_awaited, label, run_id)
    if path.exists():
        return JSONResponse({"complete": True}, status_code=201)
    offset = _offset(request)
    path.parent.mkdir(parents=True, exist_ok=True)
    return await _append(request, path, offset)


def _check_awaited(db: Database, label: str, run_id: str) -> None:
    """Refuse captures of another token's run, and of one that takes no bundle (any more)."""
    check_run(db, label, run_id)
    status = run_status(db, run_id)
    if status not in AWAITING:
        raise ApiError(410, f"run {run_id} is {status}: it takes no capture")


def _offset(request: Request) -> int:
    text = request.query_params.get("offset", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ApiError(400, "offset is not a whole number")
    return int(text)


async def _append(request: Request, path: Path, offset: int) -> Response:
    """Write the body, and take the capture if it is whole; what arrived before a break stays."""
    partial = _partial(path)
    limit = max_capture_bytes()
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and offset + int(announced) > limit:
        raise ApiError(413, f"captures are limited to {limit} bytes")
    with open(partial, "ab") as file:
        _lock(file, partial)
        have = file.tell()
        if have != offset:
            raise ApiError(409, f"the next byte is at offset {have}", expected=have)
        checked_s = time.monotonic()
        try:
            async for chunk in read_chunks(request):
                if time.monotonic() - checked_s > RECHECK_S:
                    await check_token(request)  # it may have been revoked meanwhile
                    checked_s = time.monotonic()
                have += len(chunk)
                if have > limit:
                    raise ApiError(413, f"captures are limited to {limit} bytes")
                _check_room(partial, len(chunk))
                await anyio.to_thread.run_sync(file.write, chunk)
        except (ClientDisconnect, ApiError):
            file.flush()
            raise
        file.flush()
        os.fsync(file.fileno())
        return await anyio.to_thread.run_sync(_completed, path, have, offset)


def _lock(file: IO[bytes], partial: Path) -> None:
    """Keep other uploads of this capture out until `file` is closed."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise ApiError(409, "another upload of this capture is going on") from exc
    try:
        is_here = os.path.samestat(os.stat(partial), os.fstat(file.fileno()))
    except FileNotFoundError:
        is_here = False
    if not is_here:
        raise ApiError(409, "another upload of this capture has just ended")


def _check_room(path: Path, num_bytes: int) -> None:
    if shutil.disk_usage(path.parent).free < KEEP_FREE_BYTES + num_bytes:
        raise ApiError(503, "the dashboard's disk is full")


def _completed(path: Path, size: int, offset: int) -> Response:
    partial = _partial(path)
    with partial.open("rb") as file:
        sha256_here = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256_here == path.name:
        os.replace(partial, path)
        return JSONResponse({"complete": True}, status_code=201)
    if size == offset:  # nothing came and it is still wrong: it cannot be mended by going on
        partial.unlink()
        raise ApiError(409, "what is here does not have this hash; begin at offset 0", expected=0)
    return JSONResponse({"complete": False}, status_code=202, headers={"Upload-Offset": str(size)})


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
