"""Measured peaks: the arithmetic, and one real measurement on the CPU."""

import json

import pytest

from worker.measure import main, noise_floor
from worker.timing import median


def test_noise_floor_is_the_relative_spread_of_medians() -> None:
    assert noise_floor([100.0, 102.0, 98.0]) == pytest.approx(0.04)
    assert noise_floor([100.0]) is None


def test_median_of_even_and_odd_numbers() -> None:
    assert (median([3, 1, 2]), median([4, 1, 2, 3])) == (2.0, 2.5)


@pytest.mark.timeout(180)
def test_cpu_figures_are_measured_and_kept_with_their_date(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("WARPBOARD_DATA", str(tmp_path))
    assert main(["--gpu", "cpu", "--no-noise", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {name: record["unit"] for name, record in facts["peaks"].items()} == {
        "copy_bytes_per_s": "B/s",
        "gemm_fp32_flops_per_s": "FLOP/s",
    }
    assert min(record["value"] for record in facts["peaks"].values()) > 0
    assert facts["noise_floor_frac"] is None
    from worker.targets import find_targets

    _, target = find_targets("cpu")[0]
    assert target.facts["peaks"]["copy_bytes_per_s"] == facts["peaks"]["copy_bytes_per_s"]["value"]
