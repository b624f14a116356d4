"""What the GPU's clocks did in each pass, and that a comparison says when a side throttled."""

from dataclasses import replace
from typing import Any

import pytest

from analysis.compare.engine import compare
from analysis.pass_clocks import pass_clocks, throttle_reasons
from tests.analysis.compare.views import build_view
from tests.analysis.run_views import empty_view

NUMBERS = {"min": 1200.0, "median": 1400.0, "max": 1980.0}


def record(name: str = "clean", process: int = 0, **during: Any) -> dict[str, Any]:
    return {"pass": name, "process": process, "clocks": {"during": during, "source": "nvidia-smi"}}


def slowed(process: int = 0) -> dict[str, Any]:
    reasons = ["sw_power_cap", "applications_clocks_setting"]
    return record(
        process=process, sm_clock_mhz=NUMBERS, throttle_reasons=reasons, is_throttled=True
    )


def test_readings_during_a_pass_are_kept_with_their_range() -> None:
    (found,) = pass_clocks(empty_view(passes=(slowed(),)))

    assert found.sm_clock_mhz is not None and found.power_w is None
    assert (found.sm_clock_mhz.least, found.sm_clock_mhz.median) == (1200.0, 1400.0)
    assert found.reason_texts == ("power limit", "clocks set by an application")


def test_a_pass_under_a_second_has_what_was_read_around_it() -> None:
    around = {"before": {"power_w": 80.0}, "after": {"power_w": 120.0}}
    (found,) = pass_clocks(empty_view(passes=({"pass": "clean", "clocks": around},)))

    assert found.power_w is not None and found.is_throttled is None
    assert (found.power_w.least, found.power_w.median, found.power_w.greatest) == (80, 100, 120)


def test_files_and_cpu_runs_have_no_clocks() -> None:
    assert pass_clocks(empty_view()) == ()
    assert pass_clocks(empty_view(passes=({"pass": "clean", "clocks": {}},))) == ()


def test_only_the_clean_pass_makes_a_run_throttled() -> None:
    profiled = slowed() | {"pass": "ncu"}

    assert throttle_reasons(empty_view(passes=(profiled,))) == ()
    assert "power limit" in throttle_reasons(empty_view(passes=(slowed(),)))


@pytest.mark.parametrize("side", ["A", "B"])
def test_a_comparison_says_which_side_throttled(side: str) -> None:
    samples = ((2.0, 2.1, 2.0), (2.0, 2.1, 2.1))
    passes = {side: (slowed(0), record(process=1))}
    views = {
        name: replace(build_view(samples, id=name), passes=passes.get(name, ()))
        for name in ("A", "B")
    }

    marks = [m for m in compare([views["A"]], [views["B"]]).marks if m.code == "throttled"]

    assert [(m.side, m.count) for m in marks] == [(side, 1)]
    assert "throttled in 1 of 1 processes (power limit" in marks[0].message
