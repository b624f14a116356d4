"""Runs over several ranks: what a study and a comparison make of them."""

from dataclasses import replace
from functools import partial

import pandas as pd
import pytest

from analysis.compare import fields
from analysis.compare.engine import compare
from analysis.compare.metrics import Metric
from analysis.studies.engine.fields import fields_of, sort_key
from analysis.studies.engine.measures import MEASURES
from analysis.studies.engine.run import run_study
from tests.analysis.studies.studied_runs import transformer


def ranked(run_id: str, num_ranks: int, tokens_per_s: float, **params):
    ranks = {"gpus": num_ranks, "parallel": "ddp", "scaling": "strong", **params}
    metrics = pd.DataFrame(
        [("clean", "", "tokens_per_s", tokens_per_s, "tokens/s")],
        columns=["pass", "phase", "name", "value", "unit"],
    )
    return transformer(run_id, 10.0, params=ranks, metrics=metrics)


def test_ranks_are_one_field_and_a_run_from_before_has_none_of_it():
    assert fields_of(ranked("a", 1, 1.0))["ranks"] == "1"
    assert fields_of(ranked("b", 2, 1.0, scaling="weak"))["ranks"] == "2 weak"
    assert "ranks" not in fields_of(transformer("c", 1.0))
    assert not {"gpus", "scaling"} & set(fields_of(ranked("a", 2, 1.0)))


def test_gpu_time_of_a_token_counts_all_gpus():
    one, two = (MEASURES["gpu_time_per_token"](ranked("r", n, 1e6 * n * 0.9)) for n in (1, 2))

    # 0.9 million tokens a second and GPU: 1 / 0.9 us of GPU time a token, however many.
    assert one[0].value == two[0].value


def test_ranks_are_the_variable_of_a_comparison():
    one = ranked("a", 1, 1.0, parallel="none")
    two = ranked("b", 2, 1.0)

    differences = fields.find_differences([one], [two], Metric(name="latency", unit="ms"))

    assert fields.is_comparable(differences)
    assert {d.field for d in differences} == {"gpus", "parallel"}


def test_a_run_from_before_ranks_is_compared_as_one_of_a_single_gpu():
    differences = fields.find_differences(
        [transformer("a", 1.0)],
        [ranked("b", 1, 1.0, parallel="none", straggler_rank=-1)],
        Metric(name="latency", unit="ms"),
    )

    assert differences == ()


def test_sizes_stand_in_the_order_of_their_bytes() -> None:
    sizes = ["1 GiB", "1 KiB", "128 KiB", "2 MiB", "512 B"]

    assert sorted(sizes, key=partial(sort_key, "size")) == [
        "512 B", "1 KiB", "128 KiB", "2 MiB", "1 GiB",
    ]  # fmt: skip


def measured(run_id: str, num_ranks: int, latency_ms: float, num_tokens: int, **params):
    view = ranked(run_id, num_ranks, num_tokens / latency_ms * 1e3, **params)
    samples = pd.DataFrame(
        [(0, i, (latency_ms + 0.01 * i) * 1e6) for i in range(20)],
        columns=["process", "iteration", "latency_ns"],
    )
    return replace(view, samples=samples, cost={"num_tokens": num_tokens})


@pytest.mark.parametrize(
    ("latency_ms", "num_tokens", "way", "efficiency"),
    [
        (60.0, 8192, "strong", 100 / 60 / 2),  # the same work in 60 instead of 100 ms, on twice
        (110.0, 16384, "weak", 2 * 100 / 110 / 2),  # twice the work in 110 ms
    ],
)
def test_a_comparison_of_ranks_says_the_scaling_efficiency(latency_ms, num_tokens, way, efficiency):
    one = measured("a", 1, 100.0, 8192, parallel="none")
    two = measured("b", 2, latency_ms, num_tokens, scaling=way)

    by_latency = compare([one], [two]).scaling
    by_rate = compare([one], [two], metric="tokens_per_s").scaling

    assert by_latency.efficiency == pytest.approx(efficiency, rel=1e-2)
    assert by_rate.efficiency == pytest.approx(efficiency, rel=1e-9)
    assert (by_latency.ranks_a, by_latency.ranks_b) == (1, 2)
    low, high = by_latency.ci95
    assert low <= by_latency.efficiency <= high


def test_one_job_a_side_is_one_sample_however_many_ranks_it_has():
    one = measured("a", 1, 100.0, 8192, parallel="none")
    eight = measured("b", 8, 15.0, 8192)

    found = compare([one], [eight])

    assert found.verdict == "not_enough_samples"
    assert found.scaling.efficiency == pytest.approx(100 / 15 / 8, rel=1e-2)
    assert "from 1 to 8 GPUs" in found.scaling.words and "inside one process" in found.scaling.words


def test_sides_of_equally_many_ranks_have_no_scaling():
    sides = [measured(name, 2, ms, 8192) for name, ms in (("a", 100.0), ("b", 90.0))]

    assert compare([sides[0]], [sides[1]]).scaling is None


def test_the_study_lays_out_1_to_8_ranks_strong_and_weak():
    """Made: strong, n ranks reach n ** 0.8 times the tokens a second of one; weak, 0.95 n."""
    views = [ranked("one", 1, 1e5)]
    gains = {}
    for n in (2, 4, 8):
        for way, gain in (("strong", n**0.8), ("weak", 0.95 * n)):
            view = ranked(f"{way}{n}", n, 1e5 * gain, scaling=way)
            summary = {**view.summary, "exposed_communication_frac": 0.03 * n}
            views.append(replace(view, summary=summary))
            gains[f"{n} {way}"] = (n, gain)

    frame = run_study("scaling", views).frame

    measured = frame[frame["status"] == "ok"].set_index(["value_key", "ranks"])["value"]
    assert set(measured["tokens"].index) == {"1", *gains}
    for ranks, (n, gain) in gains.items():
        assert measured["tokens", ranks] == pytest.approx(1e5 * gain)
        assert measured["efficiency", ranks] == pytest.approx(gain / n)
        assert measured["exposed", ranks] == pytest.approx(3 * n)
