"""Latency statistics, with numbers that a reader can check by hand."""

import pandas as pd
import pytest

from analysis.latency import latency_ms


def frame(*processes: list[float]) -> pd.DataFrame:
    rows = [(p, i, ms * 1e6) for p, values in enumerate(processes) for i, ms in enumerate(values)]
    return pd.DataFrame(rows, columns=["process", "iteration", "latency_ns"])


def test_numbers_of_five_samples() -> None:
    found = latency_ms(frame([1.0, 2.0, 3.0, 4.0, 10.0]))

    assert (found["median"], found["mean"], found["min"], found["max"]) == (3.0, 4.0, 1.0, 10.0)
    assert found["std"] == pytest.approx(12.5**0.5)  # squares 9 4 1 0 36 = 50, over n - 1 = 4
    assert found["cv"] == pytest.approx(12.5**0.5 / 4)
    assert found["p95"] == pytest.approx(8.8)  # between 4 and 10, at 0.8 of the way
    assert (found["n"], found["num_processes"]) == (5, 1)


def test_interval_holds_the_median_and_stays_in_the_range() -> None:
    found = latency_ms(frame([float(i) for i in range(1, 101)]))

    low, high = found["ci95"]
    assert 1 <= low < found["median"] < high <= 100
    # The median of 100 uniform ranks: about 50.5 +- 1.96 * 0.5 * sqrt(100).
    assert (low, high) == (pytest.approx(40.5, abs=4), pytest.approx(60.5, abs=4))


def test_noise_between_processes_widens_the_interval() -> None:
    one = latency_ms(frame([1.0, 1.01, 0.99] * 20))
    apart = latency_ms(frame(*[[m, m + 0.01, m - 0.01] * 4 for m in (0.8, 0.9, 1.0, 1.1, 1.2)]))

    width = one["ci95"][1] - one["ci95"][0]
    assert apart["ci95"][1] - apart["ci95"][0] > 5 * width


def test_equal_samples_give_an_equal_answer() -> None:
    samples = frame([1.0, 3.0, 2.0], [4.0, 2.0, 5.0])

    assert latency_ms(samples) == latency_ms(samples.copy())


def test_one_sample_has_no_spread() -> None:
    found = latency_ms(frame([2.0]))

    assert (found["median"], found["n"]) == (2.0, 1)
    assert not {"ci95", "std", "cv"} & set(found)


def test_no_sample_has_nothing() -> None:
    assert latency_ms(frame()) == {}


def test_the_fastest_quarter_is_of_processes_and_needs_four_of_them() -> None:
    processes = [[2.0, 2.2, 9.0], [2.4], [2.6, 2.6], [4.0, 5.0, 6.0], [2.8]]

    assert latency_ms(frame(*processes))["fast"] == 2.4  # of 2.2 2.4 2.6 2.8 5.0
    assert "fast" not in latency_ms(frame(*processes[:3]))
