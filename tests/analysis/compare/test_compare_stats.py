"""The test on process medians: its level, its guards, and its parts against scipy."""

import numpy as np
import pytest

from analysis.compare.stats import compare_groups, rank_p_value

RNG = np.random.default_rng(20261127)


@pytest.mark.parametrize(("n_a", "n_b"), [(3, 3), (5, 5), (4, 7), (10, 10)])
def test_rank_p_value_is_the_exact_mann_whitney(n_a: int, n_b: int) -> None:
    a, b = RNG.normal(0, 1, n_a), RNG.normal(0.7, 1, n_b)

    from scipy import stats as scipy_stats

    expected = scipy_stats.mannwhitneyu(a, b, method="exact").pvalue

    assert rank_p_value(a, b) == pytest.approx(expected)


def test_pooled_p_and_interval_are_students() -> None:
    a, b = RNG.normal(0, 0.01, 6), RNG.normal(0.01, 0.01, 6)

    from scipy import stats as scipy_stats

    found = compare_groups(a, b)
    expected = scipy_stats.ttest_ind(b, a)

    assert found.kind == "pooled"
    assert found.p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert found.ci95_log == pytest.approx((interval.low, interval.high))


def test_unequal_spreads_are_judged_by_welch() -> None:
    a, b = RNG.normal(0, 0.001, 5), RNG.normal(0.0, 0.1, 5)

    from scipy import stats as scipy_stats

    found = compare_groups(a, b)

    assert found.kind == "welch"
    assert found.p_value == pytest.approx(scipy_stats.ttest_ind(b, a, equal_var=False).pvalue)


def test_one_far_process_is_not_a_difference() -> None:
    a = np.array([0.0, 0.001, -0.001, 0.002, 0.0])
    b = np.array([0.0, 0.001, -0.001, 0.002, 0.7])

    assert not compare_groups(a, b).is_significant


def test_a_steady_drift_with_a_before_b_is_not_a_difference() -> None:
    drifting = 0.01 * np.arange(10) + RNG.normal(0, 0.001, 10)

    for order in ("block", "unknown"):  # files do not tell in which order they were made
        found = compare_groups(drifting[:5], drifting[5:], order)

        assert found.p_value < 0.001
        assert found.blocked_by == "trend"
        assert not found.is_significant


def test_a_jump_survives_the_trend_fit() -> None:
    a, b = RNG.normal(0, 0.002, 6), RNG.normal(0.2, 0.002, 6)

    assert compare_groups(a, b, "block").is_significant


def test_pairs_see_through_a_drift_larger_than_the_change() -> None:
    time = np.arange(20)
    level = 0.02 * time + RNG.normal(0, 0.001, 20)
    a, b = level[::2], level[1::2] + 0.02

    paired = compare_groups(a, b, "paired")

    assert paired.is_significant
    assert paired.log_ratio == pytest.approx(0.02, abs=0.003)
    assert not compare_groups(a, b).is_significant


def test_pairs_take_the_step_between_neighbours_off() -> None:
    time = np.arange(20)
    level = 0.02 * time + RNG.normal(0, 0.003, 20)

    assert not compare_groups(level[::2], level[1::2], "paired").is_significant


def test_a_single_process_cannot_be_tested() -> None:
    with pytest.raises(ValueError, match="two processes"):
        compare_groups(np.array([0.0]), np.array([0.1, 0.2]))
