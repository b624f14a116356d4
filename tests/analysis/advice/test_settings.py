"""What a program of the user is offered: settings from outside, lines inside, and nothing else."""

from typing import Any

import pandas as pd
import pytest

from analysis.advice.settings import Program, Setting, settings_for
from analysis.advice.step_work import StepWork
from tests.analysis.advice.steps import Operation, elementwise, gemm, step

TRANSFERS = ("kind", "src", "dst", "bytes", "total_ns")


def offered(
    made: StepWork,
    copies: list[tuple[str, str, str, float, float]] | None = None,
    **facts: Any,
) -> dict[str, Setting]:
    program = Program(
        **{
            "environment": {"torch": "2.11.0"},
            "transfers": pd.DataFrame(copies or [], columns=list(TRANSFERS)),
            **facts,
        }
    )
    found = settings_for(made, program, {**made.peaks, "htod_bytes_per_s": 50e9})
    return {s.name: s for s in found}


def allocating(*calls: str, idle_us: float = 100, **facts: Any) -> dict[str, Any]:
    """Return the facts of a program whose host makes these calls while the GPU idles."""
    return {
        "api_calls": pd.DataFrame({"name": calls, "count": 5, "total_ns": 400_000.0}),
        "idle_host": pd.DataFrame(
            {
                "group": ["allocation"] * len(calls) + ["launch"],
                "call": [*calls, None],
                "step_idle_ns": [idle_us * 1e3 / len(calls)] * len(calls) + [50_000.0],
            }
        ),
        **facts,
    }


def test_idle_time_while_the_host_asks_the_driver_for_memory_is_what_growing_segments_save() -> (
    None
):
    # The calls take 400 us each, but the GPU waits for them for 100 us in all.
    facts = allocating("cudaMalloc", "cudaFree_v3020", num_alloc_retries=7)

    found = offered(step(1000, [gemm(800)]), **facts)

    assert found["alloc_conf"].environment == {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"
    }
    assert found["alloc_conf"].estimate.latency_ns == pytest.approx(900_000)
    assert found["alloc_conf"].kind == "allocator"


def test_memory_in_pieces_is_evidence_for_growing_segments() -> None:
    facts = allocating("cudaMalloc", allocated_bytes=7_000_000_000, reserved_bytes=149_400_000_000)

    found = offered(step(1000, [gemm(800)]), **facts)

    assert "149 GB are reserved for at most 7 GB in use" in found["alloc_conf"].estimate.evidence


def test_options_are_added_to_the_variable_that_the_program_ran_with() -> None:
    facts = allocating("cudaMalloc", settings={"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"})

    found = offered(step(1000, [gemm(800)]), **facts)

    assert found["alloc_conf"].environment == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize(
    "facts",
    [
        allocating("cudaMalloc", "cudaFree"),
        allocating("cudaMalloc", idle_us=5),
        allocating("cudaMallocHost"),
        allocating("cudaMalloc", environment={"jax": "0.5"}),
        allocating("cudaMalloc", settings={"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}),
        {},
    ],
    ids=["emptied by the program", "hidden behind kernels", "host memory", "not PyTorch",
         "the driver's own allocator", "no calls"],
)  # fmt: skip
def test_growing_segments_are_not_offered_where_they_would_save_nothing(
    facts: dict[str, Any],
) -> None:
    assert "alloc_conf" not in offered(step(1000, [gemm(800)]), **facts)


SGEMM = "ampere_sgemm_128x64_tn"


def test_fp32_products_run_at_the_rate_of_tf32() -> None:
    # 800 us at 50 TFLOP/s are 100 us at 400: 700 us less.
    found = offered(step(1000, [(SGEMM, "gemm", 800, ""), elementwise(190)]))

    assert found["tf32_override"].estimate.latency_ns == pytest.approx(300_000)
    assert found["tf32_override"].environment == {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}
    assert found["tf32_override"].lines == ('torch.set_float32_matmul_precision("high")',)


def test_faster_products_do_not_make_the_host_faster() -> None:
    # 40 launches of 3.7 * 5 us: the host needs 740 us; the GPU would need 100 + 160 of 960.
    made = step(1000, [(SGEMM, "gemm", 40, ""), elementwise(8)] * 20)

    estimate = offered(made)["tf32_override"].estimate

    assert estimate.latency_ns == pytest.approx(740_000)
    assert estimate.host_decides


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", {}),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", {}),
        ("void gemmSN_TN_kernel<__nv_bfloat16, 128, 16, 2, 4>", {}),
        (SGEMM, {"environment": {"jax": "0.5"}}),
        (SGEMM, {"settings": {"NVIDIA_TF32_OVERRIDE": "0"}}),
    ],
    ids=["tf32 already", "tensor cores", "bf16", "not PyTorch", "turned off for all libraries"],
)
def test_tf32_is_not_offered_where_it_would_change_nothing(
    name: str, facts: dict[str, Any]
) -> None:
    assert "tf32_override" not in offered(step(1000, [(name, "gemm", 950, "")]), **facts)


def test_a_program_without_a_known_environment_is_pytorchs_by_its_kernels() -> None:
    native: Operation = ("void at::native::vectorized_elementwise_kernel", "elementwise", 100, "")

    assert "tf32_override" in offered(
        step(1000, [(SGEMM, "gemm", 850, ""), native]), environment={}
    )


BY_VARIABLE = ", by OMP_NUM_THREADS"


def on_cpu(threads: str) -> dict[str, Setting]:
    """Return what a CPU step is offered: 600 us of products, 300 us of others, 100 us of calls."""
    operators = [("aten::mm", "gemm", 600, ""), ("aten::add", "elementwise", 300, "")]
    operators += [("aten::view", "other", 5, "")] * 20
    made = step(2000, operators, on_gpu=False, gpu_model="cpu")
    return offered(made, environment={"torch": "2.11.0", "threads": threads})


def test_long_operators_get_as_many_threads_as_there_are_cores() -> None:
    # 600 / 8 + 300 / 4 + 100 = 250 of 1000 us: a quarter of 2 ms.
    found = on_cpu("1 of 8 cores" + BY_VARIABLE)

    assert found["threads"].environment == {"OMP_NUM_THREADS": "8"}
    assert found["threads"].estimate.latency_ns == pytest.approx(500_000)


@pytest.mark.parametrize(
    "threads",
    ["8 of 8 cores" + BY_VARIABLE, "1 of 8 cores", ""],
    ids=["all used", "set by the program itself", "unknown"],
)
def test_threads_are_not_offered_where_the_variable_does_not_hold_them_back(threads: str) -> None:
    assert on_cpu(threads) == {}


def test_pageable_copies_take_the_time_of_pinned_ones() -> None:
    # 5 MB in 600 us; at 50 GB/s they take 100 us.
    found = offered(step(1000, [gemm(300)]), [("HtoD", "pageable", "device", 5e6, 600_000.0)])

    assert found["pinned_copies"].estimate.latency_ns == pytest.approx(500_000)


def test_a_step_of_short_kernels_is_offered_graphs_and_no_compiling_without_them() -> None:
    # A product of 10 us and additions of 3 and 2, ten times, in a step of 1 ms: the host decides.
    made = step(1000, [gemm(10), elementwise(3), elementwise(2)] * 10)

    found = offered(made, step_ns=150_000.0)

    assert set(found) == {"graph", "compile_graph"}
    assert found["graph"].estimate.latency_ns == pytest.approx(150_000 + 30 * 430 + 5000)
    assert {s.kind for s in found.values()} == {f"{n} (own program)" for n in found}


def test_a_step_of_long_kernels_is_offered_compiling_by_what_fusing_takes_away() -> None:
    # 50 us of additions become 30 with a product of 50 each, nine times in a step of 1 ms.
    made = step(1000, [gemm(50), elementwise(30), elementwise(20)] * 9)

    found = offered(made, step_ns=900_000.0)

    gap_ns = (1_000_000 - 900_000) / 27
    assert found["compile"].estimate.latency_ns == pytest.approx(720_000 + 18 * gap_ns)
    assert found["compile"].lines == ("model = torch.compile(model)",)


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
