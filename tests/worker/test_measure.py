"""Measured peaks: the arithmetic, and one real measurement on the CPU."""

import json
from importlib.util import find_spec
from types import SimpleNamespace
from typing import cast

import pytest

from core.measured import peak_table
from worker.measure import Timer, _gemm_rate, main, measure, noise_floor
from worker.passes import GpuTarget
from worker.targets import cpu_target


def test_noise_floor_is_the_relative_spread_of_medians() -> None:
    assert noise_floor([100.0, 102.0, 98.0]) == pytest.approx(0.04)
    assert noise_floor([100.0]) is None


def test_the_noisier_of_two_jobs_sets_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = iter([100.0, 110.0, 100.0, 100.0, 100.0, 95.0])

    def measured(what: str, _: GpuTarget) -> dict[str, object]:
        if what == "--noise-job":
            return {"gpu_bound": 50.0, "launch_bound": next(launches)}
        return {"peaks": {}, "device": "d", "environment": {}, "skipped": {}}

    monkeypatch.setattr("worker.measure._in_own_process", measured)
    facts = measure(cpu_target(), "cpu")
    assert facts["noise"]["gpu_bound"]["floor_frac"] == 0
    assert facts["noise_floor_frac"] == pytest.approx(0.15)
    assert facts["noise_floor_frac"] == facts["noise"]["launch_bound"]["floor_frac"]


def test_table_shows_unit_and_share_of_the_datasheet() -> None:
    peak = {"value": 1.675e12, "unit": "B/s"}
    facts = {"gpu": {"model": "NVIDIA H100 80GB HBM3"}, "device": "d", "measured_at": "now"}
    facts |= {"peaks": {"copy_bytes_per_s": peak}, "clocks": {}, "skipped": {"gemm_fp8": "no"}}
    text = peak_table(facts | {"noise": {}, "noise_floor_frac": None})
    assert "1675.000 GB/s" in text
    assert "50% of datasheet" in text
    assert "gemm_fp8" in text


def test_a_gemm_peak_is_that_of_the_fastest_layout_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = {
        (8192, (False, False)): 680.0,
        (8192, (False, True)): 690.0,
        (8192, (True, False)): 670.0,
        (8192, (True, True)): 685.0,
        (16384, (False, True)): 702.0,
    }
    monkeypatch.setattr(
        "worker.measure._product_rate", lambda _, dtype, size, layout: rates[size, layout]
    )
    timer = SimpleNamespace(on_gpu=True, free_bytes=lambda: 140 << 30)
    small = SimpleNamespace(on_gpu=True, free_bytes=lambda: 3 << 30)

    assert _gemm_rate(cast(Timer, timer), "bf16") == 702.0
    assert _gemm_rate(cast(Timer, timer), "fp8") == 702.0
    assert _gemm_rate(cast(Timer, small), "bf16") == 690.0


@pytest.mark.timeout(180)
def test_cpu_figures_are_measured_and_kept_with_their_date(
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    warm_python: str,
) -> None:
    if find_spec("torch") is None:
        pytest.skip("no torch")
    monkeypatch.setenv("WARPBOARD_DATA", str(tmp_path))
    monkeypatch.setenv("WARPBOARD_PYTHON", warm_python)
    assert main(["--gpu", "cpu", "--no-noise", "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["measured"]
    assert {name: record["unit"] for name, record in facts["peaks"].items()} == {
        "copy_bytes_per_s": "B/s",
        "memory_bytes_per_s": "B/s",
        "gemm_fp32_flops_per_s": "FLOP/s",
    }
    assert min(record["value"] for record in facts["peaks"].values()) > 0
    assert facts["noise_floor_frac"] is None
    assert cpu_target().facts["peaks"] == facts["peaks"]
