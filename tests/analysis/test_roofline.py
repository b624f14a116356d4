"""Roofline points, ceilings and MFU/MBU with numbers that a reader can check by hand."""

import pandas as pd
import pytest

from analysis.roofline import ceilings, cost_point, counter_points, utilisation

H100 = "NVIDIA H100 80GB HBM3"
PEAKS = {"copy_bytes_per_s": 3e12, "gemm_bf16_flops_per_s": 700e12}
COST = {"flops": 350e9, "bytes": 1.5e9, "flops_dtype": "bf16"}


def test_share_of_the_measured_peak():
    found = utilisation(cost=COST, latency_ns=1e6, peaks=PEAKS, gpu_model=H100)
    assert found.mfu == pytest.approx(0.5)
    assert found.mbu == pytest.approx(0.5)
    assert (found.mfu_peak.source, found.mbu_peak.source) == ("measured", "measured")


def test_the_datasheet_stands_in_and_is_named():
    found = utilisation(cost=COST, latency_ns=1e6, peaks={}, gpu_model=H100)
    assert found.mfu == pytest.approx(350e12 / 989.4e12)
    assert found.mfu_peak.source == "datasheet"


@pytest.mark.parametrize(
    ("cost", "latency_ns", "model"),
    [
        (COST, 1e6, "A card of tomorrow"),
        (COST, None, H100),
        ({}, 1e6, H100),
        ({"flops": 1e9, "flops_dtype": "fp4"}, 1e6, H100),
    ],
)
def test_unknown_peak_cost_or_latency_gives_no_figure(cost, latency_ns, model):
    found = utilisation(cost=cost, latency_ns=latency_ns, peaks={}, gpu_model=model)
    assert (found.mfu, found.mbu, found.errors) == (None, None, ())


def test_more_than_the_peak_is_an_error_and_no_figure():
    found = utilisation(cost=COST, latency_ns=4e5, peaks=PEAKS, gpu_model=H100)
    assert (found.mfu, found.mbu) == (None, None)
    assert [name for name, _ in found.errors] == ["mfu", "mbu"]
    assert "125%" in found.errors[0][1]


def test_points_only_where_everything_was_collected():
    nan = float("nan")
    counters = pd.DataFrame(
        {
            "short_name": ["a", "b", "c"],
            "category": ["gemm", "gemm", "copy"],
            "flops": [2e9, nan, 0.0],
            "dram_bytes": [1e8, 1e8, 1e8],
            "duration_ns": [1e5, 1e5, 1e5],
        }
    )
    points = counter_points(counters)
    assert points["label"].tolist() == ["a"]
    assert points["intensity"].tolist() == [20.0]
    assert points["flops_per_s"].tolist() == [pytest.approx(2e13)]
    assert counter_points(counters.iloc[:0]).empty


def test_cost_model_point_and_ridge():
    assert cost_point({"flops": 1e9, "bytes": 5e8}, 1e6) == (2.0, pytest.approx(1e12))
    assert cost_point({"flops": 1e9}, 1e6) is None
    roofs = ceilings(PEAKS, H100, "bf16")
    assert roofs["source"].tolist() == ["measured", "datasheet"]
    assert roofs["ridge"][0] == pytest.approx(700 / 3)
    assert ceilings({}, None, "bf16").empty
