"""Which runs are one job, in which order they come, and which are a base."""

from collections.abc import Callable

import pytest
from sqlite_utils import Database

from analysis.compare.engine import measurements
from core.config import DataDir
from core.errors import UserError
from db.fetch import run_view
from db.history import begun_comparisons, job_of, jobs, jobs_named, past_runs, resolve_base
from db.runs import insert_sweep, set_tags
from tests.history_runs import store_nights


def test_days_names_seeds_and_versions_are_the_same_job_and_sizes_are_not(db: Database) -> None:
    base = {"compile": "none", "context": 512}
    ids = store_nights(db, [2.0, 2.1], params=base, environments=[{"torch": "1"}, {"torch": "2"}])
    ids += store_nights(db, [2.2], params=base | {"seed": 7, "name": "other", "gpus": 1}, first=2)
    other = store_nights(db, [9.0], params=base | {"context": 1024}, first=3)

    assert [run.run_id for run in past_runs(db, job_of(db, ids[0]))] == ids
    assert [run.run_id for run in past_runs(db, job_of(db, other[0]))] == other


def test_comparison_and_history_agree_on_what_one_job_is(db: Database, data_dir: DataDir) -> None:
    same = store_nights(db, [2.0, 2.1], params={"context": 512, "seed": 1})
    same += store_nights(db, [2.0], params={"context": 512, "seed": 2, "parallel": "none"}, first=2)
    other = store_nights(db, [3.0], params={"context": 512, "parallel": "tensor"}, first=3)

    groups = measurements([run_view(db, data_dir, run_id) for run_id in (*same, *other)])

    by_comparison = [[view.run.id for view in group] for group in groups]
    by_history = [[r.run_id for r in past_runs(db, job)] for job in jobs(db, min_runs=1)]
    assert sorted(by_comparison) == sorted(by_history) == sorted([same, other])


def test_runs_come_in_the_order_in_which_they_ran(db: Database) -> None:
    late = store_nights(db, [2.0], first=5)
    early = store_nights(db, [2.0, 2.0], first=1)

    assert [r.run_id for r in past_runs(db, job_of(db, late[0]))] == [*early, *late]


def test_jobs_with_one_run_have_no_history_and_a_filter_names_several(db: Database) -> None:
    store_nights(db, [2.0, 2.1], name="a")
    store_nights(db, [2.0], params={"compile": "default"}, name="b")

    assert [job.num_runs for job in jobs(db)] == [2]
    assert {job.name for job in jobs_named(db, "workload:decode")} == {"a 1", "b 0"}


def test_a_name_that_several_runs_have_names_their_job(db: Database) -> None:
    ids = store_nights(db, [2.0, 2.1])
    db.execute("UPDATE runs SET name = 'nightly', comparable_hash = NULL, workload = NULL")
    db.conn.commit()

    (job,) = jobs_named(db, "nightly")

    assert job.num_runs == 2 and [r.run_id for r in past_runs(db, job)] == ids


def test_last_n_names_the_newest_good_runs_before_the_other_side(db: Database) -> None:
    ids = store_nights(db, [2.0] * 6)
    set_tags(db, ids[3], ["bad"])

    assert resolve_base(db, "last:2", [ids[5]]) == [ids[2], ids[4]]
    assert resolve_base(db, "last:9", [ids[4], ids[5]]) == ids[:3]
    assert resolve_base(db, ids[0], [ids[5]]) == [ids[0]]


@pytest.mark.parametrize("text", ["last:0", "last:", "last:two", "last:101"])
def test_a_base_that_is_no_number_is_refused(db: Database, text: str) -> None:
    ids = store_nights(db, [2.0] * 2)

    with pytest.raises(UserError, match="last:N with N of 1 to 100"):
        resolve_base(db, text, ids[1:])


def test_a_base_needs_one_job_with_an_earlier_run(db: Database) -> None:
    first, second = store_nights(db, [2.0] * 2)
    other = store_nights(db, [2.0], params={"compile": "default"})

    with pytest.raises(UserError, match="no finished run of this job before it"):
        resolve_base(db, "last:3", [first])
    with pytest.raises(UserError, match="2 jobs"):
        resolve_base(db, "last:3", [second, *other])


def test_unfinished_runs_are_in_no_history(db: Database, make_run: Callable[..., str]) -> None:
    make_run(compile="none")

    assert jobs(db, min_runs=1) == []


def test_two_jobs_that_ran_in_turn_are_a_comparison_that_someone_began(db: Database) -> None:
    sweep = insert_sweep(db, "graph or not")
    ids = {}
    for side, mode in (("a", "none"), ("b", "default")):
        ids[side] = store_nights(db, [2.0, 2.1], params={"compile": mode})
        marks = ",".join("?" * 2)
        db.execute(f"UPDATE runs SET sweep_id = ? WHERE id IN ({marks})", [sweep, *ids[side]])
    db.conn.commit()

    (found,) = begun_comparisons(db)

    assert (found.name, found.num_waiting) == ("graph or not", 0)
    assert {found.a, found.b} == {tuple(ids["a"]), tuple(ids["b"])}
