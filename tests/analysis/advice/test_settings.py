"""What a program of the user is offered: settings from outside, lines inside, and nothing else."""

from typing import Any

import pandas as pd
import pytest

from analysis.advice.settings import Setting, settings_for
from analysis.advice.step_work import StepWork
from tests.analysis.advice.steps import Operation, elementwise, gemm, step

CALLS = ("name", "count", "total_ns")
TRANSFERS = ("kind", "src", "dst", "bytes", "total_ns")


def offered(
    made: StepWork,
    calls: list[tuple[str, int, float]] | None = None,
    copies: list[tuple[str, str, str, float, float]] | None = None,
    **facts: Any,
) -> dict[str, Setting]:
    peaks = {**made.peaks, "htod_bytes_per_s": 50e9}
    found = settings_for(
        made,
        pd.DataFrame(calls or [], columns=list(CALLS)),
        pd.DataFrame(copies or [], columns=list(TRANSFERS)),
        peaks,
        **facts,
    )
    return {s.name: s for s in found}


def test_driver_allocations_of_a_step_are_what_growing_segments_save() -> None:
    made = step(1000, [gemm(900)])

    found = offered(made, [("cudaMalloc", 2, 90_000.0), ("cudaFree", 1, 10_000.0)])

    assert found["alloc_conf"].environment == {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"
    }
    assert found["alloc_conf"].estimate.latency_ns == pytest.approx(900_000)


def test_loading_code_inside_a_step_is_what_loading_at_the_start_saves() -> None:
    found = offered(step(1000, [gemm(900)]), [("cuModuleLoadData", 1, 200_000.0)])

    assert found["module_loading"].estimate.latency_ns == pytest.approx(800_000)


def test_fp32_products_run_at_the_rate_of_tf32() -> None:
    # 800 us at 50 TFLOP/s are 100 us at 400: 700 us less.
    sgemm: Operation = ("ampere_sgemm_128x64_tn", "gemm", 800, "")

    found = offered(step(1000, [sgemm, elementwise(190)]))

    assert found["tf32_override"].estimate.latency_ns == pytest.approx(300_000)
    assert found["tf32_override"].lines == ('torch.set_float32_matmul_precision("high")',)


def test_pageable_copies_take_the_time_of_pinned_ones() -> None:
    # 5 MB in 600 us; at 50 GB/s they take 100 us.
    found = offered(step(1000, [gemm(300)]), None, [("HtoD", "pageable", "device", 5e6, 600_000.0)])

    assert found["pinned_copies"].estimate.latency_ns == pytest.approx(500_000)


def test_a_step_of_short_kernels_is_offered_a_graph_and_both_ways_to_compile() -> None:
    # A product of 10 us and additions of 3 and 2, ten times, in a step of 1 ms: the host decides.
    # Fused, 20 launches are left of 30.
    made = step(1000, [gemm(10), elementwise(3), elementwise(2)] * 10)

    found = offered(made, step_ns=150_000.0)

    assert set(found) == {"graph", "compile_graph", "compile"}
    assert found["graph"].estimate.latency_ns == pytest.approx(150_000 + 30 * 430 + 5000)
    assert found["compile"].estimate.latency_ns == pytest.approx(1_000_000 * 20 / 30)
    assert found["compile"].lines == ("model = torch.compile(model)",)
    assert {s.kind for s in found.values()} == {f"{n} (own program)" for n in found}


@pytest.mark.parametrize(
    ("operations", "facts"),
    [
        ([("triton_poi_fused_add_0", "elementwise", 5, "")] * 20, {"has_graphs": True}),
        ([gemm(10), elementwise(5)] * 10, {"has_graphs": True}),
        ([gemm(10), elementwise(5)] * 10, {"step_ns": 70_000.0}),
        ([gemm(10), elementwise(5)] * 10, {"step_ns": None}),
    ],
    ids=["compiled, with graphs", "with graphs", "capture of more than its steps", "no steps"],
)
def test_nothing_is_offered_that_is_there_already_or_cannot_be_known(
    operations: list[Operation], facts: dict[str, Any]
) -> None:
    total_ns = sum(us for _, _, us, _ in operations) * 1000

    assert offered(step(1000, operations), **{"step_ns": total_ns, **facts}) == {}


def test_a_training_step_is_offered_the_fused_optimizer_and_no_graph() -> None:
    # 200 us of lists of tensors are 70 fused: 130 us less. The GPU decides.
    lists: Operation = ("multi_tensor_apply_kernel<BinaryOpListAlphaFunctor>", "optimizer", 100, "")
    made = step(1000, [gemm(500), gemm(250), lists, lists])

    found = offered(made, step_ns=950_000.0)

    assert "graph" not in found and "compile_graph" not in found
    assert found["optimizer"].estimate.latency_ns == pytest.approx(870_000)


def test_an_optimizer_that_is_fused_stays() -> None:
    fused: Operation = ("multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer", 200, "")

    assert "optimizer" not in offered(step(1000, [gemm(750), fused]), step_ns=950_000.0)
