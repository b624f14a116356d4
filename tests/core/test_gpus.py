"""GPU facts against the vendors' classic traps, and names as drivers print them."""

import pytest

from core.errors import UserError
from core.gpus import GPUS, datasheet_peaks, find_gpu, fits_gpu, gpu_slug, match_gpu_name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 4060 Ti"),
        ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"),
        ("NVIDIA A10", "NVIDIA A10"),
        ("NVIDIA L40S", "NVIDIA L40S"),
    ],
)
def test_driver_names_are_found(model, name):
    assert find_gpu(model).name == name


@pytest.mark.parametrize(
    "model",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 3060 Laptop GPU",
        "NVIDIA GeForce RTX 4060",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA A10G",
        "NVIDIA L40",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GH200 480GB",
        "NVIDIA RTX 4090 Ada Something",
        "AMD Instinct MI300X",
        "",
    ],
)
def test_similar_names_of_other_chips_stay_unknown(model):
    assert find_gpu(model) is None


def test_every_entry_finds_itself_and_names_its_source():
    assert [find_gpu(g.name) for g in GPUS] == list(GPUS)
    assert all(len(g.source) > 20 for g in GPUS)


@pytest.mark.parametrize("gpu", [g for g in GPUS if "GeForce" in g.name], ids=lambda g: g.name)
def test_geforce_tensor_rate_is_twice_fp32_with_fp32_accumulation(gpu):
    assert gpu.flops_per_s["bf16"] == pytest.approx(2 * gpu.flops_per_s["fp32"], rel=0.01)
    assert gpu.flops_per_s["tf32"] == pytest.approx(gpu.flops_per_s["fp32"], rel=0.01)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_rates_double_from_dtype_to_dtype(gpu):
    rates = gpu.flops_per_s
    assert rates["bf16"] == rates["fp16"] == pytest.approx(2 * rates["tf32"], rel=0.02)
    assert rates.get("fp8", 2 * rates["bf16"]) == pytest.approx(2 * rates["bf16"], rel=0.02)
    assert ("fp8" in rates) == (gpu.compute_capability not in ("8.0", "8.6"))


def test_dense_rates_not_the_sparse_ones():
    assert find_gpu("NVIDIA H100 80GB HBM3").flops_per_s["bf16"] == pytest.approx(989.4e12)
    assert find_gpu("NVIDIA GeForce RTX 5090").flops_per_s["bf16"] == pytest.approx(209.5e12)


GPU_LIST = ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("4090 laptop", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("a100 pcie", "NVIDIA A100 80GB PCIe"),
        ("nvidia-a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_a_short_name_means_the_one_that_fits(wanted, name):
    assert match_gpu_name(wanted, GPU_LIST) == name


@pytest.mark.parametrize(("wanted", "says"), [("a100", "several"), ("3060", "not available"),
                                              ("nvidia", "matches no model")])  # fmt: skip
def test_none_or_several_are_an_error_that_lists_them(wanted, says):
    with pytest.raises(UserError, match=says) as caught:
        match_gpu_name(wanted, GPU_LIST)
    assert "A100" in str(caught.value)


def test_slug_is_a_queue_name():
    assert gpu_slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"


def test_datasheet_peaks_bear_the_names_of_measured_ones():
    peaks = datasheet_peaks("NVIDIA H100 80GB HBM3")
    assert peaks["copy_bytes_per_s"] == peaks["memory_bytes_per_s"] == 3350e9
    assert peaks["gemm_bf16_flops_per_s"] == pytest.approx(989.4e12)
    assert datasheet_peaks("A card of tomorrow") == datasheet_peaks(None) == {}


@pytest.mark.parametrize(
    ("wanted", "model", "fits"),
    [
        ("L4", "NVIDIA L4", True),
        ("L4", "NVIDIA L40S", False),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("H100-80GB", "NVIDIA H100 80GB HBM3", True),
        ("4090", "NVIDIA GeForce RTX 4090", True),
        ("nvidia", "NVIDIA L4", True),
        ("", "NVIDIA L4", False),
    ],
)
def test_one_rule_says_which_gpu_a_text_means(wanted: str, model: str, fits: bool) -> None:
    assert fits_gpu(wanted, model) is fits
