"""What the clean pass of a user's own program teaches the passes after it."""

from pathlib import Path

import pytest

from worker.own_program import OwnProgram, Seen
from worker.profile.records import Process, Record, main_process
from worker.profile.steps import Steps, first_of_main


def steps(kind: str, starts: list[int]) -> Steps:
    return Steps(
        kind, kind, alone_ns=[10] * len(starts), to_next_ns=[10] * len(starts), starts_ns=starts
    )


@pytest.mark.parametrize(
    ("pass_name", "num_steps", "is_run"),
    [
        ("memory", 0, False),
        ("trace", 0, False),
        ("nsys", 0, True),
        ("ncu", 0, True),
        ("memory", 9, True),
        ("trace", 9, True),
    ],
)
def test_pass_that_records_around_steps_is_left_out_where_there_are_none(
    pass_name: str, num_steps: int, is_run: bool
) -> None:
    own = OwnProgram(words=["prog"], seen=Seen(num_steps=num_steps))

    why = own.why_left_out(pass_name)

    assert (why is None) == is_run
    assert is_run or pass_name in str(why)


def process(stem: str, start_ns: int, *busy_ns: int, rank: int | None = None) -> Process:
    calls = [
        Record(
            kind=0, flags=0, name=0, size=0, start_ns=start_ns + i, end_ns=start_ns + i + ns,
            gpu_start=None, gpu_call_ns=None,
        )
        for i, ns in enumerate(busy_ns)
    ]  # fmt: skip
    return Process(stem, facts={"rank": rank}, records=calls)


STEPS = (10,) * 12


@pytest.mark.parametrize(
    ("processes", "main"),
    [
        ([process("child", 50, 900, *STEPS), process("parent", 10, *STEPS)], "parent"),
        ([process("ended child", 50, 900), process("parent", 10, *STEPS)], "parent"),
        ([process("launcher", 10, 3), process("script", 50, *STEPS)], "script"),
        ([process("helper", 10, 3), process("script", 50, 9, 9)], "script"),
        ([process("1", 10, *STEPS, rank=1), process("0", 20, *STEPS[:8], rank=0)], "0"),
        ([Process("none"), process("worker", 50, 1)], "worker"),
        ([process("rank 3", 5, 9, rank=3)], "rank 3"),
        ([], None),
    ],
    ids=[
        "forked worker", "worker ended early", "launcher", "few calls", "ranks", "no record",
        "another rank", "nothing",
    ],
)  # fmt: skip
def test_the_run_is_about_the_process_that_does_the_work(
    processes: list[Process], main: str | None
) -> None:
    found = main_process(processes)

    assert (found and found.stem) == main


def test_no_pass_is_left_out_before_the_clean_one_has_told() -> None:
    assert OwnProgram(words=["prog"]).why_left_out("memory") is None


def test_captured_steps_are_decodes_that_follow_each_other_with_no_prefill_among_them() -> None:
    # Rounds of one prefill and twelve decodes: 0, 1..12, 13, 14..25, 26, ...
    prefill = steps("inference", list(range(0, 65, 13)))
    decode = steps("inference", [n for n in range(65) if n % 13])
    num_settled = decode.num_unsettled()

    first = first_of_main([decode, prefill], 9)

    assert first >= decode.starts_ns[num_settled]
    assert not any(n % 13 == 0 for n in range(first, first + 9))


def test_captured_steps_begin_where_times_settle_if_none_follow_each_other() -> None:
    prefill = steps("inference", list(range(0, 40, 2)))
    decode = steps("inference", list(range(1, 40, 2)))

    assert first_of_main([decode, prefill], 9) == decode.starts_ns[decode.num_unsettled()]


def test_settings_of_a_job_stand_before_those_of_the_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", "LAZY")
    own = OwnProgram(words=["prog"], variables={"CUDA_MODULE_LOADING": "EAGER"})

    assert own.environment("clean", tmp_path)["CUDA_MODULE_LOADING"] == "EAGER"
