"""Change points of a series: what is a step, and what is not."""

import numpy as np
import pytest

from analysis.history.changes import MIN_BEFORE, find_steps, least_frac, smallest_seen
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


@pytest.mark.parametrize("seed", range(8))
def test_two_nights_far_out_around_an_ordinary_one_are_no_change(seed: int) -> None:
    values = quiet(seed)
    values[[30, 32]] *= (1.1, 1.4)

    assert find_steps(values, FLOOR) == []


@pytest.mark.parametrize("spread", [0.005, 0.02, 0.06])
def test_what_a_history_says_it_would_see_it_sees_within_three_nights(spread: float) -> None:
    found = {1.0: 0, 0.4: 0}
    for seed in range(40):
        before = quiet(seed, spread, 40)
        smallest = smallest_seen(before, (), None)
        assert smallest is not None
        for part in found:
            after = quiet(seed + 1000, spread, 3) * (1 + part * smallest)
            steps = find_steps([*before, *after], None)
            found[part] += any(step.found_index >= 40 for step in steps)

    assert found[1.0] >= 34  # 95 % of 40 is 38
    assert found[0.4] <= 12


def test_what_would_be_seen_is_not_known_of_a_short_history_and_all_of_an_exact_number() -> None:
    assert smallest_seen([1.0, 1.1, 0.9, 1.0], (), None) is None
    assert smallest_seen([7.0] * 6, (), None, exact=True) == 0.0


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
