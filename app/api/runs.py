"""Routes of runs: what a worker does with one, and runs as JSON."""

import json
import logging
from datetime import datetime
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api.auth import check_token
from app.api.errors import ApiError, field_of, read_json, route
from app.api.state import ApiState, in_thread, state_of
from app.api.uploads import check_run_id, upload_path
from app.imports import checked_name, run_name
from captures.manifest import MANIFEST, MAX_MANIFEST_BYTES, check_manifest
from core.errors import AppError, CaptureError, UserError
from core.foreign import checked_gpu, checked_json
from core.ids import new_id
from core.spec import JobSpec
from db import Database, handover
from db import queue as db_queue
from db.runs import count_runs, expect_run, list_rows, resolve_run
from db.status import has_capture
from db.tokens import NotYours, check_reading, check_run, check_worker
from db.workers import gpu_id, gpu_model_of

LOG = logging.getLogger("warpboard.api")
KINDS = ("progress", "log", "state")
MAX_EVENTS = 2000
MAX_LISTED = 1000


@route
async def claim(request: Request) -> Response:
    """Give a worker the run that is first in line for the queue its message came from."""
    label = await check_token(request)
    run_id = check_run_id(request.path_params["run_id"])
    body = await read_json(request)
    worker_id = field_of(body, "worker_id", str)
    gpu = checked_gpu(field_of(body, "gpu", dict, None))
    task_id = field_of(body, "task_id", str, None)
    try_id = field_of(body, "try_id", str, None)
    state = state_of(request)
    await in_thread(request, _check_claim, label, worker_id, gpu)
    claimed = await in_thread(request, _claimed_before, worker_id, try_id) or await in_thread(
        request, _claim, state, run_id, worker_id, gpu, try_id or task_id, body.get("any_run")
    )
    if claimed is None:
        raise ApiError(409, f"run {run_id} is not queued")
    return JSONResponse(
        {"run_id": claimed.run_id, "spec": claimed.spec, "attempt": claimed.attempt}
    )


def _claimed_before(db: Database, worker_id: str, try_id: str | None) -> db_queue.Claim | None:
    return db_queue.claimed_before(db, worker_id, try_id) if try_id else None


def _check_claim(db: Database, label: str, worker_id: str, gpu: dict[str, Any]) -> None:
    """Refuse a worker of another token, and a GPU that the worker did not register."""
    try:
        check_worker(db, label, worker_id)
    except NotYours:
        raise
    except UserError as exc:  # it registers again with its next heartbeat
        raise ApiError(409, str(exc)) from exc
    if gpu_model_of(db, worker_id, gpu_id(worker_id, gpu, 0)) is None:
        raise NotYours(f"worker {worker_id!r} has registered no such GPU")


def _claim(
    db: Database,
    state: ApiState,
    run_id: str,
    worker_id: str,
    gpu: dict[str, Any],
    task_id: str | None,
    any_run: Any,
) -> db_queue.Claim | None:
    key = gpu_id(worker_id, gpu, 0)
    model = gpu_model_of(db, worker_id, key) or ""
    num_gpus = db_queue.gpus_of_worker(db, worker_id, model)
    first = db_queue.front_of_queue(db, run_id, key, num_gpus) if any_run is True else None
    wanted = first or run_id
    place = db_queue.waiting_place(db, wanted)
    if place is None or place[0] != model:
        return None
    claimed = db_queue.claim_run(
        db, wanted, worker_id=worker_id, gpu_id=key, task_id=task_id, num_gpus=num_gpus
    )
    if claimed is not None and wanted != run_id:
        _tell_again(db, state, run_id, place)
    return claimed


def _tell_again(db: Database, state: ApiState, run_id: str, taken: Any) -> None:
    """Send the message of a run again that a run from another queue used up."""
    place = db_queue.waiting_place(db, run_id)
    if place is None or place == taken:
        return
    try:
        state.send_job(run_id, *place)
    except AppError as exc:  # a heartbeat finds the run that waits
        LOG.warning("%s", exc)


@route
async def events(request: Request) -> Response:
    """Take progress and log lines of a run at work; say whether to stop."""
    label = await check_token(request)
    run_id = check_run_id(request.path_params["run_id"])
    body = await read_json(request)
    attempt = field_of(body, "attempt", int)
    lines = field_of(body, "events", list, [])
    if len(lines) > MAX_EVENTS:
        raise ApiError(413, f"more than {MAX_EVENTS} events at once")
    progress = checked_json(field_of(body, "progress", dict, None) or {}, "progress", 1)
    cancel = await in_thread(request, _events, label, run_id, attempt, lines, progress)
    return JSONResponse({"cancel": cancel})


def _events(
    db: Database,
    label: str,
    run_id: str,
    attempt: int,
    lines: list[Any],
    progress: dict[str, Any],
) -> bool:
    check_run(db, label, run_id)
    rows = []
    for line in lines:
        if not isinstance(line, dict) or line.get("kind") not in KINDS:
            raise ApiError(400, f"events: each has a kind of {', '.join(KINDS)}")
        message = str(line.get("message", "")).encode(errors="replace").decode()
        rows.append((_time_of(line.get("at")), line["kind"], message))
    return handover.take_events(db, run_id, attempt, progress, rows)


def _time_of(text: Any) -> str | None:
    """Return a time as it was sent; None for an invalid one, which callers replace by now."""
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return str(text)


@route
async def finish(request: Request) -> Response:
    """Take the manifest once every capture it names is here; then the run is read."""
    label = await check_token(request)
    run_id = check_run_id(request.path_params["run_id"])
    body = await read_json(request, MAX_MANIFEST_BYTES)
    try:
        manifest = await anyio.to_thread.run_sync(check_manifest, body)
    except CaptureError as exc:
        raise ApiError(422, str(exc)) from exc
    status = await in_thread(request, _finish, state_of(request), label, run_id, manifest)
    return JSONResponse({"status": status})


def _finish(
    db: Database, state: ApiState, label: str, run_id: str, manifest: dict[str, Any]
) -> str:
    claimed = field_of(manifest, "worker_id", str, None), (manifest.get("gpu") or {}).get("uuid")
    check_run(db, label, run_id, worker_id=claimed[0], gpu_uuid=claimed[1])
    hashes = [c["sha256"] for p in manifest["passes"] for c in p["captures"]]
    paths = {sha: upload_path(state.data_dir, run_id, sha) for sha in hashes}
    missing = [
        sha for sha, p in paths.items() if not p.exists() and not has_capture(db, run_id, sha)
    ]
    if not handover.run_exists(db, run_id):
        raise ApiError(404, f"run {run_id} does not exist")
    attempt = field_of(manifest, "attempt", int)
    status = _awaited(db, run_id, attempt)
    if status not in handover.AWAITING:
        return status
    if missing:
        raise ApiError(409, "captures are missing", missing=missing)
    folder = state.data_dir.uploads / run_id
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{new_id('m')}.new"
    try:
        partial.write_text(json.dumps(manifest))
        with db.atomic():  # of two that hand in at once, the manifest of one is read
            if _awaited(db, run_id, attempt) in handover.AWAITING:
                # It must be there before the state says so: ingest may start at once.
                partial.replace(folder / MANIFEST)
            status = handover.hand_in(db, run_id, attempt)
    except UserError as exc:
        raise ApiError(409, str(exc)) from exc
    finally:
        partial.unlink(missing_ok=True)
    if status == "ingesting":
        try:
            state.send_ingest(run_id)
        except AppError as exc:  # the bundle is here all the same: `watch` sends it later
            LOG.warning("run %s waits to be read: %s", run_id, exc)
    return status


def _awaited(db: Database, run_id: str, attempt: int) -> str:
    """Return the run's status; a late bundle must not write over that of a newer attempt."""
    try:
        return handover.awaited_status(db, run_id, attempt)
    except UserError as exc:
        LOG.warning("refused a late bundle: %s", exc)
        raise ApiError(409, str(exc)) from exc


@route
async def expected(request: Request) -> Response:
    """Add a run that was measured elsewhere; its captures and manifest follow."""
    label = await check_token(request)
    body = await read_json(request)
    try:
        spec = JobSpec.from_dict(checked_json(field_of(body, "job", dict), "job", 3))
        name = checked_name(field_of(body, "name", str, None))
    except (KeyError, TypeError, ValueError, UserError) as exc:
        raise ApiError(422, f"job cannot be read: {exc}") from exc
    name = name or run_name(spec.workload, spec.params)
    run_id, attempt = await in_thread(request, expect_run, spec, name, label)
    return JSONResponse({"run_id": run_id, "attempt": attempt}, status_code=201)


@route
async def listed(request: Request) -> Response:
    """Return runs that a filter matches."""
    await in_thread(request, check_reading, await check_token(request))
    query = request.query_params.get("filter", "")
    limit = _number(request, "limit", 100, MAX_LISTED)
    offset = _number(request, "offset", 0, 10**9)
    try:
        rows = await in_thread(request, list_rows, query, limit=limit, offset=offset)
        total = await in_thread(request, count_runs, query)
    except UserError as exc:
        raise ApiError(400, str(exc)) from exc
    return JSONResponse({"runs": rows, "total": total})


@route
async def shown(request: Request) -> Response:
    """Return one run: the document of `show --json`."""
    label = await check_token(request)
    data_dir = state_of(request).data_dir

    def work(db: Database) -> dict[str, Any]:
        from app.show import show_document  # with pandas, which no other answer needs
        from db.fetch import gpu_facts, run_view

        check_reading(db, label, request.path_params["run_id"])  # before names are looked up
        try:
            run_id = resolve_run(db, request.path_params["run_id"])
        except UserError as exc:
            raise ApiError(404, str(exc)) from exc
        return show_document(run_view(db, data_dir, run_id), gpu_facts(db, run_id))

    return JSONResponse(await in_thread(request, work))


def _number(request: Request, name: str, default: int, limit: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) > limit:
        raise ApiError(400, f"{name}: {text!r} is not a whole number up to {limit}")
    return int(text)
