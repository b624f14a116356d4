"""The steps of captures that nobody annotated, and of those that somebody did."""

import time

import numpy as np
import pytest
from made import launches, trace
from programs import GPU_NS, HOST_NS, run

from analysis.trace.model import RangeKind
from analysis.trace.steps import find_steps, steps_document

LAYER = ["norm", "qkv_gemm", "attention", "out_gemm", "mlp_up", "act", "mlp_down"]
HEAD = ["final_norm", "lm_head"]
TOKEN = ["embed", *LAYER * 8, *HEAD, "argmax", "DtoH", "wait"]
FORWARD = ["embed", *[f"f_{k}" for k in LAYER] * 6, "loss"]
BACKWARD = ["loss_grad", *[f"b_{k}_{i}" for k in LAYER for i in "dw"] * 6, "embed_grad"]
OPTIMIZER = ["multi_tensor_apply_kernel<Adam>"] * 4
START_UP = ["fill", "fill", "normal", "copy"] * 20


def found(trace):
    return steps_document(find_steps(trace))


def test_a_decode_loop_is_cut_into_its_tokens_with_its_layers_as_the_block() -> None:
    document = found(run([*START_UP, *TOKEN * 12]))

    assert (document["source"], document["count"]) == ("repetition", 12)
    assert document["num_kernels"] == 1 + 8 * 7 + 3
    assert document["block"] == {"num_kernels": 7, "count": 8}
    assert document["kernel_ns"] == 60 * GPU_NS


def test_layers_alone_are_no_steps_even_where_a_head_is_short() -> None:
    document = found(run(["embed", *LAYER * 32, "head"] * 3))

    assert (document["count"], document["num_kernels"]) == (3, 2 + 32 * 7)


def test_two_iterations_are_enough() -> None:
    document = found(run([*START_UP, *["embed", *LAYER * 12, *HEAD] * 2]))

    assert (document["count"], document["num_kernels"]) == (2, 3 + 12 * 7)


def test_what_the_host_waits_for_tells_two_layers_apart_from_two_steps() -> None:
    document = found(run([*LAYER * 2, "wait"] * 5))

    assert (document["count"], document["num_kernels"]) == (5, 14)


def test_a_training_step_ends_with_its_optimizer() -> None:
    steps = find_steps(run([*START_UP, *[*FORWARD, *BACKWARD, *OPTIMIZER] * 6]))
    document = steps_document(steps)

    assert (document["count"], document["num_excluded"]) == (6, 0)
    assert document["num_kernels"] == len(FORWARD + BACKWARD + OPTIMIZER)
    assert document["block"] == {"num_kernels": 14, "count": 6}
    assert steps.frame["start_ns"][0] == len(START_UP) * HOST_NS


def test_accumulated_gradients_are_micro_steps_of_one_step() -> None:
    micro = [*FORWARD, *BACKWARD]
    document = found(run([*START_UP, *[*micro * 4, *OPTIMIZER] * 5]))

    assert (document["count"], document["micro_steps"]) == (5, 4)
    assert document["num_kernels"] == 4 * len(micro) + len(OPTIMIZER)


def test_a_first_step_that_sets_up_the_optimizer_is_shown_and_not_averaged() -> None:
    step = [*FORWARD, *BACKWARD]
    first = [*step, *["fill"] * 40, *OPTIMIZER]
    document = found(run([*START_UP, *first, *[*step, *OPTIMIZER] * 7]))

    assert (document["count"], document["num_excluded"]) == (8, 1)
    assert document["excluded"][0]["reason"].startswith("warm-up: other launches")
    assert document["num_kernels"] == len(step) + len(OPTIMIZER)


def test_prefill_and_decode_are_two_kinds_of_step() -> None:
    prefill = ["embed", *[n for k in LAYER for n in (f"big_{k}", "split")] * 8, *TOKEN[-5:]]
    document = found(run([*START_UP, *[*prefill, *TOKEN * 7] * 3]))

    kinds = [(k["name"], k["count"]) for k in document["kinds"]]
    assert kinds == [("decode", 21), ("prefill", 3)]
    assert (document["count"], document["num_excluded"]) == (24, 3)


def test_an_autotuners_trials_are_no_steps() -> None:
    trial = ["memset", "RedzoneAllocatorKernelImpl", "wait", "DelayKernel", "gemm_7", "wait"]
    document = found(run([*trial * 300, *["graph"] * 6]))

    assert (document["source"], document["count"]) == ("graph", 6)
    assert "num_kernels" not in document
    assert document["graph_ns"] == GPU_NS


def test_a_graph_replayed_node_by_node_is_one_launch_whatever_the_order_inside() -> None:
    nodes = tuple(LAYER)
    document = found(run([nodes, nodes[::-1], nodes, nodes, nodes[::-1]]))

    assert (document["source"], document["count"]) == ("graph", 5)
    assert (document["num_kernels"], document["num_launches"]) == (7, 1)


def test_a_step_that_was_held_up_is_an_outlier() -> None:
    pauses = {len(TOKEN) * 5 + 3: 40 * len(TOKEN) * HOST_NS}
    document = found(run(TOKEN * 10, pauses=pauses))

    assert (document["count"], document["num_excluded"]) == (10, 1)
    assert document["excluded"][0]["reason"].startswith("outlier: took")


def test_where_nothing_repeats_it_says_so() -> None:
    assert found(run([f"kernel_{i}" for i in range(200)])) == {
        "reason": "nothing in the launch sequence repeats often enough, and no range is numbered"
    }
    assert found(run([])) == {"reason": "no GPU work was recorded"}


def test_numbered_ranges_inside_numbered_ranges_count_once() -> None:
    outer = [(f"iteration_{i}", 40 * i, 40 * i + 40) for i in range(4)]
    inner = [(f"step_{j}", 40 * i + 4 * j, 40 * i + 4 * j + 4) for i in range(4) for j in range(10)]
    document = found(run(["a", "b", "c", "d"] * 40, ranges=[*outer, *inner]))

    assert (document["source"], document["count"]) == ("ranges", 4)
    assert document["num_kernels"] == 40


@pytest.mark.parametrize("name", ["step {}", "Iteration #{}", "batch {}", "train_step:{}", "it {}"])
def test_other_numbered_ranges_are_steps_too(name: str) -> None:
    size = len(TOKEN)
    ranges = [(name.format(i + 7), size * i, size * i + size) for i in range(5)]

    document = found(run(TOKEN * 5, ranges=ranges))

    assert (document["source"], document["count"]) == ("ranges", 5)


def test_numbered_layers_and_epochs_are_no_steps() -> None:
    layers = [(f"layer_{i}", 7 * i, 7 * i + 7) for i in range(32)]
    steps = [(f"step {i}", 56 * i, 56 * i + 56) for i in range(4)]
    epochs = [(f"epoch {i}", 112 * i, 112 * i + 112) for i in range(2)]

    document = found(run(LAYER * 32, ranges=[*layers, *steps, *epochs]))

    assert (document["count"], document["num_kernels"]) == (4, 56)


def test_kernels_of_autograds_thread_belong_to_the_profilers_step() -> None:
    step = [*FORWARD, *BACKWARD, *OPTIMIZER]
    threads = [1 if "_grad" in k or k[:2] == "b_" else 0 for k in step] * 3
    ranges = [(f"ProfilerStep#{i + 2}", len(step) * i, len(step) * (i + 1)) for i in range(3)]

    document = found(run(step * 3, ranges=ranges, threads=threads))

    assert (document["source"], document["count"]) == ("profiler_step", 3)
    assert document["num_kernels"] == len(step)


def test_optimizer_ranges_cut_steps_and_the_first_is_found_by_its_launches() -> None:
    step = [*FORWARD, *BACKWARD, *OPTIMIZER]
    base = len(START_UP)
    ends = [base + len(step) * (i + 1) for i in range(5)]
    ranges = [("Optimizer.step#AdamW.step", end - len(OPTIMIZER), end) for end in ends]

    trace = run([*START_UP, *step * 5], ranges=ranges, kind=RangeKind.OPERATOR)
    document = found(trace)

    assert (document["source"], document["count"]) == ("optimizer", 5)
    assert document["num_kernels"] == len(step)


def test_idle_time_is_what_the_period_leaves() -> None:
    document = found(run([*["a", "b", "c"], "wait"] * 6))

    # Three launches and a wait of 10 us each; the wait ends with the GPU's work.
    assert document["busy_ns"] == 3 * GPU_NS
    assert document["idle_frac"] == pytest.approx(1 - document["busy_ns"] / document["period_ns"])


def test_a_step_of_two_gpus_is_as_idle_as_the_busier_of_them() -> None:
    trace = run([*["a", "b", "c"], "wait"] * 6)
    trace.gpu_ops.device[:] = np.arange(len(trace.gpu_ops)) % 3 == 1

    document = found(trace)

    assert document["kernel_ns"] == 3 * GPU_NS
    assert document["busy_ns"] == 2 * GPU_NS
    assert document["idle_frac"] == pytest.approx(1 - 2 * GPU_NS / document["period_ns"])


def test_the_last_step_holds_its_last_launch_as_the_others_do() -> None:
    frame = find_steps(run(["a", "b", "c", "wait"] * 6)).frame

    assert frame["num_api_calls"].nunique() == 1


def test_profiler_steps_that_overlap_by_rounding_are_steps() -> None:
    size = len(TOKEN)
    ranges = [(f"ProfilerStep#{i}", size * i, size * i + size) for i in range(5)]
    trace = run(TOKEN * 5, ranges=ranges)
    trace.host_ranges.end_ns[:] += 1_000

    steps = find_steps(trace)

    assert (steps.source, len(steps.frame)) == ("profiler_step", 5)
    assert (steps.frame["end_ns"][:-1].to_numpy() <= steps.frame["start_ns"][1:].to_numpy()).all()


def test_each_operation_knows_its_step() -> None:
    steps = find_steps(run([*START_UP, *TOKEN * 4]))

    counts = np.bincount(steps.op_step[steps.op_step >= 0])
    assert counts.tolist() == [len(TOKEN) - 1] * 4
    assert (steps.op_step[: len(START_UP)] == -1).all()


def test_three_hundred_thousand_launches_take_seconds() -> None:
    trace = run([*START_UP, *TOKEN * 4_700])

    begin = time.process_time()
    document = found(trace)

    assert document["count"] == 4_700
    assert time.process_time() - begin < 5


def test_each_step_range_of_a_serving_engine_is_a_step_whatever_its_sizes() -> None:
    names = ["step[EXTEND bs=15 toks=512]", "step[DECODE bs=15]", "step[DECODE bs=14]"]
    ranges = [(n, len(TOKEN) * i, len(TOKEN) * (i + 1)) for i, n in enumerate(names)]

    document = found(run(TOKEN * 3, ranges=ranges))

    assert (document["source"], document["count"]) == ("ranges", 3)


@pytest.mark.parametrize("name", ["step {}", "Optimizer.step#AdamW.step"])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_accumulated_gradients_are_told_where_ranges_mark_the_steps(name: str, count: int) -> None:
    passes = [*FORWARD, *BACKWARD] * count
    size = len(passes) + len(OPTIMIZER)
    begin = 0 if "{}" in name else len(passes)
    ranges = [(name.format(i), size * i + begin, size * i + size) for i in range(5)]

    document = found(run([*passes, *OPTIMIZER] * 5, ranges=ranges))

    assert document["source"] == ("ranges" if "{}" in name else "optimizer")
    assert document["micro_steps"] == (count if count > 1 else None)


def test_the_layers_of_a_forward_pass_are_no_micro_steps_of_marked_ones() -> None:
    size = len(TOKEN)
    ranges = [(f"step {i}", size * i, size * i + size) for i in range(5)]

    assert found(run(TOKEN * 5, ranges=ranges))["micro_steps"] is None


def test_a_gpu_that_another_process_uses_does_not_idle() -> None:
    """Of 1000 ns a step runs 200 itself, another process 150 (100 of them at the same time)."""
    ranges = [(f"iteration_{i}", 1_000 * i, 1_000 * i + 1_000, 0) for i in range(4)]
    calls = [c for i in range(4) for c in launches((1_000 * i, 0), (1_000 * i + 100, 2))]
    ops = [
        op
        for i in range(4)
        for op in (
            (1_000 * i + 10, 1_000 * i + 210, 2 * i),
            (1_000 * i + 110, 1_000 * i + 260, 2 * i + 1),
        )
    ]

    document = steps_document(
        find_steps(trace(ranges=ranges, calls=calls, ops=ops, thread_process=(0, 0, 1)))
    )

    assert (document["count"], document["num_kernels"], document["kernel_ns"]) == (4, 1, 200)
    assert (document["busy_ns"], document["idle_frac"]) == (250, 0.75)
