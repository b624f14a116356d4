"""A job's runs as lines, and the nightly check of them."""

import numpy as np
import pytest

from analysis.compare.gate import GateAnswer
from analysis.compare.records import Difference
from analysis.history.check import check_job, to_markdown
from analysis.history.line import MIN_RUNS, History, make_history
from analysis.runview import Job, PastRun

JOB = Job(key="k", gpu_model="GPU", name="nightly", num_runs=60)


def runs_of(latencies: list[float], **figures: list[float]) -> list[PastRun]:
    columns = {
        "latency_ms.median": latencies,
        **{k.replace("__", "."): v for k, v in figures.items()},
    }
    return [
        PastRun(
            run_id=f"r{i}",
            name=f"night {i}",
            at=f"2026-09-{i + 1:02}T02:00:00Z",
            figures={key: values[i] for key, values in columns.items() if i < len(values)},
        )
        for i in range(len(latencies))
    ]


def slowed(at: int = 20, count: int = 26, ratio: float = 1.08) -> list[float]:
    values = 2.0 * np.exp(np.random.default_rng(7).normal(0, 0.004, count))
    values[at:] *= ratio
    return values.tolist()


def history(**kwargs: list[float]) -> History:
    return make_history(JOB, runs_of(slowed(), **kwargs), 0.024)


def test_a_change_names_the_runs_on_both_sides_of_it() -> None:
    (change,) = history().lines[0].changes

    assert change.before == ("r15", "r16", "r17", "r18", "r19")
    assert change.after == ("r20", "r21", "r22", "r23", "r24")
    assert change.is_worse and change.percent == pytest.approx(8, abs=1)


def test_kernel_time_of_a_step_goes_before_that_of_the_capture() -> None:
    found = history(step__kernel_ns=[1e6] * 26, kernel_time_ns=[9e6] * 26).line("kernel_time")

    assert found is not None and found.key == "step.kernel_ns" and found.level == 1.0


def test_numbers_of_a_capture_and_of_a_step_are_not_one_line() -> None:
    found = history(step__kernel_ns=[1e6] * 4, kernel_time_ns=[9e6] * 26).line("kernel_time")

    assert found is not None and found.key == "kernel_time_ns" and len(found.points) == 26


def test_the_check_fails_for_a_new_change_for_the_worse_above_the_limit_only() -> None:
    def answer(limit: float | None, num_new: int = 7) -> GateAnswer:
        found = check_job(history(), ["latency"], fail_above_pct=limit, num_new=num_new)
        return found.answer

    assert answer(5.0) == GateAnswer.REGRESSION
    assert answer(20.0) == GateAnswer.PASSED
    assert answer(None) == GateAnswer.PASSED
    assert answer(5.0, num_new=1) == GateAnswer.PASSED


def test_a_change_that_was_mended_fails_no_more() -> None:
    values = slowed()
    values[23:] = [v / 1.08 for v in values[23:]]
    found = make_history(JOB, runs_of(values), 0.024)

    assert len(found.lines[0].changes) == 2
    check = check_job(found, ["latency"], fail_above_pct=5.0, num_new=7)
    assert check.answer == GateAnswer.PASSED


def test_a_short_history_is_undecided() -> None:
    found = make_history(JOB, runs_of(slowed(count=MIN_RUNS - 1)), None)
    check = check_job(found, ["latency"], fail_above_pct=5.0, num_new=7)

    assert check.answer == GateAnswer.UNDECIDED and "7 runs" in check.lines[0].reason


def test_the_report_names_what_differs_and_shows_names_as_text() -> None:
    check = check_job(history(), ["latency"], fail_above_pct=5.0, num_new=7)
    differs = {
        ("r20", "latency", 20): [Difference(field="torch", a="2.11", b="2.12 <b>|", effect="noted")]
    }

    text = to_markdown([check], differs, url="https://dash.example.com/")

    assert "1 of 1 jobs got worse" in text and "torch 2.11 -> 2.12 \\<b>\\|" in text
    assert "https://dash.example.com/compare?a=r15%2Cr16" in text
    assert "`warpboard compare r15,r16,r17,r18,r19 r20" in to_markdown([check], differs)
