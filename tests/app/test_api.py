"""The HTTP API on a real server: tokens, claims, resumed uploads, limits, nothing outside."""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from sqlite_utils import Database

from app.api import auth, uploads
from app.api.app import make_api
from app.api.watch import give_up_silent
from app.ingest import ingest
from core.config import DataDir
from db.fetch import events, run_row, run_view
from db.handover import runs_to_ingest
from db.queue import move_up, request_cancel, retry
from db.workers import add_token
from tests.conftest import H100

TRACE = H100 / "kineto" / "train_bf16.json.gz"
TRACE_SHA256 = hashlib.sha256(TRACE.read_bytes()).hexdigest()
MakeRun = Callable[..., str]


@pytest.fixture
def api(data_dir: DataDir) -> Iterator[httpx.Client]:
    """Serve the API of `data_dir` and return a client with this host's token."""
    auth._failures.clear()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(make_api(data_dir), log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1"
        token = data_dir.token_path.read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
            yield client
        server.should_exit = True
        thread.join()


def register(api: httpx.Client, worker_id: str = "w1") -> None:
    body = {"worker_id": worker_id, "version": "0.1.0", "queues": ["cpu"], "tools": {}}
    assert api.post("/workers", json=body | {"gpus": [{"model": "cpu"}]}).status_code == 200


def claim(api: httpx.Client, run_id: str, **more: Any) -> httpx.Response:
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


def upload_path(run_id: str) -> str:
    return f"/runs/{run_id}/captures/{TRACE_SHA256}"


def test_health_needs_no_token_and_runs_do(api: httpx.Client) -> None:
    api.headers["Authorization"] = "Bearer wrong"

    assert api.get("/health").json()["status"] == "ok"
    assert api.get("/runs").status_code == 401


def test_token_file_is_for_its_owner_only(api: httpx.Client, data_dir: DataDir) -> None:
    assert data_dir.token_path.stat().st_mode & 0o777 == 0o600


def test_many_wrong_tokens_are_slowed_down_even_with_the_right_one(api: httpx.Client) -> None:
    right = api.headers["Authorization"]
    api.headers["Authorization"] = "Bearer wrong"
    codes = [api.get("/runs").status_code for _ in range(auth.MAX_FAILURES + 1)]
    api.headers["Authorization"] = right

    assert set(codes[:-1]) == {401}
    assert codes[-1] == 429
    assert api.get("/runs").status_code == 429


def test_each_worker_can_have_its_own_token(api: httpx.Client, db: Database) -> None:
    add_token(db, "of-host-b", "host-b")
    api.headers["Authorization"] = "Bearer of-host-b"

    register(api)

    info = json.loads(db.execute("SELECT info FROM workers").fetchone()[0])
    assert (info["token"], info["is_embedded"]) == ("host-b", False)


def test_claim_is_answered_once(api: httpx.Client, make_run: MakeRun) -> None:
    run_id = make_run(compile="none")
    register(api)

    answer = claim(api, run_id).json()

    assert answer["run_id"] == run_id
    assert (answer["attempt"], answer["spec"]["params"]) == (1, {"compile": "none"})
    assert claim(api, run_id).status_code == 409


def test_message_of_one_run_starts_the_run_that_is_first_in_line(
    api: httpx.Client, db: Database, make_run: MakeRun
) -> None:
    first, second = make_run("first"), make_run("second")
    move_up(db, second)

    assert claim(api, first, any_run=True).json()["run_id"] == second
    assert claim(api, second, any_run=True).json()["run_id"] == first


def test_events_move_the_run_on_and_tell_of_a_cancel(
    api: httpx.Client, db: Database, make_run: MakeRun
) -> None:
    run_id = make_run()
    claim(api, run_id)
    body = {"attempt": 1, "events": [{"kind": "log", "message": "<b>hi</b>"}]}
    body["progress"] = {"pass": "clean", "done": 1, "total": 5}

    assert api.post(f"/runs/{run_id}/events", json=body).json() == {"cancel": False}
    request_cancel(db, run_id)
    assert api.post(f"/runs/{run_id}/events", json=body).json() == {"cancel": True}

    row = run_row(db, run_id)
    assert (row.status, row.progress["done"]) == ("running", 1)
    assert "<b>hi</b>" in events(db, run_id)["message"].tolist()


def test_events_of_another_attempt_are_told_to_stop(api: httpx.Client, make_run: MakeRun) -> None:
    run_id = make_run()
    claim(api, run_id)

    answer = api.post(f"/runs/{run_id}/events", json={"attempt": 7, "events": []})

    assert answer.json() == {"cancel": True}


def test_upload_goes_on_where_it_broke_off(api: httpx.Client, make_run: MakeRun) -> None:
    run_id, data = make_run(), TRACE.read_bytes()
    where = upload_path(run_id)

    assert api.head(where).headers["upload-offset"] == "0"
    part = api.put(where, params={"file": "t.gz", "offset": 0}, content=data[:1000])
    wrong = api.put(where, params={"file": "t.gz", "offset": 5}, content=data[5:])
    rest = api.put(where, params={"file": "t.gz", "offset": 1000}, content=data[1000:])

    assert (part.status_code, wrong.status_code, rest.status_code) == (202, 409, 201)
    assert wrong.json()["expected"] == 1000
    assert api.head(where).status_code == 200


def test_upload_with_wrong_contents_begins_again(api: httpx.Client, make_run: MakeRun) -> None:
    run_id = make_run()
    where = upload_path(run_id)
    api.put(where, params={"file": "t.gz", "offset": 0}, content=b"wrong")

    again = api.put(where, params={"file": "t.gz", "offset": 5}, content=b"")

    assert again.status_code == 409
    assert api.head(where).headers["upload-offset"] == "0"


def test_upload_over_the_limit_is_refused(
    api: httpx.Client, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_MAX_CAPTURE_BYTES", "1000")

    answer = api.put(
        upload_path(make_run()), params={"file": "t.gz", "offset": 0}, content=TRACE.read_bytes()
    )

    assert answer.status_code == 413
    assert "1000" in answer.json()["error"]


@pytest.mark.parametrize(
    ("run_id", "sha256", "name"),
    [
        ("..", TRACE_SHA256, "t.gz"),
        ("%2e%2e%2fetc", TRACE_SHA256, "t.gz"),
        (None, "passwd", "t.gz"),
        (None, TRACE_SHA256, "../t.gz"),
        (None, TRACE_SHA256, "/etc/passwd"),
        (None, TRACE_SHA256, ""),
        ("r000000000000", TRACE_SHA256, "t.gz"),
    ],
)
def test_no_upload_leaves_the_data_directory(
    api: httpx.Client,
    data_dir: DataDir,
    make_run: MakeRun,
    run_id: str | None,
    sha256: str,
    name: str,
) -> None:
    where = f"/runs/{run_id or make_run()}/captures/{sha256}"

    answer = api.put(where, params={"file": name, "offset": 0}, content=b"x")

    assert answer.status_code in (400, 404)
    assert list(data_dir.uploads.rglob("*")) == []


def test_finish_waits_for_every_capture_and_is_idempotent(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = make_run()
    claim(api, run_id)
    body = manifest([trace_capture()])

    early = api.post(f"/runs/{run_id}/finish", json=body)
    api.put(upload_path(run_id), params={"file": "t", "offset": 0}, content=TRACE.read_bytes())
    late = [api.post(f"/runs/{run_id}/finish", json=body).json() for _ in range(2)]

    assert (early.status_code, early.json()["missing"]) == (409, [TRACE_SHA256])
    assert late == [{"status": "ingesting"}] * 2
    assert runs_to_ingest(db) == [run_id]


def test_handed_in_run_is_read_and_its_captures_stay_known(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = make_run()
    claim(api, run_id)
    api.put(upload_path(run_id), params={"file": "t", "offset": 0}, content=TRACE.read_bytes())
    api.post(f"/runs/{run_id}/finish", json=manifest([trace_capture()]))

    ingest(data_dir, run_id)
    ingest(data_dir, run_id)

    view = run_view(db, data_dir, run_id)
    assert (view.run.status, view.summary["num_kernels"]) == ("done", 1582)
    assert view.summary["latency_ms"]["n"] == 3
    assert api.head(upload_path(run_id)).status_code == 200
    assert api.get(f"/runs/{run_id}").json()["summary"]["num_kernels"] == 1582
    assert not (data_dir.uploads / run_id).exists()


def test_stored_captures_of_a_run_are_a_bundle_again(
    api: httpx.Client, data_dir: DataDir, make_run: MakeRun, tmp_path: Path
) -> None:
    from analysis.bundle import load_bundle
    from analysis.capture_file import Staging

    run_id = make_run()
    claim(api, run_id)
    api.put(upload_path(run_id), params={"file": "t", "offset": 0}, content=TRACE.read_bytes())
    api.post(f"/runs/{run_id}/finish", json=manifest([trace_capture()]))
    ingest(data_dir, run_id)

    data = load_bundle(data_dir.captures / run_id, Staging(folder=tmp_path))

    assert [c.file_name for c in data.captures] == ["trace-0.json.gz"]


def test_bundle_that_ends_the_reader_again_and_again_fails(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun, monkeypatch: Any
) -> None:
    run_id = make_run()
    claim(api, run_id)
    api.post(f"/runs/{run_id}/finish", json=manifest([]))
    monkeypatch.setattr("app.ingest._ingest", _killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            ingest(data_dir, run_id)

    ingest(data_dir, run_id)

    assert run_row(db, run_id).status == "failed"
    assert "3 times" in (run_row(db, run_id).error or "")


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{", 400), (b"[]", 400), (b"[" * 100_000, 400), (b"{}", 422), (b" " * 2**20 * 65, 413)],
)
def test_wrong_body_is_refused_in_words(
    api: httpx.Client, make_run: MakeRun, content: bytes, code: int
) -> None:
    answer = api.post(f"/runs/{make_run()}/finish", content=content)

    assert answer.status_code == code
    assert answer.json()["error"]


def test_silent_worker_loses_its_run_and_a_live_one_does_not(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    from app.api.app import make_state

    run_id = make_run()
    register(api)
    claim(api, run_id)
    state = make_state(data_dir)

    assert give_up_silent(state) == []
    state.seen_s["w1"] = time.monotonic() - 3600
    assert give_up_silent(state) == [run_id]
    assert run_row(db, run_id).status == "interrupted"


def test_claim_whose_answer_was_lost_can_be_asked_for_again(
    api: httpx.Client, make_run: MakeRun
) -> None:
    run_id = make_run()
    make_run()
    register(api)
    answers = [claim(api, run_id, any_run=True, try_id="t.1").json() for _ in range(2)]
    other = claim(api, run_id, any_run=True, try_id="t.2").json()
    assert answers[0] == answers[1]
    assert (answers[0]["run_id"], answers[0]["attempt"]) == (run_id, 1)
    assert other["run_id"] != run_id


def interrupted_run(api: httpx.Client, data_dir: DataDir, make_run: MakeRun) -> str:
    from app.api.app import make_state

    run_id = make_run()
    register(api)
    claim(api, run_id)
    state = make_state(data_dir)
    give_up_silent(state)
    state.seen_s["w1"] = time.monotonic() - 3600
    assert give_up_silent(state) == [run_id]
    return run_id


def test_worker_that_comes_back_finishes_and_delivers_what_was_given_up(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = interrupted_run(api, data_dir, make_run)
    beat = api.post("/workers/w1/heartbeat", json={"running": [run_id]})
    line = {"kind": "log", "message": "going on"}
    told = api.post(f"/runs/{run_id}/events", json={"attempt": 1, "events": [line]})
    handed_in = api.post(f"/runs/{run_id}/finish", json=manifest([]))
    assert (beat.json()["cancel"], told.json()["cancel"]) == ([], False)
    assert "going on" in events(db, run_id)["message"].tolist()
    assert handed_in.json() == {"status": "ingesting"}


def test_late_bundle_of_a_run_that_was_tried_again_is_refused(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = interrupted_run(api, data_dir, make_run)
    retry(db, run_id)
    beat = api.post("/workers/w1/heartbeat", json={"running": [run_id]})
    told = api.post(f"/runs/{run_id}/events", json={"attempt": 1, "events": []})
    queued = api.post(f"/runs/{run_id}/finish", json=manifest([]))
    claim(api, run_id, worker_id="w2", task_id="u")
    assert api.post(f"/runs/{run_id}/finish", json=manifest([], attempt=2)).status_code == 200
    late = api.post(f"/runs/{run_id}/finish", json=manifest([], error="of attempt 1"))
    kept = json.loads((data_dir.uploads / run_id / "manifest.json").read_text())
    assert (beat.json()["cancel"], told.json()["cancel"]) == ([run_id], True)
    assert (queued.status_code, late.status_code) == (409, 409)
    assert "attempt 1 was given up for 2" in late.json()["error"]
    assert kept["attempt"] == 2


def test_every_route_is_described(api: httpx.Client) -> None:
    from app.api.app import Box, routes

    root = str(api.base_url).removesuffix("/api/v1/")
    described = httpx.get(f"{root}/api/openapi.json", trust_env=False).json()["paths"]
    served = {r.path for r in routes(Box()) if r.path.startswith("/api/v1")}

    assert set(described) == served
    assert "Bearer" in httpx.get(f"{root}/api/docs", trust_env=False).text


def test_largest_capture_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert uploads.max_capture_bytes() == uploads.DEFAULT_MAX_CAPTURE_BYTES
    monkeypatch.setenv("WARPBOARD_MAX_CAPTURE_BYTES", "7")
    assert uploads.max_capture_bytes() == 7
