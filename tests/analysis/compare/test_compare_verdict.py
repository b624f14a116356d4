"""From samples to a word: what is called, what is not, and what is said instead."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from analysis.compare.statistics import ALPHA, STRICT_ALPHA, estimate
from analysis.compare.verdict import judge
from bench import verdicts
from bench.verdict_scenarios import switching_clock

RNG = np.random.default_rng(5)
Groups = list[np.ndarray]


def processes(n: int, level: float = 2.0, noise: float = 0.01) -> Groups:
    return [
        level * np.exp(RNG.normal(0, noise)) * np.exp(RNG.normal(0, noise, 30)) for _ in range(n)
    ]


def test_a_large_change_in_ten_processes_is_slower_one_way_and_faster_the_other() -> None:
    a, b = processes(10), processes(10, level=2.2)

    assert judge(a, b).verdict == "slower"
    assert judge(b, a).verdict == "faster"


def test_higher_is_better_turns_the_word_round() -> None:
    a, b = processes(6, level=100.0), processes(6, level=150.0)

    assert judge(a, b, higher_is_better=True).verdict == "faster"


def test_ratio_is_that_of_the_sides_medians_and_interval_lies_around_it() -> None:
    a, b = processes(6), processes(6, level=3.0)

    found = judge(a, b)

    expected = np.median(np.concatenate(b)) / np.median(np.concatenate(a))
    assert found.ratio == pytest.approx(expected)
    assert found.ci95 is not None
    assert found.ci95[0] < expected < found.ci95[1]
    assert found.ci95[0] > 1


@pytest.mark.parametrize("n", [2, 3])
def test_few_processes_and_no_noise_floor_decide_only_beyond_a_factor_of_two(n: int) -> None:
    a = [np.full(30, 2.0 + 0.01 * i) for i in range(n)]

    close, far = judge(a, [2 * g for g in a]), judge(a, [5 * g for g in a])

    assert close.verdict == "not_enough_samples"
    assert "not enough repeats" in close.reason and "not known" in close.reason
    assert "interleaved" in (close.next_step or "")
    assert far.verdict == "slower"


@pytest.mark.parametrize("floor", [None, 0.03])
@pytest.mark.parametrize("level", [2.4, 4.0, 10.0])
def test_one_process_a_side_is_never_a_verdict(level: float, floor: float | None) -> None:
    found = judge([np.full(30, 2.0)], [np.full(30, level)], noise_floor_frac=floor)

    assert found.verdict == "not_enough_samples"
    assert "1 against 1 process" in found.reason


def spread(n: int, level: float, noise: float) -> Groups:
    """Return n processes around a level, evenly spread in logarithms."""
    places = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
    return [np.full(30, level * np.exp(noise * place)) for place in places]


def test_an_interval_beyond_the_noise_floor_decides_however_wide() -> None:
    found = judge(spread(3, 1.0, 0.35), spread(3, 4.97, 0.35), noise_floor_frac=0.10)

    assert found.ci95 is not None and found.ci95[0] > 1.1
    assert found.ci95[1] / found.ci95[0] > 3
    assert found.verdict == "slower"
    assert "beyond the noise floor" in found.reason


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.35])
@pytest.mark.parametrize("floor", [None, 0.02, 0.2])
@pytest.mark.parametrize("ratio", [1.1, 1.5, 3.0, 5.0])
def test_more_of_the_same_data_never_weakens_a_verdict(noise, floor, ratio) -> None:
    words = [
        judge(spread(n, 1.0, noise), spread(n, ratio, noise), noise_floor_frac=floor).verdict
        for n in range(1, 13)
    ]

    is_called = [word == "slower" for word in words]
    assert is_called == sorted(is_called), words


def test_the_reason_names_the_noise_floor_that_the_interval_reaches_into() -> None:
    found = judge(spread(3, 1.0, 0.05), spread(3, 1.3, 0.05), noise_floor_frac=0.25)

    assert found.verdict == "not_enough_samples"
    assert "reaches into the noise floor" in found.reason


def test_a_difference_below_the_noise_floor_is_none() -> None:
    a, b = processes(10, noise=0.001), processes(10, level=2.04, noise=0.001)

    assert judge(a, b).verdict == "slower"
    assert judge(a, b, noise_floor_frac=0.05).verdict == "no_difference"


def test_a_steady_small_change_needs_a_measured_noise_floor() -> None:
    a, b = processes(10, noise=0.001), processes(10, level=2.02, noise=0.001)

    unmeasured, measured = judge(a, b), judge(a, b, noise_floor_frac=0.002)

    assert unmeasured.verdict == "no_difference"
    assert "noise floor" in (unmeasured.next_step or "")
    assert measured.verdict == "slower"


def test_equal_quiet_processes_show_no_difference_and_say_what_is_ruled_out() -> None:
    side = processes(5, noise=0.005)

    found = judge(side, [g * 1.0005 for g in side])

    assert found.verdict == "no_difference"
    assert "ruled out" in found.reason


def test_noise_too_large_to_tell_asks_for_more_pairs() -> None:
    found = judge(processes(5, noise=0.3), processes(5, noise=0.3))

    assert found.verdict == "not_enough_samples"
    assert "more process pairs" in (found.next_step or "")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_split_of_the_real_processes_of_one_build_is_called(n: int) -> None:
    words = {
        judge(a, b).verdict
        for group in verdicts.load_real().values()
        for a, b in verdicts.all_splits(group, n)
    }

    assert not words & {"faster", "slower"}


def test_real_equal_processes_drawn_again_are_called_at_most_once_in_a_hundred() -> None:
    rng = np.random.default_rng(3)
    group = verdicts.load_real()[512]
    calls = [
        judge(*verdicts._resample(rng, group, 5)).verdict in ("faster", "slower")
        for _ in range(200)
    ]

    assert sum(calls) <= 5  # seeded; 1 % of 200 is 2


def test_simulated_rates_are_near_their_goals() -> None:
    rng = np.random.default_rng(4)
    found = [judge(a, [g * 1.03 for g in b]) for a, b in _quiet(rng, 10, 100)]
    false = [judge(a, b) for a, b in _quiet(rng, 5, 200)]

    assert sum(j.verdict == "slower" for j in found) >= 93
    assert sum(j.verdict in ("faster", "slower") for j in false) <= 7


def test_processes_whose_clock_switches_inside_are_judged_more_strictly() -> None:
    rng = np.random.default_rng(6)
    steady = [estimate(*verdicts.quiet(rng, 5, 5)).level for _ in range(50)]
    switching = [estimate(*switching_clock(rng, 5, 5)).level for _ in range(50)]

    assert set(steady) == {ALPHA}
    assert set(switching) == {STRICT_ALPHA}


def test_the_bound_of_a_rate_is_that_of_clopper_and_pearson() -> None:
    from scipy import stats

    for count, trials in ((0, 300), (15, 2000), (300, 30_000)):
        expected = stats.binomtest(count, trials).proportion_ci(0.90, method="exact").high
        assert verdicts.upper_bound(count, trials) == pytest.approx(expected)


def test_sides_that_no_test_is_asked_for_are_never_called() -> None:
    rng = np.random.default_rng(7)
    sides = [switching_clock(rng, 4, 4) for _ in range(150)]
    left_out = [s for s, may_be in zip(sides, verdicts._may_be_called(sides), strict=True)
                if not may_be]  # fmt: skip

    assert len(left_out) > 100
    assert not any(verdicts._is_called(a, b, "unknown", 0.0) for a, b in left_out)


def _quiet(rng: np.random.Generator, n: int, trials: int) -> list[tuple[Groups, Groups]]:
    return [verdicts.quiet(rng, n, n) for _ in range(trials)]


def test_splits_of_six_are_all_there() -> None:
    group = [np.array([float(i)]) for i in range(6)]

    assert len(list(verdicts.all_splits(group, 3))) == len(list(combinations(range(6), 3)))
    assert Path(verdicts.NOISE_FILE).exists()


def test_one_process_a_side_has_the_interval_inside_it_and_no_verdict() -> None:
    rng = np.random.default_rng(5)
    found = judge([rng.normal(1.0, 0.02, 30)], [rng.normal(2.0, 0.04, 30)])
    assert found.verdict == "not_enough_samples"
    assert found.ci95_basis == "samples"
    assert found.ci95 is not None
    assert found.ratio is not None
    assert found.ci95[0] < found.ratio < found.ci95[1]
    assert found.ci95[1] - found.ci95[0] < 0.2
