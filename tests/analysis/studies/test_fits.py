"""The growth exponent of a study: its value, interval, and that of the longest alone."""

import numpy as np
import pytest

from analysis.studies import run_study
from analysis.studies.engine.fits import power_law
from tests.analysis.studies.studied_runs import attention


def test_attention_that_grows_with_the_square_has_exponent_two() -> None:
    views = [attention(str(n), "naive", n, 1e-6 * n**2) for n in (1024, 2048, 4096)]

    fit = run_study("attention-scaling", views).fits[0]

    assert fit.exponent == pytest.approx(2.0)
    assert fit.ci95 == pytest.approx((2.0, 2.0))
    assert (fit.label, fit.tail_exponent) == ("naive", None)


def test_the_exponent_of_the_longest_stands_beside_one_that_launches_bend() -> None:
    waits_ms = 1.0
    views = [
        attention(f"{name}{n}", name, n, max(waits_ms, 1e-6 * n**2))
        for name in ("naive", "sdpa")
        for n in (256, 512, 1024, 2048, 4096)
    ]

    fit, other = run_study("attention-scaling", views).fits[:2]

    assert fit.exponent < 1.7 and fit.num_points == 5
    assert fit.tail_exponent == pytest.approx(2.0, abs=0.05)
    assert (fit.label, other.label) == ("naive", "sdpa")


def test_two_points_have_an_exponent_without_interval() -> None:
    assert power_law([1.0, 10.0], [1.0, 100.0]) == (pytest.approx(2.0), None)


def test_the_interval_of_the_exponent_is_that_of_linear_regression() -> None:
    from scipy import stats

    x, y = [256.0, 512.0, 1024.0, 2048.0], [1.0, 1.8, 4.4, 17.0]
    line = stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.975, 2) * line.stderr

    slope, ci95 = power_law(x, y)

    assert slope == pytest.approx(line.slope)
    assert ci95 == pytest.approx((line.slope - half, line.slope + half))
