"""Runs over several ranks: what a study and a comparison make of them."""

from functools import partial

import pandas as pd

from analysis.compare import fields
from analysis.compare.metrics import Metric
from analysis.studies.engine.fields import fields_of, sort_key
from analysis.studies.engine.measures import MEASURES
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
