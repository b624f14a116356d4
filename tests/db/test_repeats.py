"""Which runs count as repeats of a comparison's sides: those whose jobs ran in turn."""

from collections.abc import Callable

import pytest
from sqlite_utils import Database

from core.spec import JobSpec
from db.history import find_repeats
from db.runs import insert_run, insert_sweep

EAGER, COMPILED = ({"compile": mode} for mode in ("none", "default"))
Submit = Callable[..., list[str]]


@pytest.fixture
def submit(db: Database) -> Submit:
    """Submit jobs as one sweep; with `done` they have ended."""

    def one_sweep(*params: dict[str, str], done: bool = True, gpu: str = "cpu") -> list[str]:
        sweep = insert_sweep(db, "a sweep")
        ids = [
            insert_run(
                db,
                spec=JobSpec(workload="decode", params=p, gpu=gpu),
                name="run",
                sweep_id=sweep,
            )
            for p in params
        ]
        if done:
            marks = ",".join("?" * len(ids))
            db.conn.execute(f"UPDATE runs SET status = 'done' WHERE id IN ({marks})", ids)
            db.conn.commit()
        return ids

    return one_sweep


def test_runs_that_ran_in_turn_with_the_other_side_are_added(db: Database, submit: Submit) -> None:
    a, b = submit(EAGER, COMPILED)
    repeats = submit(EAGER, COMPILED, EAGER, COMPILED)

    found = find_repeats(db, [a], [b])

    assert found.a == (a, *repeats[::2]) and found.b == (b, *repeats[1::2])
    assert (found.num_added, found.num_waiting) == (4, 0)


def test_repeats_that_have_not_ended_are_waited_for(db: Database, submit: Submit) -> None:
    a, b = submit(EAGER, COMPILED)
    submit(EAGER, COMPILED, done=False)

    found = find_repeats(db, [a], [b])

    assert (found.a, found.b, found.num_waiting) == ((a,), (b,), 2)


def test_runs_of_one_side_alone_or_of_another_gpu_are_not_repeats(
    db: Database, submit: Submit
) -> None:
    a, b = submit(EAGER, COMPILED)
    submit(EAGER, EAGER)
    submit(EAGER, COMPILED, gpu="NVIDIA H200")

    assert find_repeats(db, [a], [b]).num_added == 0


def test_a_side_of_several_jobs_stays_as_it_is(db: Database, submit: Submit) -> None:
    a, b, other = submit(EAGER, COMPILED, {"compile": "max-autotune"})
    submit(EAGER, COMPILED)

    assert find_repeats(db, [a], [b, other]).b == (b, other)
