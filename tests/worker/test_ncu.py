"""Which kernels ncu is asked for and what its report covers, on real captures."""

import gzip
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from core.errors import UserError
from worker.profilers.ncu import load_launches
from worker.profilers.ncu_choice import (
    Choice,
    choose_kernels,
    coverage,
    kernel_id,
    launch_limit,
    load_configurations,
)

H100 = Path(__file__).parents[1] / "data" / "h100"


def chosen(name: str, limit: int) -> Choice:
    choice = choose_kernels(H100 / "nsys" / f"{name}.sqlite", limit)
    assert choice is not None
    return choice


def test_few_configurations_are_measured_almost_whole() -> None:
    choice = chosen("decode_eager", 40)
    assert choice.share_frac >= 0.99
    assert choice.kernels[0].startswith("nvjet")
    assert (choice.num_launches, choice.num_configurations) == (380, 17)


@pytest.mark.parametrize("limit", [1, 10, 40, 60, 1000])
def test_a_training_step_keeps_to_the_limit(limit: int) -> None:
    choice = chosen("train_bf16", limit)
    assert len(choice.configurations) <= limit
    assert all(c.kernel in choice.kernels for c in choice.configurations)


def test_a_higher_limit_covers_more_of_a_training_step() -> None:
    shares = [chosen("train_bf16", limit).share_frac for limit in (10, 40, 60, 75)]
    assert shares == sorted(shares)
    assert shares[1] > 0.8
    assert shares[2] > 0.95


@pytest.mark.parametrize("name", ["no_gpu_work", "decode_cuda_graph_whole"])
def test_capture_without_kernels_gives_no_choice(name: str) -> None:
    assert choose_kernels(H100 / "nsys" / f"{name}.sqlite", 40) is None


def test_export_without_mangled_names_is_told_by_short_ones(tmp_path: Path) -> None:
    copy = tmp_path / "old.sqlite"
    shutil.copy(H100 / "nsys" / "decode_eager.sqlite", copy)
    db = sqlite3.connect(copy)
    db.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN mangledName TO other")
    db.commit()
    db.close()
    kernels = {c.kernel for c in load_configurations(copy)}
    assert kernels == {c.short_name for c in load_configurations(copy)}


def test_kernel_id_matches_whole_names_alone() -> None:
    pattern = kernel_id(("gemm_x.1", "copy"))
    assert pattern.startswith("::regex:")
    assert pattern.endswith(":1")
    expression = pattern.removeprefix("::regex:").removesuffix(":1")
    names = ["gemm_x.1", "gemm_xy1", "copy", "copy_2"]
    assert [n for n in names if re.search(expression, n)] == ["gemm_x.1", "copy"]


def test_coverage_counts_what_the_report_holds_and_no_more(tmp_path: Path) -> None:
    page = tmp_path / "raw.csv.gz"
    with gzip.open(page, "wb") as file:
        file.write((H100 / "ncu" / "decode_eager.raw.csv").read_bytes())
    launches = load_launches(page)
    choice = chosen("decode_eager", 40)
    whole = coverage(choice, launches.values())
    assert whole.time_share_frac == pytest.approx(choice.share_frac)
    assert whole.num_configurations == len(choice.configurations)
    assert coverage(choice, []).time_share_frac == 0
    one = next(launch for launch in launches.values() if launch[0].startswith("nvjet"))
    part = coverage(choice, [one])
    assert part.num_configurations == 1
    assert 0 < part.time_share_frac < whole.time_share_frac


def test_kernel_that_was_tuned_otherwise_is_named_and_not_counted() -> None:
    choice = chosen("decode_max_autotune", 40)
    first = choice.configurations[0]
    found = coverage(choice, [(first.short_name, (first.grid[0] + 1, 1, 1), first.block)])
    assert (found.num_configurations, found.tuned_otherwise) == (0, (first.short_name,))
    assert coverage(choice, [(first.short_name, first.grid, first.block)]).tuned_otherwise == ()


def test_two_kernels_with_one_grid_and_block_are_told_apart() -> None:
    choice = chosen("train_bf16", 1000)
    shared = [c for c in choice.configurations if c.short_name == "vectorized_elementwise_kernel"]
    fewer = coverage(choice, [(f"void at::{c.short_name}<8>", c.grid, c.block) for c in shared])
    assert fewer.num_configurations == len(shared)
    assert fewer.num_launches == sum(c.num_launches for c in shared)


def test_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPBOARD_NCU_LAUNCHES", "7")
    assert launch_limit() == 7
    monkeypatch.setenv("WARPBOARD_NCU_LAUNCHES", "many")
    with pytest.raises(UserError, match="WARPBOARD_NCU_LAUNCHES"):
        launch_limit()
