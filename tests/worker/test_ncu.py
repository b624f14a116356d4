"""Which kernels ncu is asked for, on real nsys captures."""

import re
from pathlib import Path

import pytest

from worker.profilers.ncu import MAX_LAUNCHES, choose_kernels, kernel_regex

NSYS = Path(__file__).parents[1] / "data" / "h100" / "nsys"


def test_few_launches_are_covered_almost_whole() -> None:
    choice = choose_kernels(NSYS / "decode_eager.sqlite")
    assert choice is not None
    assert sum(choice.shares.values()) >= 0.95
    assert choice.names[0].startswith("nvjet")
    assert choice.launches_per_iteration == 70


def test_many_launches_keep_to_the_longest_and_say_their_share() -> None:
    choice = choose_kernels(NSYS / "train_bf16.sqlite")
    assert choice is not None
    assert choice.launches_per_iteration <= MAX_LAUNCHES
    assert "multi_tensor_apply_kernel" in choice.names
    assert 0.3 < sum(choice.shares.values()) < 0.95


@pytest.mark.parametrize("name", ["no_gpu_work", "decode_cuda_graph_whole"])
def test_capture_without_kernels_gives_no_choice(name: str) -> None:
    assert choose_kernels(NSYS / f"{name}.sqlite") is None


def test_filter_matches_whole_names_alone() -> None:
    pattern = kernel_regex(("gemm_x.1", "copy")).removeprefix("regex:")
    names = ["gemm_x.1", "gemm_xy1", "copy", "copy_2"]
    assert [n for n in names if re.search(pattern, n)] == ["gemm_x.1", "copy"]
