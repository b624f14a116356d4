"""The score: which pairs count, what a record is, and what it does to an interval."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.advice import score
from analysis.advice.experiments import predict
from analysis.advice.models import Estimate
from analysis.advice.step_work import variation_of
from tests.analysis.advice.steps import gemm, step

OUTCOME = score.Outcome(
    kind="graph", experiment="cuda_graph=true", gpu_model="a GPU", base="a run",
    predicted_ns=100.0, low_ns=90.0, high_ns=110.0, measured_ns=105.0, base_ns=300.0,
    model_version=1,
)  # fmt: skip


def test_a_family_is_held_out_by_the_hash_of_what_its_jobs_share() -> None:
    shared = json.dumps({"layers": 2, "seq_len": 512}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(f"a GPU|decode|{shared}".encode()).hexdigest()

    for dtype in ("fp32", "bf16"):
        params = {"seq_len": 512, "layers": 2, "dtype": dtype, "compile": "none"}
        assert score.is_held_out("a GPU", "decode", params) == (int(digest[:8], 16) % 2 == 1)


def test_a_record_is_the_median_error_and_the_share_inside() -> None:
    outcomes = [
        OUTCOME,
        replace(OUTCOME, measured_ns=100.0),
        replace(OUTCOME, measured_ns=200.0),
    ]

    record = score.records_of(outcomes)["graph"]

    assert record.num_outcomes == 3
    assert record.median_error_frac == pytest.approx(1 - 100 / 105)
    assert record.inside_frac == pytest.approx(2 / 3)
    assert record.is_poor


def test_one_outcome_is_no_record() -> None:
    record = score.records_of([replace(OUTCOME, measured_ns=900.0)])["graph"]

    assert not record.is_known
    assert not record.is_poor


def test_an_interval_is_as_wide_as_the_record_says() -> None:
    estimate = Estimate(latency_ns=1000.0, host_decides=False, evidence=())
    made = step(10, [gemm(9)])
    record = score.Record(
        kind="graph", num_outcomes=9, median_error_frac=0.3, inside_frac=0.5, width=0.6
    )

    assumed = predict(made, estimate, replace(record, width=0.0))
    widened = predict(made, estimate, record)

    assert assumed.high_ns == pytest.approx(1000 * math.exp(0.15))
    assert widened.low_ns == pytest.approx(1000 * math.exp(-0.6))


def test_where_the_host_decides_the_bases_own_variation_widens_the_interval() -> None:
    estimate = Estimate(latency_ns=1000.0, host_decides=True, evidence=())

    found = predict(step(10, [gemm(9)], variation=0.2), estimate, score.AssumedWidths()["graph"])

    assert found.high_ns == pytest.approx(1000 * math.exp(0.25 + 0.2))


def test_outcomes_are_read_as_they_were_written(tmp_path: Path) -> None:
    from bench.advice_record import write_outcomes

    write_outcomes([OUTCOME], tmp_path / "record.csv")

    assert score.read_outcomes(tmp_path / "record.csv") == [OUTCOME]


def test_kinds_whose_shipped_record_is_poor_are_those_that_the_docs_name() -> None:
    records = score.records_of(score.shipped_outcomes())

    assert {k for k, r in records.items() if r.is_poor} == {
        "attention_triton",
        "batch_training",
        "compile_host",
    }


@pytest.mark.parametrize(
    ("latency", "variation"),
    [
        ({"cv": 0.2, "ci95": [9.0, 11.0]}, 0.2),
        ({"cv": 1.2, "ci95": [9.0, 11.0]}, math.log(11 / 9)),
        ({"cv": 1.2, "ci95": None}, 1.2),
        ({}, 0.0),
    ],
    ids=["steps alike", "one step of another order", "too few steps for an interval", "unknown"],
)
def test_a_few_steps_of_another_order_do_not_make_an_interval_that_holds_anything(
    latency: dict[str, Any], variation: float
) -> None:
    assert variation_of(latency) == pytest.approx(variation)
