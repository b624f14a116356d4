"""The noise floor that a comparison takes is that of the runs' own kind of work."""

from dataclasses import replace

import pytest

from analysis.compare.evaluate import noise_floor_of
from tests.analysis.run_views import nsys_view

FLOORS = {"gpu_bound": 0.02, "launch_bound": 0.3}


@pytest.mark.parametrize(
    ("capture", "floors", "expected"),
    [
        ("forward_fp32", FLOORS, 0.02),
        ("decode_eager", FLOORS, 0.3),
        ("forward_fp32", {}, 0.25),
        ("forward_fp32", {"launch_bound": 0.3}, 0.25),
    ],
)
def test_floor_is_of_the_kind_of_work_that_the_run_is(capture, floors, expected):
    view = replace(nsys_view(capture), noise_floor_frac=0.25, noise_floors=floors)
    assert noise_floor_of(view) == expected


def test_without_a_kernel_capture_half_of_a_peak_is_gpu_bound():
    view = nsys_view("forward_fp32")
    empty = view.kernels.iloc[:0]
    cost = {"flops": 3e12, "bytes": 1e6, "flops_dtype": "fp32"}
    for latency_ms, expected in ((70.0, 0.02), (7000.0, 0.3)):
        clean = replace(
            view, kernels=empty, summary={"latency_ms": {"median": latency_ms}}, cost=cost,
            noise_floor_frac=0.3, noise_floors=FLOORS,
        )  # fmt: skip
        assert noise_floor_of(clean) == expected
