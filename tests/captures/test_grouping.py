"""Which files are taken for one run, by their names, and the reason that is given."""

import pytest

from captures.grouping import guess_runs


@pytest.mark.parametrize(
    "names",
    [
        ("decode.sqlite", "decode.ncu-rep"),
        ("decode.nsys-rep", "decode_ncu_details.csv", "decode.memory.pickle"),
        ("job_rank0.pt.trace.json.gz", "job_rank1.pt.trace.json.gz"),
        ("a.sqlite", "counters.ncu-rep"),
        ("nsys.sqlite", "ncu.csv"),
    ],
)
def test_files_of_one_program_are_one_run(names: tuple[str, ...]) -> None:
    assert guess_runs(names).is_one


def test_two_timelines_of_different_names_are_two_runs_and_the_reason_names_both() -> None:
    found = guess_runs(("before.sqlite", "after.sqlite"))
    assert not found.is_one
    assert found.reason == (
        "before.sqlite and after.sqlite are each a timeline, under different names"
    )
    assert found.groups == ((0,), (1,))


def test_counters_go_with_the_timeline_of_their_name() -> None:
    names = ("before.nsys-rep", "after.nsys-rep", "after_ncu_details.csv.gz", "before.ncu.csv")
    assert guess_runs(names).groups == ((0, 3), (1, 2))


def test_ranks_of_one_job_are_named_as_the_reason() -> None:
    names = ("job-rank-0.json", "job-rank-1.json")
    assert guess_runs(names).reason == "their names differ only in the rank"


def test_files_that_seem_one_run_are_each_a_run_when_the_user_says_several() -> None:
    found = guess_runs(("decode.sqlite", "decode.ncu-rep"))
    assert found.groups == ((0,), (1,))


@pytest.mark.parametrize(
    "names",
    [
        (
            "dp0_pp0_tp0_ep0_rank0.170.pt.trace.json.gz",
            "dp0_pp0_tp1_ep1_rank1.171.pt.trace.json.gz",
        ),
        ("1700000000.1-TP-0.trace.json.gz", "1700000000.1-TP-1.trace.json.gz"),
        ("worker0.1623143089861.pt.trace.json", "worker1.1623143089870.pt.trace.json"),
    ],
)
def test_names_that_servers_and_pytorch_give_the_ranks_of_one_job(names: tuple[str, str]) -> None:
    found = guess_runs(names)

    assert found.is_one and found.reason == "their names differ only in the rank"


@pytest.mark.parametrize(
    "names",
    [
        ("serve-tp2.sqlite", "serve-tp4.sqlite"),
        ("worker0.1623143089861.pt.trace.json", "worker0.1623143566756.pt.trace.json"),
    ],
)
def test_settings_and_two_recordings_of_one_rank_are_several_runs(names: tuple[str, str]) -> None:
    assert not guess_runs(names).is_one
