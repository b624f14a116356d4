"""Projection with peaks that a reader can divide by hand."""

from dataclasses import replace

import pytest

from analysis.projection import CheckedPair, learned_band, project
from core.gpus import find_gpu
from tests.analysis.run_views import empty_view, nsys_view

TARGET = find_gpu("NVIDIA H200")
PEAKS = {"copy_bytes_per_s": 3e12, "gemm_bf16_flops_per_s": 600e12}
COMPUTE = {"flops": 1e12, "bytes": 1e6, "flops_dtype": "bf16"}


def measured(cost=COMPUTE, capture="forward_fp32", latency_ms=20.0):
    view = nsys_view(capture)
    summary = {**view.summary, "latency_ms": {"median": latency_ms}}
    return replace(view, summary=summary, peaks=PEAKS, cost=cost)


def test_equal_peaks_give_the_measured_latency():
    found = project(measured(), PEAKS, TARGET)
    assert found.latency_ns == pytest.approx(20e6)
    assert (found.low_ns, found.high_ns) == (pytest.approx(20e6 / 1.3), pytest.approx(26e6))
    assert "assumed" in found.notes[0]


def test_only_the_compute_part_gains_from_a_faster_tensor_core():
    faster = {**PEAKS, "gemm_bf16_flops_per_s": 1200e12}
    view = measured()
    gemm_ns = 26_854_460
    whole_ns = view.summary["kernel_time_ns"] + view.summary["span_ns"] - view.summary["busy_ns"]
    found = project(view, faster, TARGET)
    assert found.latency_ns == pytest.approx(20e6 * (1 - gemm_ns / 2 / whole_ns), rel=1e-6)


def test_a_memory_bound_workload_gains_nothing_from_it():
    memory = {"flops": 1e6, "bytes": 1e9, "flops_dtype": "bf16"}
    faster = {**PEAKS, "gemm_bf16_flops_per_s": 1200e12}
    assert project(measured(memory), faster, TARGET).latency_ns == pytest.approx(20e6)


def test_idle_time_stays_the_hosts():
    twice = {"copy_bytes_per_s": 6e12, "gemm_bf16_flops_per_s": 1200e12}
    view = measured(capture="decode_eager", latency_ms=2.5)
    found = project(view, twice, TARGET)
    assert found.latency_ns > 0.83 * 2.5e6
    assert any("waits for the host" in note for note in found.notes)


def test_the_datasheet_stands_in_for_peaks_that_were_not_measured():
    view = replace(measured(), peaks={})
    assert "memory x 0.70, compute x 1.00" in project(view, {}, TARGET).basis


def test_a_measured_peak_is_never_set_against_a_datasheets():
    basis = project(measured(), {}, TARGET).basis
    assert "memory x 0.70, compute x 1.00" in basis


def test_a_target_outside_the_table_needs_its_measured_peaks():
    assert project(measured(), PEAKS, None).latency_ns == pytest.approx(20e6)
    with pytest.raises(ValueError, match="copy_bytes_per_s"):
        project(measured(), {}, None)


def test_too_much_memory_for_the_target_is_noted():
    view = measured()
    view = replace(view, summary={**view.summary, "peak_memory_bytes": 200e9})
    assert any("likely OOM" in note for note in project(view, PEAKS, TARGET).notes)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (empty_view(), "no clean latency"),
        (replace(measured(), kernels=empty_view().kernels), "no kernels"),
        (measured(cost={"flops_dtype": "fp4"}), "gemm_fp4_flops_per_s is not known for both"),
    ],
)
def test_what_is_missing_is_named(view, says):
    with pytest.raises(ValueError, match=says):
        project(view, PEAKS, TARGET)


def test_the_band_is_learned_from_jobs_that_wait_for_the_host_alike():
    def pair(projected_ms: float, is_host_bound: bool) -> CheckedPair:
        fixed = {"source_id": "a", "target_id": "b", "measured_ms": 10.0}
        return CheckedPair(projected_ms=projected_ms, is_host_bound=is_host_bound, **fixed)

    busy = [pair(ms, is_host_bound=False) for ms in (9.5, 10.0, 10.2)]
    waiting = [pair(ms, is_host_bound=True) for ms in (5.0, 25.0)]

    by_kind = learned_band([*busy, *waiting], is_host_bound=False)
    of_all = learned_band([*busy, *waiting], is_host_bound=True)

    assert by_kind and by_kind.band_frac == pytest.approx(10 / 9.5 - 1) and len(by_kind.pairs) == 3
    assert of_all and of_all.band_frac == pytest.approx(1.5) and len(of_all.pairs) == 5
    assert learned_band(busy[:2], is_host_bound=False) is None
