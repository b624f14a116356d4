"""The estimate of a ratio: centre, interval, test and guards, its parts against scipy."""

import numpy as np
import pytest

from analysis.compare.statistics import centre, estimate, rank_p_value

RNG = np.random.default_rng(20261127)
SYMMETRIC = 0.01 * np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])


def groups(logs: np.ndarray, num_samples: int = 1) -> list[np.ndarray]:
    """Return processes whose samples are all the same: e to the power of each value."""
    return [np.full(num_samples, np.exp(value)) for value in logs]


def compare_logs(a: np.ndarray, b: np.ndarray, *args: object):
    return estimate(groups(a), groups(b), *args)


@pytest.mark.parametrize(("n_a", "n_b"), [(3, 3), (5, 5), (4, 7), (10, 10)])
def test_rank_p_value_is_the_exact_mann_whitney(n_a: int, n_b: int) -> None:
    from scipy import stats

    a, b = RNG.normal(0, 1, n_a), RNG.normal(0.7, 1, n_b)

    expected = stats.mannwhitneyu(a, b, method="exact").pvalue

    assert rank_p_value(a, b) == pytest.approx(expected)


def test_equal_values_count_against_a_difference() -> None:
    from scipy import stats

    apart, touching = np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 5.0, 6.0, 7.0])

    expected = stats.mannwhitneyu(apart, touching - 1e-6, method="exact").pvalue

    assert rank_p_value(apart, touching) == rank_p_value(touching, apart) == expected


def test_ratio_is_that_of_the_medians_of_all_samples_and_inside_its_interval() -> None:
    a = [RNG.lognormal(0.0, 0.1, 30) for _ in range(5)]
    b = [RNG.lognormal(0.2, 0.1, 20) for _ in range(4)]

    found = estimate(a, b)

    expected = np.median(np.concatenate(b)) / np.median(np.concatenate(a))
    assert np.exp(found.log_ratio) == pytest.approx(expected)
    assert centre(a) == np.median(np.concatenate(a))
    low, high = found.interval()
    assert expected / low == pytest.approx(high / expected)


def test_where_the_centres_agree_p_and_interval_are_students() -> None:
    from scipy import stats

    found = compare_logs(SYMMETRIC, SYMMETRIC + 0.02)

    expected = stats.ttest_ind(SYMMETRIC + 0.02, SYMMETRIC)
    assert found.kind == "pooled"
    assert found.p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert found.interval() == pytest.approx(tuple(np.exp((interval.low, interval.high))))


def test_unequal_spreads_are_judged_by_welch() -> None:
    from scipy import stats

    found = compare_logs(0.1 * SYMMETRIC, 10 * SYMMETRIC + 0.02)

    expected = stats.ttest_ind(10 * SYMMETRIC + 0.02, 0.1 * SYMMETRIC, equal_var=False)
    assert found.kind == "welch"
    assert found.p_value == pytest.approx(expected.pvalue)


def test_centres_that_disagree_widen_the_interval() -> None:
    # Three of five processes of B are 40 % slower: its median says 40 %, its mean 22 %.
    a = 0.003 * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    b = a + np.log(1.4) * np.array([0, 0, 1, 1, 1])

    low, high = compare_logs(a, b).interval()

    assert low < 1 < 1.4 < high


def test_one_far_process_is_not_a_difference() -> None:
    a = np.array([0.0, 0.001, -0.001, 0.002, 0.0])
    b = np.array([0.0, 0.001, -0.001, 0.002, 0.7])

    assert not compare_logs(a, b).is_significant


def test_a_steady_drift_with_a_before_b_is_not_a_difference() -> None:
    drifting = 0.01 * np.arange(10) + np.random.default_rng(1).normal(0, 0.001, 10)

    for order in ("block", "unknown"):  # files do not tell in which order they were made
        found = compare_logs(drifting[:5], drifting[5:], order)

        assert found.p_value < 0.002
        assert found.may_be_drift
        assert not found.is_significant


def test_a_difference_larger_than_any_drift_is_none_of_one() -> None:
    few = 0.001 * np.arange(3)

    assert not compare_logs(few, few + 0.5, "block").may_be_drift


def test_a_jump_survives_the_trend_fit() -> None:
    a, b = RNG.normal(0, 0.002, 6), RNG.normal(0.2, 0.002, 6)

    assert compare_logs(a, b, "block").is_significant


def test_pairs_see_through_a_drift_larger_than_the_change() -> None:
    time = np.arange(20)
    level = 0.02 * time + RNG.normal(0, 0.001, 20)
    a, b = level[::2], level[1::2] + 0.02

    paired = compare_logs(a, b, "paired")

    assert paired.is_significant
    assert paired.log_ratio == pytest.approx(0.02, abs=0.003)
    assert not compare_logs(a, b).is_significant


def test_pairs_take_the_step_between_neighbours_off() -> None:
    time = np.arange(20)
    level = 0.02 * time + RNG.normal(0, 0.003, 20)

    assert not compare_logs(level[::2], level[1::2], "paired").is_significant


def test_a_single_process_cannot_be_tested() -> None:
    with pytest.raises(ValueError, match="two processes"):
        compare_logs(np.array([0.0]), np.array([0.1, 0.2]))
