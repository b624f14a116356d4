"""A token is one worker: with another's nothing of a stranger is read, changed or stopped."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlite_utils import Database

from app.api import auth, uploads
from app.api.app import PREFIX, _routes
from core.config import DataDir
from core.foreign import checked_gpu
from db.fetch import run_row
from db.tokens import EMBEDDED, add_token, revoke_token, tokens
from tests.app.api_steps import TRACE, MakeRun, claim, manifest, register, upload_path

MODEL = "NVIDIA H100 80GB HBM3"
GPU: dict[str, Any] = {
    "model": MODEL,
    "uuid": "GPU-of-w1",
    "noise_floor_frac": 0.02,
    "noise_floors": {"gpu_bound": 0.01, "launch_bound": 0.02},
    "peaks": {"copy_bytes_per_s": 3e12},
}


class Host:
    """A worker on another host, with a token of its own."""

    def __init__(self, api: httpx.Client, db: Database, label: str) -> None:
        add_token(db, f"token of {label}", label)
        self._api = api
        self._headers = {"Authorization": f"Bearer token of {label}"}

    def post(self, where: str, **body: Any) -> httpx.Response:
        return self._api.post(where, json=body, headers=self._headers)

    def get(self, where: str) -> int:
        return self._api.get(where, headers=self._headers).status_code

    def head(self, where: str) -> int:
        return self._api.head(where, headers=self._headers).status_code

    def put(self, where: str, data: bytes | Iterator[bytes]) -> httpx.Response:
        params: dict[str, Any] = {"file": "t.gz", "offset": 0}
        return self._api.put(where, params=params, content=data, headers=self._headers)

    def register(self, worker_id: str, *gpus: dict[str, Any], **more: Any) -> httpx.Response:
        body = {"worker_id": worker_id, "version": "0.1.0", "queues": ["q"], "gpus": list(gpus)}
        return self.post("/workers", **body, **more)


@pytest.fixture
def victim(api: httpx.Client, db: Database) -> Host:
    host = Host(api, db, "host-a")
    assert host.register("w1", GPU).status_code == 200
    return host


@pytest.fixture
def stranger(api: httpx.Client, db: Database, victim: Host) -> Host:
    host = Host(api, db, "host-b")
    assert host.register("w9", {"model": MODEL, "uuid": "GPU-of-w9"}).status_code == 200
    return host


def stored(db: Database) -> list[Any]:
    """Return everything that a worker's call can change, but for the time of its last use."""
    tables = ("runs", "gpus", "gpu_peaks", "events")
    rows = [tuple(r) for t in tables for r in db.execute(f"SELECT * FROM {t} ORDER BY 1")]
    return rows + [tuple(r) for r in db.execute("SELECT id, queues, info, stopped_at FROM workers")]


def test_first_worker_that_registers_is_the_only_one_of_its_token(
    victim: Host, db: Database
) -> None:
    assert victim.register("w2").status_code == 403
    assert victim.register("w1", GPU).status_code == 200
    assert [(row.label, row.worker_id) for row in tokens(db)] == [("host-a", "w1")]


@pytest.mark.parametrize("taken", ["a token", "a GPU"])
def test_of_workers_that_register_in_one_moment_one_wins_and_the_others_change_nothing(
    api: httpx.Client, db: Database, taken: str
) -> None:
    shared = Host(api, db, "host-a")
    hosts = [shared if taken == "a token" else Host(api, db, f"host-{n}") for n in range(12)]
    start = threading.Barrier(len(hosts))

    def register(number: int) -> int:
        own = {"model": MODEL, "uuid": f"GPU-of-{number}"}
        start.wait()
        return hosts[number].register(f"w{number}", own, *[GPU] * (taken == "a GPU")).status_code

    with ThreadPoolExecutor(len(hosts)) as pool:
        codes = list(pool.map(register, range(len(hosts))))

    assert sorted(codes) == [200] + [403] * 11
    winner = f"w{codes.index(200)}"
    assert db.execute("SELECT id FROM workers").fetchall() == [(winner,)]
    assert {row[0] for row in db.execute("SELECT worker_id FROM gpus")} == {winner}
    assert [row.worker_id for row in tokens(db) if row.worker_id] == [winner]


def test_of_many_claims_and_ends_in_one_moment_one_counts(
    victim: Host, db: Database, make_run: MakeRun
) -> None:
    run_id = make_run(gpu=MODEL)

    def all_at_once(where: str, body: dict[str, Any]) -> list[int]:
        start = threading.Barrier(8)

        def post(number: int) -> int:
            start.wait()
            told = {"task_id": f"t{number}"} if where.endswith("claim") else {}
            return victim.post(where, **body, **told).status_code

        with ThreadPoolExecutor(8) as pool:
            return sorted(pool.map(post, range(8)))

    claims = all_at_once(f"/runs/{run_id}/claim", {"worker_id": "w1", "gpu": GPU})
    told = {"environment": {"notes": ["x" * 1000] * 500}, "status": "failed"}
    ends = all_at_once(f"/runs/{run_id}/finish", manifest([], gpu=GPU, **told))

    assert claims == [200] + [409] * 7
    assert ends == [200] * 8  # a worker that hears no answer sends its end again
    row = run_row(db, run_id)
    assert row.attempt == 1
    steps = [r[0] for r in db.execute("SELECT message FROM events WHERE run_id = ?", [run_id])]
    assert steps.count("ingesting") == 1


def test_last_use_of_a_token_is_noted(victim: Host, db: Database) -> None:
    (row,) = tokens(db)

    assert row.last_used_at is not None
    assert row.last_used_at >= row.created_at


def test_workers_of_this_host_share_their_token(api: httpx.Client, db: Database) -> None:
    register(api, "w1")
    register(api, "w2")

    labels = db.execute("SELECT token_label FROM workers").fetchall()
    assert labels == [(EMBEDDED,)] * 2


@pytest.mark.parametrize("gpu", [GPU, {"model": "renamed", "uuid": "GPU-of-w1"}])
def test_nothing_of_a_strangers_worker_can_be_taken(
    stranger: Host, db: Database, make_run: MakeRun, gpu: dict[str, Any]
) -> None:
    run_id = make_run(gpu=MODEL)
    before = stored(db)

    refused = [
        stranger.register("w1", gpu),
        stranger.register("w9", gpu),
        stranger.post("/workers/w1/heartbeat", running=[]),
        stranger.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=gpu),
        stranger.post(f"/runs/{run_id}/claim", worker_id="w9", gpu=gpu),
    ]

    assert [answer.status_code for answer in refused] == [403] * 5
    assert stored(db) == before


def test_a_strangers_run_is_neither_told_of_nor_ended(
    victim: Host, stranger: Host, db: Database, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = make_run(gpu=MODEL)
    assert victim.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=GPU).status_code == 200
    before = stored(db)

    refused = [
        stranger.post(f"/runs/{run_id}/events", attempt=1, events=[{"kind": "log"}]),
        stranger.post(f"/runs/{run_id}/finish", **manifest([], attempt=1)),
        stranger.put(upload_path(run_id), TRACE.read_bytes()),
    ]

    assert [answer.status_code for answer in refused] == [403] * 3
    assert stored(db) == before
    assert run_row(db, run_id).status == "claimed"
    assert list(data_dir.uploads.iterdir()) == []


def test_finish_names_its_own_attempt_worker_and_gpu(
    victim: Host, db: Database, make_run: MakeRun
) -> None:
    run_id = make_run(gpu=MODEL)
    victim.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=GPU)
    without = {k: v for k, v in manifest([]).items() if k != "attempt"}

    codes = [
        victim.post(f"/runs/{run_id}/finish", **without).status_code,
        victim.post(f"/runs/{run_id}/finish", **manifest([], attempt=2)).status_code,
        victim.post(f"/runs/{run_id}/finish", **manifest([], worker_id="w9")).status_code,
        victim.post(f"/runs/{run_id}/finish", **manifest([], gpu={"uuid": "GPU-x"})).status_code,
    ]

    assert codes == [400, 409, 403, 403]
    assert run_row(db, run_id).status == "claimed"
    assert victim.post(f"/runs/{run_id}/finish", **manifest([], gpu=GPU)).status_code == 200


def test_a_claim_that_finds_no_run_changes_nothing(
    victim: Host, db: Database, make_run: MakeRun
) -> None:
    make_run(gpu="another model")
    run_id = make_run(gpu="another model")
    before = stored(db)
    told = {**GPU, "model": "renamed", "noise_floor_frac": 0.0, "peaks": {"copy_bytes_per_s": 1}}

    answer = victim.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=told, any_run=True)

    assert answer.status_code == 409
    assert stored(db) == before


def test_captures_of_an_ended_run_are_refused(
    api: httpx.Client, data_dir: DataDir, make_run: MakeRun
) -> None:
    run_id = make_run()
    queued = api.put(upload_path(run_id), params={"file": "t", "offset": 0}, content=b"x")
    claim(api, run_id)
    api.post(f"/runs/{run_id}/finish", json=manifest([]))
    ended = api.put(upload_path(run_id), params={"file": "t", "offset": 0}, content=b"x")

    assert (queued.status_code, ended.status_code) == (410, 410)
    assert not list(data_dir.uploads.rglob("*.part"))


def test_revoked_token_is_refused_and_its_gpu_may_move(
    victim: Host, stranger: Host, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "TOKENS_AGE_S", 0.0)
    revoke_token(db, "host-a")

    assert victim.post("/workers/w1/heartbeat").status_code == 401
    assert stranger.register("w9", GPU).status_code == 200
    assert db.execute("SELECT worker_id FROM gpus WHERE uuid = 'GPU-of-w1'").fetchone() == ("w9",)


BAD_GPUS: list[tuple[str, Any]] = [
    ("noise_floors", "abc"),
    ("noise_floors", {"gpu_bound": "x"}),
    ("noise_floors", {"gpu_bound": float("inf")}),
    ("noise_floor_frac", float("nan")),
    ("noise_floor_frac", -1),
    ("peaks", [1]),
    ("peaks", {"copy_bytes_per_s": {"value": 1e300}}),
    ("peaks", {"copy_bytes_per_s": {"value": 1, "measured_at": [1]}}),
    ("peaks", {"copy_bytes_per_s": {"value": 1, "sm_clock_mhz": "fast"}}),
    ("peaks", {"copy_bytes_per_s": {"value": 1, "unit": {"a": 1}}}),
    ("measured_at", {"a": 1}),
    ("uuid", "import/NVIDIA H100"),
    ("model", "x" * 1_000_000),
    ("model", "a\nb"),
    ("uuid", ["GPU-1"]),
    ("memory_bytes", 2**70),
    ("num_sms", 1.5),
    ("clocks", {"a": float("-inf")}),
    ("name", "\ud800"),
]


@pytest.mark.parametrize(("field", "value"), BAD_GPUS)
def test_wrong_values_of_a_worker_are_refused_by_name(
    victim: Host, db: Database, field: str, value: Any
) -> None:
    before = stored(db)
    body = json.dumps({"worker_id": "w1", "version": "1", "gpus": [{**GPU, field: value}]})
    headers = victim._headers | {"Content-Type": "application/json"}

    answer = victim._api.post("/workers", content=body, headers=headers)

    assert answer.status_code == 400
    assert f"gpus[0].{field}" in answer.json()["error"]
    assert stored(db) == before


@pytest.mark.parametrize(
    "told",
    [
        {"tools": ["nsys"]},
        {"permissions": 7},
        {"host_label": "x" * 300},
        {"checks": "y" * 10_000},
        {"deep": [[[[[[[[[[1]]]]]]]]]]},
        {"clock_s": 1e300},
        {"many": list(range(10_000))},
    ],
)
def test_wrong_values_of_a_host_are_refused(victim: Host, told: dict[str, Any]) -> None:
    answer = victim.register("w1", **told)

    assert answer.status_code == 400
    assert next(iter(told)) in answer.json()["error"]


def test_progress_is_bounded(api: httpx.Client, make_run: MakeRun) -> None:
    run_id = make_run()
    claim(api, run_id)
    for progress in ({"done": [1]}, {"stage": "x" * 10_000}, {"done": {"a": 1}}):
        body = {"attempt": 1, "events": [], "progress": progress}
        assert api.post(f"/runs/{run_id}/events", json=body).status_code == 400


def test_what_the_workers_probe_tells_of_a_gpu_is_taken() -> None:
    gpu = {**GPU, "ordinal": 0, "memory_bytes": 85_899_345_920, "clocks": {"sm_mhz": [1980, None]}}

    assert checked_gpu(gpu) == gpu


def test_stored_tokens_are_hashes(victim: Host, data_dir: DataDir) -> None:
    with sqlite3.connect(data_dir.db_path) as db:
        dump = "\n".join(db.iterdump())

    assert "token of host-a" not in dump


def test_a_workers_token_reads_its_own_runs_alone(
    victim: Host, stranger: Host, api: httpx.Client, db: Database, make_run: MakeRun
) -> None:
    claimed, waiting = make_run(gpu=MODEL), make_run(gpu=MODEL)
    assert victim.post(f"/runs/{claimed}/claim", worker_id="w1", gpu=GPU).status_code == 200
    program = Host(api, db, "ci")

    reads = {
        who: [host.get(where) for where in (f"/runs/{claimed}", f"/runs/{waiting}", "/runs")]
        for who, host in {"victim": victim, "stranger": stranger, "program": program}.items()
    }

    assert reads == {
        "victim": [200, 403, 403],
        "stranger": [403, 403, 403],
        "program": [200, 200, 200],
    }


def test_names_of_others_runs_are_not_told(victim: Host, stranger: Host, make_run: MakeRun) -> None:
    run_ids = [make_run(gpu=MODEL) for _ in range(3)]
    answers = [
        stranger._api.get(f"/runs/{text}", headers=stranger._headers)
        for text in (run_ids[0][:3], "r", "nothing like it", "%25", "decode")
    ]

    assert [answer.status_code for answer in answers] == [403] * 5
    assert not any(run_id in answer.text for answer in answers for run_id in run_ids)


def test_every_route_refuses_what_is_not_the_tokens(
    victim: Host, stranger: Host, api: httpx.Client, db: Database, make_run: MakeRun
) -> None:
    run_id = make_run(gpu=MODEL)
    assert victim.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=GPU).status_code == 200
    bodies: dict[tuple[str, str], dict[str, Any]] = {
        ("POST", "/workers"): {"worker_id": "w1", "version": "1", "gpus": [GPU]},
        ("POST", "/workers/{worker_id}/heartbeat"): {"running": [run_id]},
        ("GET", "/runs"): {},
        ("GET", "/runs/{run_id}"): {},
        ("POST", "/runs/{run_id}/claim"): {"worker_id": "w1", "gpu": GPU},
        ("POST", "/runs/{run_id}/events"): {"attempt": 1, "events": [{"kind": "log"}]},
        ("POST", "/runs/{run_id}/finish"): manifest([], gpu=GPU, worker_id="w1"),
        ("HEAD", "/runs/{run_id}/captures/{sha256}"): {},
        ("PUT", "/runs/{run_id}/captures/{sha256}"): {},
    }
    open_to_all = {("GET", PREFIX + "/health"), ("GET", "/api/docs"), ("GET", "/api/openapi.json")}
    adds_its_own = {("POST", PREFIX + "/runs")}
    named = {(method, PREFIX + path) for method, path in bodies}
    assert {(m, path) for m, path, _ in _routes()} == named | open_to_all | adds_its_own
    before = stored(db)

    codes = {
        (method, path): api.request(
            method,
            path.format(worker_id="w1", run_id=run_id, sha256="0" * 64),
            params={"file": "t.gz"},
            json=body,
            headers=stranger._headers,
        ).status_code
        for (method, path), body in bodies.items()
    }

    assert codes == dict.fromkeys(bodies, 403)
    assert stored(db) == before


def test_a_worker_cannot_grow_without_end(victim: Host, db: Database) -> None:
    def told(number: int, **more: Any) -> int:
        gpus = [{"model": MODEL, "uuid": f"GPU-{number}-{i}", **more} for i in range(128)]
        return victim.register("w1", *gpus).status_code

    assert [told(number) for number in range(5)] == [200, 200, 200, 400, 400]
    assert db.execute("SELECT count(*) FROM gpus").fetchone() == (3 * 128 + 1,)
    facts = {f"fact {i}": "x" * 1000 for i in range(150)}
    for number in range(4):
        many = {f"{number} {name}": value for name, value in facts.items()}
        assert victim.register("w1", GPU | many).status_code == 200
    (length,) = db.execute("SELECT max(length(info)) FROM gpus").fetchone()
    assert length <= 200_000
    assert victim.register("w1", GPU | {"fact": ["x" * 3000] * 100}).status_code == 400
    peaks = [{f"{number} {i}": 1 for i in range(150)} for number in range(2)]
    codes = [victim.register("w1", GPU | {"peaks": entry}).status_code for entry in peaks]
    assert codes == [200, 400]


def test_a_clock_that_is_ahead_dates_no_measurement(victim: Host, db: Database) -> None:
    for at, value in (("9999-01-01T00:00:00Z", 1), (None, 2)):
        gpu = {"model": MODEL, "uuid": "GPU-new", "measured_at": at, "noise_floor_frac": value}
        told = {"peaks": {"copy_bytes_per_s": {"value": value, "measured_at": at}}}
        assert (
            victim.register("w1", {k: v for k, v in (gpu | told).items() if v}).status_code == 200
        )

    peak = "SELECT value FROM gpu_peaks WHERE gpu_id = 'GPU-new'"
    assert db.execute(peak).fetchall() == [(2.0,)]


def test_a_strangers_captures_are_not_asked_for(
    victim: Host, stranger: Host, make_run: MakeRun
) -> None:
    run_id = make_run(gpu=MODEL)
    assert victim.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=GPU).status_code == 200

    assert stranger.head(upload_path(run_id)) == 403
    assert victim.head(upload_path(run_id)) == 404


def test_a_token_that_is_revoked_while_a_capture_comes_ends_the_upload(
    victim: Host,
    db: Database,
    data_dir: DataDir,
    make_run: MakeRun,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = make_run(gpu=MODEL)
    victim.post(f"/runs/{run_id}/claim", worker_id="w1", gpu=GPU)
    monkeypatch.setattr(uploads, "RECHECK_S", 0.0)
    monkeypatch.setattr(auth, "TOKENS_AGE_S", 0.0)

    def body() -> Iterator[bytes]:
        yield b"x" * 1000
        while not list(data_dir.uploads.rglob("*.part")):
            time.sleep(0.02)
        revoke_token(db, "host-a")
        for _ in range(20):
            time.sleep(0.05)
            yield b"x" * 1000

    assert victim.put(upload_path(run_id), body()).status_code == 401
    (part,) = data_dir.uploads.rglob("*.part")
    assert part.stat().st_size < 20_000
