"""Each model against a prediction that was computed by hand (in the comments)."""

import pytest

from analysis.advice import models
from analysis.advice.step_work import StepWork
from tests.analysis.advice.steps import elementwise, gemm, step


def test_a_graph_leaves_the_gpu_time_a_gap_between_kernels_and_one_launch() -> None:
    # 40 + 10 + 50 us of kernels, 3 gaps of 0.43 us, 5 us for the replay.
    found = models.graph_replay(step(300, [gemm(40), elementwise(10), gemm(50)]))

    assert found is not None
    assert found.latency_ns == pytest.approx(106_290)
    assert not found.host_decides


def test_a_graph_of_a_run_without_kernels_is_not_predicted() -> None:
    assert models.graph_replay(step(300, [])) is None


def test_a_fused_chain_takes_as_long_as_its_longest_kernel() -> None:
    # Chains: [10, 30] and [20]; with the products 40 + 50: 30 + 20 + 90 us, 4 operations.
    made = step(1000, [elementwise(10), elementwise(30), gemm(40), elementwise(20), gemm(50)])

    assert made.fused == pytest.approx((140_000, 4.0))


def test_sorting_is_not_fused() -> None:
    made = step(1000, [("radix_sort", "index", 10, ""), elementwise(30)])

    assert made.fused == pytest.approx((40_000, 2.0))


def test_compiled_and_the_host_decides_is_launches_times_what_a_launch_takes_now() -> None:
    # 5 launches in 1000 us: 200 us each; 4 are left: 800 us, more than the 140 us of the GPU.
    made = step(1000, [elementwise(10), elementwise(30), gemm(40), elementwise(20), gemm(50)])

    found = models.compiled(made)

    assert found is not None
    assert found.latency_ns == pytest.approx(800_000)
    assert found.host_decides


def test_compiled_and_the_gpu_decides_is_the_fused_time_with_todays_gaps() -> None:
    # 150 us of kernels in 155 us: 1 us between 5; fused 140 us + 4 us. A launch: at most 18.5 us.
    made = step(155, [elementwise(10), elementwise(30), gemm(40), elementwise(20), gemm(50)])

    found = models.compiled(made)

    assert found is not None
    assert found.latency_ns == pytest.approx(144_000)
    assert not found.host_decides


def test_the_optimizer_stays_as_it_is_when_the_model_is_compiled() -> None:
    # 198 us of kernels in 200 us: 0.4 us between 5. Without the optimizer's 60 us phase: chain of
    # 10 and 30 -> 30, products 90; 3 operations with 0.4 us each. Then the phase: 60 us.
    optimizer = ("adam", "optimizer", 58.0, "optimizer")
    made = step(
        200,
        [elementwise(10), elementwise(30), gemm(50), gemm(50), optimizer],
        phase_ns={"optimizer": 60_000.0},
    )

    found = models.compiled(made)

    assert found is not None
    assert found.latency_ns == pytest.approx(30_000 + 100_000 + 3 * 400 + 60_000)


def test_a_training_step_whose_host_decides_is_not_predicted_compiled() -> None:
    optimizer = ("adam", "optimizer", 10.0, "optimizer")
    made = step(2000, [gemm(10), gemm(10), optimizer], phase_ns={"optimizer": 100_000.0})

    assert models.compiled(made) is None


def test_compiled_with_graphs_is_the_larger_of_replay_and_entry() -> None:
    # Fused 140 us + 4 x 0.43 + 5 us = 146.72. The host decides in the first (185 / 5 = 37 us a
    # launch, 10 of them) and by the peak in the second (3.7 x 5 us, 10 of them).
    operations = [elementwise(10), elementwise(30), gemm(40), elementwise(20), gemm(50)]
    slow, fast = step(185, operations), step(155, operations)

    long = step(30_000, [gemm(20_000), gemm(9_000)])

    assert graphed_ns(slow) == pytest.approx(370_000)
    assert graphed_ns(fast) == pytest.approx(185_000)
    assert graphed_ns(long) == pytest.approx(29_000_000 + 2 * 430 + 5000)


def graphed_ns(made: StepWork) -> float:
    found = models.compiled_graph(made, is_compiled=False)
    assert found is not None
    return found.latency_ns


def test_tf32_scales_products_by_the_measured_rates_and_nothing_else() -> None:
    # 800 us of products at 50 -> 400 TFLOP/s: 100 us; 190 us stay, gaps stay at 10 us.
    made = step(1000, [gemm(800), elementwise(190)], params={"dtype": "fp32"})

    found = models.other_dtype(made, "tf32", is_autocast=True)

    assert found is not None
    assert found.latency_ns == pytest.approx(300_000)


def test_autocast_adds_casts_of_the_weights() -> None:
    # Products 800 -> 80 us; rest 190; casts 1.5 x 40 MB / 2 TB/s = 30 us; 3.5 gaps of 5 us.
    made = step(1000, [gemm(800), elementwise(190)], params={"dtype": "fp32"}, cost={"bytes": 40e6})

    found = models.other_dtype(made, "bf16", is_autocast=True)

    assert found is not None
    assert found.latency_ns == pytest.approx(80_000 + 190_000 + 30_000 + 3.5 * 5000)


def test_a_native_dtype_halves_what_is_limited_by_bytes() -> None:
    # Products: by rate 80 us, but 400 MB of fp32 are 200 MB: 100 us. Rest by bytes: 95 us. Gaps 10.
    made = step(
        1000,
        [gemm(800), elementwise(190)],
        params={"dtype": "fp32"},
        cost={"bytes": 400e6, "flops": 1e9},
    )

    found = models.other_dtype(made, "bf16", is_autocast=False)

    assert found is not None
    assert found.latency_ns == pytest.approx(100_000 + 95_000 + 10_000)


def test_fused_attention_is_its_arithmetic_at_a_share_of_the_measured_rate() -> None:
    # 445 GFLOP at 0.89 x 500 TFLOP/s = 1 ms.
    made = step(9000, [], params={"dtype": "fp16", "head_dim": 128}, cost={"flops": 445e9})

    found = models.fused_attention(made, "sdpa")

    assert found is not None
    assert found.latency_ns == pytest.approx(1e6)


def test_attention_so_short_that_the_host_decides_is_not_predicted() -> None:
    made = step(90, [], params={"dtype": "fp16", "head_dim": 128}, cost={"flops": 4e9})

    assert models.fused_attention(made, "sdpa") is None


def test_attention_with_narrow_heads_is_not_predicted() -> None:
    params = {"dtype": "fp16", "head_dim": 64}

    assert (
        models.fused_attention(step(9000, [], params=params, cost={"flops": 4e11}), "sdpa") is None
    )


def test_a_step_of_one_kernel_does_not_wait_for_its_host() -> None:
    # 800 us of a product by 1000 us of clean passes: it is the product that takes the time.
    made = step(1000, [gemm(800)], params={"dtype": "fp32"})

    found = models.other_dtype(made, "tf32", is_autocast=False)

    assert found is not None
    assert not found.host_decides
    assert found.latency_ns == pytest.approx(100_000 + 200_000)


def test_attention_inside_a_model_replaces_its_naive_kernels() -> None:
    # Naive: 300 + 200 us of 1000, in 2 kernels, 1 is left. 4 x 1 x 1000^2 x 1112.5 x 100 FLOP =
    # 445 GFLOP would be 1 ms; with 10 layers 100 us. 990 us of kernels, gaps of 10 / 4 us.
    made = step(
        1000,
        [
            gemm(300, "forward/attention/attention_scores"),
            ("softmax", "softmax", 200.0, "forward/attention/softmax"),
            gemm(290),
            elementwise(200),
        ],
        params={
            "dtype": "bf16",
            "d_model": 1112.5,
            "heads": 8,
            "batch": 1,
            "seq_len": 1000,
            "layers": 10,
        },
    )

    found = models.fused_attention(made, "sdpa")

    assert found is not None
    assert found.latency_ns == pytest.approx(990_000 - 400_000 + (4 + 8) * 2500)


def test_a_larger_batch_of_a_step_whose_host_decides_costs_nothing_more() -> None:
    made = step(
        1000, [gemm(40), gemm(40), elementwise(10)], cost={"flops": 1e6, "flops_dtype": "bf16"}
    )

    found = models.larger_batch(made, 2)

    assert found is not None
    assert found.latency_ns == pytest.approx(1_000_000)


def test_a_larger_batch_grows_what_is_limited_by_arithmetic_and_by_bytes_of_activations() -> None:
    # 900 us of products at their rate (450 GFLOP), 90 us beside: doubled; a 2 us kernel stays.
    made = step(
        995, [gemm(900), elementwise(90), elementwise(2)],
        cost={"flops": 450e9, "flops_dtype": "bf16"},
    )  # fmt: skip

    found = models.larger_batch(made, 2)

    assert found is not None
    assert found.latency_ns == pytest.approx(1_800_000 + 180_000 + 2_000 + 3_000)


def test_a_larger_batch_keeps_products_that_read_weights() -> None:
    # 900 us of products of which arithmetic is 9 us: twice the batch reads the same weights.
    made = step(1000, [gemm(900), elementwise(100)], cost={"flops": 4.5e9, "flops_dtype": "bf16"})

    found = models.larger_batch(made, 2)

    assert found is not None
    assert found.latency_ns == pytest.approx(900_000 + 200_000)


def test_a_fused_optimizer_reads_and_writes_seven_tensors_instead_of_twenty() -> None:
    # 400 us of kernels in a 400 us phase: 140 us.
    made = step(
        1000,
        [gemm(590), ("adam", "optimizer", 400.0, "optimizer")],
        phase_ns={"optimizer": 400_000.0},
    )

    found = models.fused_optimizer(made)

    assert found is not None
    assert found.latency_ns == pytest.approx(740_000)


def test_on_a_cpu_calls_and_waiting_threads_do_not_grow_with_the_batch() -> None:
    # 100 us of operators: 20 kFLOP at 2 GFLOP/s are 10 of the product's 60 us; 30 us beside grow,
    # a 10 us call does not: 40 % of 200 us, three times more.
    made = step(
        200, [gemm(60), elementwise(30), elementwise(10)], on_gpu=False, cost={"flops": 20e3}
    )

    found = models.larger_batch_on_cpu(made, 4)

    assert found is not None
    assert found.latency_ns == pytest.approx(200_000 * (1 + 3 * 0.4))


def test_on_a_cpu_a_compiler_leaves_one_group_around_each_product() -> None:
    # 4 fusible calls of 40 % in 2 groups: 60 % + 40 % / 2.
    operations = [gemm(60), *[elementwise(10)] * 4]

    found = models.compiled_on_cpu(step(200, operations, on_gpu=False))

    assert found is not None
    assert found.latency_ns == pytest.approx(160_000)
