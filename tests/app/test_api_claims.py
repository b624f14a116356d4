"""Claims and events on a real server: one start for each attempt, whatever is lost."""

import random
import time
from typing import Any

import httpx
import pytest
from sqlite_utils import Database

from app.api import runs
from app.api.app import make_state
from app.api.state import ApiState
from app.api.watch import give_up_silent
from core.config import DataDir
from core.queues import device_queue, model_queue
from core.spec import JobSpec
from db.fetch import run_row
from db.queue import move_up, request_cancel
from db.runs import insert_run
from db.status import events
from db.workers import register_worker
from tests.app.api_steps import (
    MakeRun,
    claim,
    register,
)


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


def test_silent_worker_loses_its_run_and_a_live_one_does_not(
    api: httpx.Client, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = make_run()
    register(api)
    claim(api, run_id)
    state = make_state(data_dir)

    assert give_up_silent(state) == []
    state.seen_s["w1"] = time.monotonic() - 3600
    assert give_up_silent(state) == [run_id]
    assert run_row(db, run_id).status == "interrupted"


GPUS = ("GPU-aaaa-1", "GPU-bbbb-2")
MODEL = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def told(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Register a host with two GPUs of a model; return what the API sends to the broker."""
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr("app.submit.Sender._send", lambda _, *what: sent.append(what[1:]))
    gpus = [{"model": MODEL, "uuid": uuid, "ordinal": i} for i, uuid in enumerate(GPUS)]
    queues = [model_queue(MODEL), *(device_queue(MODEL, uuid) for uuid in GPUS)]
    body = {"worker_id": "w1", "version": "0.1.0", "queues": queues, "host_label": "node1"}
    assert api.post("/workers", json=body | {"gpus": gpus}).status_code == 200
    return sent


def claim_on(api: httpx.Client, run_id: str, uuid: str) -> str | None:
    gpu = {"model": MODEL, "uuid": uuid}
    return claim(api, run_id, gpu=gpu, any_run=True).json().get("run_id")


def test_message_that_a_run_of_another_queue_used_up_is_sent_again(
    api: httpx.Client, db: Database, told: list[tuple[Any, ...]]
) -> None:
    bound, free = (
        insert_run(db, spec=JobSpec(workload="decode", gpu=MODEL, device=device), name="a run")
        for device in (GPUS[1], None)
    )
    move_up(db, free)

    assert claim_on(api, bound, GPUS[1]) == free
    assert told == [(bound, device_queue(MODEL, GPUS[1]))]
    assert claim_on(api, bound, GPUS[0]) is None
    assert claim_on(api, free, GPUS[1]) == bound


def test_order_inside_one_queue_sends_nothing_again(
    api: httpx.Client, make_run: MakeRun, told: list[tuple[Any, ...]]
) -> None:
    first, second = make_run("first", gpu=MODEL), make_run("second", gpu=MODEL)

    assert claim_on(api, second, GPUS[0]) == first
    assert told == []


@pytest.mark.parametrize("seed", range(3))
def test_every_run_starts_on_its_gpu_whatever_the_order_of_messages(
    db: Database, data_dir: DataDir, seed: int
) -> None:
    """Messages of three queues, two GPUs, runs that are moved up: none waits for ever."""
    rng = random.Random(seed)
    queues: dict[str | None, list[str]] = {None: [], GPUS[0]: [], GPUS[1]: []}
    for number in range(24):
        device = rng.choice([None, *GPUS])
        spec = JobSpec(workload="decode", params={"n": number}, gpu=MODEL, device=device)
        queues[device].append(insert_run(db, spec=spec, name=str(number)))
    gpus = [{"model": MODEL, "uuid": uuid} for uuid in GPUS]
    register_worker(db, "w1", version="1", queues=(), gpus=gpus, info={})
    wanted = {run_id: device for device, runs in queues.items() for run_id in runs}
    state = ApiState(
        data_dir=data_dir,
        send_job=lambda run_id, _, device=None: queues[device].append(run_id),
        send_ingest=lambda _: None,
    )
    started: dict[str, str] = {}
    while any(queues.values()):
        uuid = rng.choice(GPUS)
        if waiting := [q for q in (None, uuid) if queues[q]]:
            message = queues[rng.choice(waiting)].pop(0)
            gpu = {"model": MODEL, "uuid": uuid}
            found = runs._claim(db, state, message, "w1", gpu, None, True)
            if found is not None:
                assert started.setdefault(found.run_id, uuid) == uuid
        if left := [r for r in wanted if r not in started]:
            move_up(db, rng.choice(left))
    assert started.keys() == wanted.keys()
    assert all(device in (None, started[run_id]) for run_id, device in wanted.items())
