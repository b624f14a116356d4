"""Handing a bundle in: complete, once, for the present attempt; then it is read."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlite_utils import Database

from app.api.app import make_state
from app.api.watch import give_up_silent
from app.ingest import ingest
from core.config import DataDir
from db.fetch import run_row, run_view
from db.handover import runs_to_ingest
from db.queue import retry
from db.status import events
from tests.app.api_steps import (
    TRACE,
    TRACE_SHA256,
    MakeRun,
    claim,
    manifest,
    register,
    trace_capture,
    upload_path,
)


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
    assert (view.run.status, view.summary["num_kernels"]) == ("done", 79)
    assert view.summary["latency_ms"]["n"] == 3
    assert api.head(upload_path(run_id)).status_code == 200
    assert api.get(f"/runs/{run_id}").json()["summary"]["num_kernels"] == 79
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


def interrupted_run(api: httpx.Client, data_dir: DataDir, make_run: MakeRun) -> str:
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
    register(api, "w2")
    claim(api, run_id, worker_id="w2", task_id="u")
    assert api.post(f"/runs/{run_id}/finish", json=manifest([], attempt=2)).status_code == 200
    late = api.post(f"/runs/{run_id}/finish", json=manifest([], error="of attempt 1"))
    kept = json.loads((data_dir.uploads / run_id / "manifest.json").read_text())
    assert (beat.json()["cancel"], told.json()["cancel"]) == ([run_id], True)
    assert (queued.status_code, late.status_code) == (409, 409)
    assert "attempt 1 was given up for 2" in late.json()["error"]
    assert kept["attempt"] == 2


def test_run_measured_elsewhere_is_added_filled_and_read(
    api: httpx.Client, db: Database, data_dir: DataDir
) -> None:
    body = manifest([trace_capture()])

    made = api.post("/runs", json={"job": body["job"], "name": "my script"})
    run_id, attempt = made.json()["run_id"], made.json()["attempt"]
    waiting = run_row(db, run_id)
    api.put(upload_path(run_id), params={"file": "t", "offset": 0}, content=TRACE.read_bytes())
    done = api.post(f"/runs/{run_id}/finish", json=body | {"attempt": attempt})
    ingest(data_dir, run_id)

    assert (made.status_code, done.status_code) == (201, 200)
    assert (waiting.status, waiting.name) == ("interrupted", "my script")
    assert "have not arrived" in str(waiting.error)
    row = run_row(db, run_id)
    assert (row.status, row.source, row.error) == ("done", "profiled", None)


def test_run_measured_elsewhere_takes_files_of_its_own_token_alone(
    api: httpx.Client, db: Database
) -> None:
    from db.tokens import NotYours, check_run

    run_id = api.post("/runs", json={"job": manifest([])["job"]}).json()["run_id"]

    with pytest.raises(NotYours):
        check_run(db, "another host", run_id)


def test_job_that_is_none_is_refused(api: httpx.Client) -> None:
    answers = [api.post("/runs", json={"job": job}) for job in ({}, {"schema_version": 99})]

    assert [a.status_code for a in answers] == [422, 422]
