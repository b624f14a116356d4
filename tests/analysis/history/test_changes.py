"""Change points of a series: what is a step, and what is not."""

import numpy as np
import pytest

from analysis.history.changes import MIN_BEFORE, find_steps, least_frac
from bench.trend import SCENARIOS, measure

NIGHTS, AT = 60, 33
FLOOR = 0.024


def quiet(seed: int, spread: float = 0.005, count: int = NIGHTS) -> np.ndarray:
    return 2.3 * np.exp(np.random.default_rng(seed).normal(0.0, spread, count))


def planted(seed: int, ratio: float = 1.08, at: int = AT) -> np.ndarray:
    values = quiet(seed)
    values[at:] *= ratio
    return values


@pytest.mark.parametrize("seed", range(6))
def test_a_planted_slow_down_is_found_where_it_is_within_three_nights(seed: int) -> None:
    steps = find_steps(planted(seed), FLOOR)

    assert [step.index for step in steps] == [AT]
    assert steps[0].found_index <= AT + 2
    values = planted(seed)
    assert steps[0].ratio == pytest.approx(np.median(values[AT:]) / np.median(values[:AT]))


def test_a_speed_up_is_a_change_too() -> None:
    assert [s.ratio < 1 for s in find_steps(planted(1, 0.9), FLOOR)] == [True]


def test_a_slow_down_that_is_mended_is_two_changes() -> None:
    values = planted(2)
    values[45:] /= 1.08

    assert [step.index for step in find_steps(values, FLOOR)] == [AT, 45]


@pytest.mark.parametrize("factor", [1.3, 3.0, 0.6])
def test_one_night_far_out_is_no_change(factor: float) -> None:
    values = quiet(3)
    values[40] *= factor

    assert find_steps(values, FLOOR) == []


def test_quiet_nights_are_no_change() -> None:
    found = [len(find_steps(quiet(seed), FLOOR)) for seed in range(40)]

    assert sum(found) <= 2  # one false alarm in 1 000 nights would be 2.4 here


def test_less_than_what_can_be_called_is_no_change() -> None:
    assert find_steps(planted(4, 1.01), FLOOR) == []


def test_the_past_is_not_rewritten_by_later_nights() -> None:
    values = planted(5)
    whole = find_steps(values, FLOOR)

    for last in range(AT + 3, NIGHTS):
        part = find_steps(values[: last + 1], FLOOR)
        assert [s.index for s in part] == [s.index for s in whole if s.found_index <= last]


def test_one_allocation_more_is_a_change_of_an_exact_number() -> None:
    values = [220.0] * 10 + [221.0] * 4

    assert [s.index for s in find_steps(values, None, exact=True)] == [10]
    assert find_steps(values, None) == []


def test_a_short_history_has_no_change() -> None:
    assert find_steps([1.0] * MIN_BEFORE + [2.0], None) == []
    assert find_steps([], None) == []


def test_own_nights_stand_for_the_floor_once_there_are_enough() -> None:
    assert least_frac(0.02, 5, 0.34) == 0.34
    assert least_frac(0.02, 20, 0.34) == pytest.approx(0.0507, abs=1e-4)
    assert least_frac(0.02, 20, 0.024) == 0.024
    assert least_frac(0.0, 20, None) == 0.015


def test_simulated_nights_meet_the_goals_of_the_bench() -> None:
    row = measure(np.random.default_rng(2), SCENARIOS[0], 40)

    assert row.found_frac >= 0.9 and row.false_per_1000 <= 1.0
