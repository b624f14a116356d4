"""Claim, cancel, retry, order, hand-in, and giving up runs."""

from collections.abc import Callable

import pytest
from sqlite_utils import Database

from core.errors import UserError
from db.clock import seconds_ago
from db.fetch import run_row
from db.handover import (
    hand_in,
    interrupt_lost,
    interrupt_stale,
    start_running,
    take_events,
    waiting_for,
)
from db.queue import (
    claim_run,
    front_of_queue,
    gpus_of_worker,
    most_gpus_of_a_host,
    move_up,
    request_cancel,
    retry,
)
from db.status import events, queue
from db.tokens import add_token, token_digests
from db.workers import heartbeat, register_worker

MakeRun = Callable[..., str]


def claim(db: Database, run_id: str, worker_id: str = "w1") -> int | None:
    found = claim_run(db, run_id, worker_id=worker_id, gpu_id=None, task_id="t")
    return found.attempt if found else None


def register(db: Database, worker_id: str = "w1", queues: tuple[str, ...] = ("cpu",)) -> None:
    gpus = [{"model": "cpu"}]
    register_worker(db, worker_id, version="1", queues=queues, gpus=gpus, info={"tools": {}})


def test_of_two_claims_one_wins(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()

    assert [claim(db, run_id, "w1"), claim(db, run_id, "w2")] == [1, None]
    assert run_row(db, run_id).worker_id == "w1"


def test_cancelled_run_cannot_be_claimed(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()

    assert request_cancel(db, run_id) == "cancelled"
    assert claim(db, run_id) is None


def test_cancel_of_a_running_run_reaches_its_worker(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    register(db)
    claim(db, run_id)

    assert request_cancel(db, run_id) == "claimed"
    assert take_events(db, run_id, 1, {}, [])
    assert heartbeat(db, "w1", [run_id]) == [run_id]


def test_ended_run_has_nothing_to_cancel(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    request_cancel(db, run_id)

    with pytest.raises(UserError, match="nothing to cancel"):
        request_cancel(db, run_id)


def test_retry_counts_the_next_attempt(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    claim(db, run_id)
    interrupt_stale(db, worker_id="w1")

    retry(db, run_id)

    assert run_row(db, run_id).error is None
    assert claim(db, run_id) == 2


def test_done_run_is_not_retried(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    db.table("runs").update(run_id, {"status": "done"})

    with pytest.raises(UserError, match="done"):
        retry(db, run_id)


def test_moved_up_run_is_first_in_line(db: Database, make_run: MakeRun) -> None:
    first, second = make_run("first"), make_run("second")
    other = make_run("other", gpu="NVIDIA A100")

    assert front_of_queue(db, second) == first
    move_up(db, second)

    assert front_of_queue(db, first) == second
    assert front_of_queue(db, other) == other
    assert queue(db)["id"].tolist() == [second, first, other]


def test_queue_says_which_runs_no_worker_serves(db: Database, make_run: MakeRun) -> None:
    make_run("here")
    make_run("elsewhere", gpu="NVIDIA A100")
    register(db)

    assert queue(db)["has_worker"].tolist() == [True, False]


def test_lost_worker_interrupts_only_its_own_runs(db: Database, make_run: MakeRun) -> None:
    mine, theirs, waiting = make_run("a"), make_run("b"), make_run("c")
    claim(db, mine, "w1")
    claim(db, theirs, "w2")

    assert interrupt_stale(db, worker_id="w1") == [mine]
    assert [run_row(db, r).status for r in (theirs, waiting)] == ["claimed", "queued"]
    assert "w1" in events(db, mine)["message"].iloc[-1]


def test_workers_silent_since_a_time_are_given_up(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    register(db)
    claim(db, run_id)

    assert interrupt_stale(db, older_than=seconds_ago(60)) == []
    assert interrupt_stale(db, older_than=seconds_ago(-60)) == [run_id]


def test_run_that_its_worker_does_not_run_is_interrupted(db: Database, make_run: MakeRun) -> None:
    lost, kept, fresh = make_run("lost"), make_run("kept"), make_run("fresh")
    for run_id in (lost, kept, fresh):
        claim(db, run_id)
    for run_id in (lost, kept):
        db.table("runs").update(run_id, {"started_at": seconds_ago(60)})

    assert interrupt_lost(db, "w1", [kept]) == [lost]


def test_progress_of_an_earlier_attempt_is_ignored(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    claim(db, run_id)
    interrupt_stale(db, worker_id="w1")
    retry(db, run_id)
    claim(db, run_id)

    assert not start_running(db, run_id, 1, {"done": 5})
    assert start_running(db, run_id, 2, {"done": 1})
    assert run_row(db, run_id).progress == {"done": 1}


def test_late_bundle_of_an_interrupted_run_is_taken(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    claim(db, run_id)
    interrupt_stale(db, worker_id="w1")

    assert hand_in(db, run_id, 1) == "ingesting"
    assert hand_in(db, run_id, 1) == "ingesting"


def test_bundle_of_a_given_up_attempt_is_refused(db: Database, make_run: MakeRun) -> None:
    run_id = make_run()
    claim(db, run_id)
    interrupt_stale(db, worker_id="w1")
    retry(db, run_id)
    claim(db, run_id)

    with pytest.raises(UserError, match="attempt 1"):
        hand_in(db, run_id, 1)
    assert run_row(db, run_id).status == "claimed"


def test_run_that_waits_for_an_idle_worker_is_found(db: Database, make_run: MakeRun) -> None:
    first, _, _ = make_run("a"), make_run("b"), make_run("c", gpu="NVIDIA A100")
    register(db)

    assert waiting_for(db, "w1", -1) == [(first, "cpu", None)]
    assert waiting_for(db, "w1", 60) == []


def test_heartbeat_of_an_unknown_worker_asks_it_to_register(db: Database) -> None:
    with pytest.raises(UserError, match="not registered"):
        heartbeat(db, "w9", [])


def test_tokens_are_stored_as_hashes_and_replaced_by_label(db: Database) -> None:
    add_token(db, "secret-1", "host-a")
    add_token(db, "secret-2", "host-a")

    assert list(token_digests(db).values()) == ["host-a"]
    assert not any("secret" in digest for digest in token_digests(db))


def test_a_run_over_more_gpus_than_the_host_has_is_passed_over(
    db: Database, make_run: MakeRun
) -> None:
    several = make_run(gpus=4)
    single = make_run()

    assert front_of_queue(db, single, num_gpus=2) == single
    assert front_of_queue(db, single, num_gpus=4) == several
    assert claim_run(db, several, worker_id="w", gpu_id=None, task_id="t", num_gpus=2) is None
    assert claim_run(db, several, worker_id="w", gpu_id=None, task_id="t", num_gpus=4)


def test_gpus_of_a_host_are_counted_by_model(db: Database) -> None:
    gpus = [{"model": m, "uuid": f"GPU-{i}"} for i, m in enumerate(["H100", "H100", "4090"])]
    register_worker(db, "w1", version="1", queues=("q",), gpus=gpus, info={"tools": {}})

    assert [gpus_of_worker(db, "w1", m) for m in ("H100", "4090", "A100")] == [2, 1, 0]
    assert most_gpus_of_a_host(db, "H100") == 2
    assert gpus_of_worker(db, "w1", "cpu") > 1000
