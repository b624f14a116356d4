"""Roofline points, ceilings and MFU/MBU with numbers that a reader can check by hand."""

import pandas as pd
import pytest

from analysis.roofline import (
    ceilings,
    cost_point,
    counter_points,
    dtype_of_name,
    dtypes_in_use,
    l2_ceilings,
    operator_points,
    utilisation,
)

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


def test_the_memory_peak_is_the_fastest_that_was_measured_not_the_copy():
    peaks = PEAKS | {"memory_bytes_per_s": 3.2e12}
    found = utilisation(cost=COST, latency_ns=1e6, peaks=peaks, gpu_model=H100)
    assert found.mbu == pytest.approx(1.5 / 3.2)
    assert ceilings(peaks, H100, "bf16")["bytes_per_s"].to_list() == [3.2e12, 3.35e12]


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


def test_an_operator_is_placed_by_its_shapes_and_the_numbers_of_its_kernel():
    operators = pd.DataFrame(
        {
            "name": ["aten::mm", "aten::mm", "aten::add"],
            "pass": ["forward", "backward", "forward"],
            "flops": [2.0 * 1024**3, 4.0 * 1024**3, None],
            "elements": [3.0 * 1024**2, 6.0 * 1024**2, None],
            "total_kernel_ns": [10_000, 40_000, 5_000],
        }
    )
    kernels = pd.DataFrame(
        {
            "name": ["aten::mm", "aten::mm", "aten::mm"],
            "pass": ["forward", "forward", "backward"],
            "kernel": ["reduce", "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", "ampere_sgemm_64x32"],
            "total_ns": [10, 9_000, 40_000],
        }
    )
    found = operator_points(operators, kernels)
    assert found["dtype"].tolist() == ["bf16", "fp32"]
    assert found["intensity"].tolist() == pytest.approx([2 * 1024 / 6, 4 * 1024 / 24])
    assert found["flops_per_s"].tolist() == pytest.approx([2 * 1024**3 / 1e-5, 4 * 1024**3 / 4e-5])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("nvjet_hsh_128x64_64x8_1x2_h_bz_TNT", "fp16"),
        ("nvjet_sm100_qqtst_128x128_128x6_1x2_h_bz_TNT", "fp8"),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1", "bf16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_ffma", "fp32"),
        ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn", "fp16"),
        ("cutlass_80_tensorop_s1688gemm_tf32_128x256", "tf32"),
        ("splitKreduce_kernel", None),
    ],
)
def test_the_numbers_of_a_matrix_kernel_are_told_by_its_name(name, dtype):
    assert dtype_of_name(name) == dtype


def test_kinds_of_numbers_in_use_are_those_of_the_matrix_kernels_by_time():
    kernels = pd.DataFrame(
        {
            "name": ["ampere_sgemm_64x32", "nvjet_tst_64x8", "elementwise<Half>", "sgemm_tiny"],
            "category": ["gemm", "gemm", "elementwise", "gemm"],
            "total_ns": [300, 600, 99, 1],
        }
    )
    assert dtypes_in_use(kernels, None) == ["bf16", "fp32"]
    assert dtypes_in_use(kernels, "fp16") == ["fp16", "bf16", "fp32"]
    assert dtypes_in_use(kernels.iloc[:0], None) == []


def test_the_roof_of_the_l2_cache_is_what_its_counters_state():
    counters = pd.DataFrame(
        {
            "short_name": ["a"],
            "flops": [1e9],
            "dram_bytes": [1e7],
            "l2_bytes": [4e7],
            "duration_ns": [1e5],
            "peak_l2_bytes_per_s": [1e13],
        }
    )
    assert counter_points(counters, "L2")["intensity"].tolist() == [25.0]
    roofs = l2_ceilings(ceilings(PEAKS, None, "bf16"), counters)
    assert roofs["bytes_per_s"].tolist() == [1e13] and roofs["ridge"].tolist() == [70.0]
    assert l2_ceilings(roofs, counters.drop(columns="peak_l2_bytes_per_s")).empty
