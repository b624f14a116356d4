"""Steps of made-up programs of many kinds, from nothing but what they launch."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from programs import HOST_NS, run

from analysis.trace.repetition import find_repetition
from analysis.trace.steps import find_steps, steps_document
from analysis.trace.thread_loops import _plainly_take_turns

LAYER = ["norm", "qkv_gemm", "attention", "out_gemm", "mlp_up", "act", "mlp_down"]
HEAD = ["final_norm", "lm_head"]
READ = ["DtoH", "wait"]
TOKEN = ["embed", *LAYER * 8, *HEAD, "argmax", *READ]
FORWARD = ["embed", *[f"f_{k}" for k in LAYER] * 6, "loss"]
BACKWARD = ["loss_grad", *[f"b_{k}_{i}" for k in LAYER for i in "dw"] * 6, "embed_grad"]
ADAM = "multi_tensor_apply_kernel<Adam>"
OPTIMIZER = [ADAM] * 4
MICRO = [*FORWARD, *BACKWARD]
TRAIN = [*MICRO, *OPTIMIZER]
START_UP = ["fill", "fill", "normal", "copy"] * 20
JAX = ["loop_add_fusion", "gemm_fusion_dot_1", "loop_multiply_fusion_3", "wrapped_tanh"]


def found(program: list[Any]) -> dict[str, Any]:
    return steps_document(find_steps(run(program)))


def prefill(bucket: int) -> list[str]:
    """Return a prompt's pass; its length decides which kernels are chosen."""
    layer = [x for k in LAYER for x in (f"big{bucket}_{k}", *["split"] * (bucket % 2))]
    return ["embed", *layer * 8, *TOKEN[-5:]]


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("num_steps", [2, 6])
@pytest.mark.parametrize("per_micro", [[], READ], ids=["", "loss read each pass"])
@pytest.mark.parametrize("before", [[], ["zero"] * 10], ids=["", "gradients set to zero"])
def test_accumulated_gradients(
    count: int, num_steps: int, per_micro: list[str], before: list[str]
) -> None:
    step = [*before, *[*MICRO, *per_micro] * count, *OPTIMIZER]

    document = found([*START_UP, *step * num_steps])

    assert (document["count"], document["micro_steps"]) == (num_steps, count)
    assert document["num_kernels"] == len(before) + count * len(MICRO) + len(OPTIMIZER)


@pytest.mark.parametrize("count", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("num_steps", [2, 6])
def test_the_first_of_accumulated_passes_adds_to_no_gradients(count: int, num_steps: int) -> None:
    """PyTorch sets gradients to none: the first pass writes them, the others add to them."""
    adding = [x for name in BACKWARD for x in ([name, "add"] if name.endswith("w") else [name])]
    step = [*MICRO, *[*FORWARD, *adding] * (count - 1), *OPTIMIZER]

    document = found([*START_UP, *step * num_steps])

    assert (document["count"], document["micro_steps"]) == (num_steps, count)
    assert document["num_kernels"] == len(step)
    assert document["block"] == {"num_kernels": 21, "count": 6 * count}


def test_an_optimizer_of_single_operations_hides_no_accumulated_passes() -> None:
    one = ["mul_", "lerp_", "addcmul_", "sqrt", "div", "add_", "fused_adam_part"]
    step = ["draw", "one_hot", *MICRO * 2, "norm", "clip", *["scale"] * 12, *one * 20]

    document = found([*START_UP, *step * 5])

    assert (document["count"], document["micro_steps"]) == (5, 2)


@pytest.mark.parametrize("lengths", [(5, 9, 3, 12, 7), (2, 3, 2, 2, 3, 2)])
@pytest.mark.parametrize("buckets", [(1,), (1, 2, 3)])
def test_requests_of_several_lengths(lengths: tuple[int, ...], buckets: tuple[int, ...]) -> None:
    program = [*START_UP]
    for i, length in enumerate(lengths):
        program += [*prefill(buckets[i % len(buckets)]), *TOKEN * length]

    document = found(program)

    assert document["count"] == len(lengths) + sum(lengths)
    assert document["num_kernels"] == len(TOKEN) - len(READ)


@pytest.mark.parametrize(
    "drafts", [[4] * 10, [4, 4, 3, 4, 5, 4, 4, 4, 3, 4]], ids=["even", "uneven"]
)
def test_speculative_decoding_steps_by_what_is_verified(drafts: list[int]) -> None:
    draft = ["embed", *[f"d_{k}" for k in LAYER] * 2, *HEAD, "argmax"]
    verify = ["embed", *[f"v_{k}" for k in LAYER] * 8, *HEAD, "accept", *READ]

    document = found([*START_UP, *[x for n in drafts for x in [*draft * n, *verify]]])

    assert document["count"] == len(drafts)
    assert document["num_kernels"] == 4 * len(draft) + len(verify) - len(READ)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_whose_copies_back_nobody_waits_for_are_one_step_where_the_host_waits_once(
    parts: int,
) -> None:
    part = ["HtoD", "memset", *["scale"] * 6, "rows", "DtoH"]

    document = found([*[*part * parts, "wait"] * 20])

    assert (document["count"], document["num_kernels"]) == (20, parts * 7)


def test_copies_back_that_are_waited_for_end_steps_however_seldom_the_program_waits_for_all() -> (
    None
):
    step = ["HtoD", "memset", *["scale"] * 6, "rows", *READ]

    document = found([*[*step * 4, "wait"] * 20])

    assert (document["count"], document["num_kernels"]) == (80, 7)


@pytest.mark.parametrize(
    ("step", "source"),
    [
        (["graph"], "graph"),
        (["graph", "wait"], "graph"),
        ([tuple(LAYER * 8), "argmax", *READ], "graph"),
        ([*[tuple(LAYER[:2]), "attention", tuple(LAYER[3:])] * 8, "argmax", *READ], "graph"),
    ],
    ids=["whole", "whole, waited for", "by node", "in pieces"],
)
def test_graphs(step: list[Any], source: str) -> None:
    document = found(step * 12)

    assert (document["source"], document["count"]) == (source, 12)


def test_steps_that_launch_the_same_in_other_numbers() -> None:
    chosen = random.Random(4)
    chunks = [
        ["norm", "qkv_gemm", *["attention"] * chosen.randint(1, 4), "out_gemm"] for _ in "x" * 16
    ]

    document = found([*START_UP, *[x for c in chunks for x in ["embed", *c * 8, *HEAD, *READ]]])

    assert (document["count"], document["num_excluded"]) == (16, 0)


def test_experts_of_another_number_each_layer() -> None:
    chosen = random.Random(4)

    def layer() -> list[str]:
        return [*LAYER[:4], "router", "topk", *["expert"] * chosen.randint(3, 8), "combine"]

    step = lambda: ["embed", *[x for _ in range(8) for x in layer()], *HEAD, *READ]  # noqa: E731

    assert found([*START_UP, *[x for _ in range(14) for x in step()]])["count"] == 14


def test_trials_of_an_autotuner_of_triton_are_no_steps() -> None:
    trials = [*["cache_clear", "mm_config_a"] * 10, *["cache_clear", "mm_config_b"] * 10] * 3

    document = found([*START_UP, *trials, *TOKEN * 10])

    assert (document["count"], document["num_kernels"]) == (10, len(TOKEN) - len(READ))


@pytest.mark.parametrize(
    "evaluation", [["embed", *[f"e_{k}" for k in LAYER] * 6, "loss", *READ], [*FORWARD, *READ]]
)
def test_evaluation_between_epochs_is_another_kind_of_step(evaluation: list[str]) -> None:
    document = found([*START_UP, *[*TRAIN * 10, *evaluation * 4] * 3])

    assert document["num_kernels"] == len(TRAIN)
    assert [kind["count"] for kind in document["kinds"]] == [30, 12]


@pytest.mark.parametrize(
    "now_and_then",
    [[*["DtoH"] * 60, "wait"], ["reduce_loss", *READ]],
    ids=["checkpoint", "log"],
)
def test_checkpoints_and_logs_are_no_steps(now_and_then: list[str]) -> None:
    document = found([*START_UP, *[*TRAIN * 8, *now_and_then] * 3])

    assert (document["count"], document["num_kernels"]) == (24, len(TRAIN))


@pytest.mark.parametrize(("num_own", "num_shared"), [(1, 4), (2, 8), (3, 8), (4, 6), (5, 8)])
def test_two_variants_of_one_program_one_after_the_other_are_two_kinds_of_step(
    num_own: int, num_shared: int
) -> None:
    """A benchmark runs each variant ten times: some kernels differ, one clears more at its end."""
    shared = [*[f"part {i}" for i in range(num_shared)], "DtoH", "wait"]
    plain = [*[f"plain {i}" for i in range(num_own)], *shared, "memset"]
    tiled = [*[f"tiled {i}" for i in range(num_own)], *shared]

    document = found([*plain * 10, *tiled * 10])

    assert document["count"] == 20
    left_out = {row["reason"]: row["count"] for row in document["excluded"]}
    assert left_out["another kind of step (as many kernels, of other names)"] >= 9


def test_two_optimizers_that_take_turns_are_one_step() -> None:
    critic = [*[f"g_{k}" for k in LAYER] * 3, *[f"d_{k}" for k in LAYER] * 4, *[ADAM] * 2]
    generator = [*critic[:-2], *[f"gb_{k}" for k in LAYER] * 3, *[ADAM] * 3]

    document = found([*START_UP, *[*critic, *generator] * 8])

    assert (document["count"], document["num_kernels"]) == (8, len(critic) + len(generator))


@pytest.mark.parametrize(("step", "num"), [(TRAIN, 8), (TOKEN, 12)], ids=["training", "decode"])
def test_captures_that_begin_and_end_within_a_step(step: list[str], num: int) -> None:
    document = found((step * num)[50:-50])

    assert document["num_kernels"] == len([x for x in step if x not in READ])
    assert document["count"] == num - 2


@pytest.mark.parametrize(
    ("step", "num"),
    [
        ([*JAX, "input_reduce_fusion", *READ], 15),
        (["wrapped_gather", *JAX * 12, "loop_subtract_fusion", "input_reduce_fusion"], 9),
        (["triton_add_kernel"], 30),
        (["a_kernel", "b_kernel", "c_kernel"], 10),
        (["HtoD", *READ], 10),
        (["gemm"], 5),
    ],
    ids=["jitted", "scanned layers", "one kernel", "three kernels", "only copies", "five launches"],
)
def test_programs_of_few_names(step: list[str], num: int) -> None:
    assert found(step * num)["count"] == num


@pytest.mark.parametrize("num_layers", [8, 32])
def test_one_launch_that_every_step_adds_to_its_layers_tells_them_apart(num_layers: int) -> None:
    document = found(["embed", *LAYER * num_layers] * 4)

    assert (document["count"], document["num_kernels"]) == (4, 1 + 7 * num_layers)
    assert document["block"] == {"num_kernels": 7, "count": num_layers}


def convolutions(num: int) -> list[str]:
    return ["conv", "batch_norm", "relu"] * num


STAGE = ["conv", "batch_norm", "relu", "conv", "batch_norm", "shortcut", "add", *convolutions(2)]
ONE_PASS = ["conv", "batch_norm", "max_pool", *STAGE * 4, "mean", "ampere_sgemm_64x32_tn"]


WIDER = ["winograd", "batch_norm", "relu", "winograd", "batch_norm", "add", "relu"]


@pytest.mark.parametrize("program", [ONE_PASS, [*ONE_PASS[:-2], *WIDER * 3, *ONE_PASS[-2:]]])
@pytest.mark.parametrize("after", [[], ["DtoH", "wait"]])
def test_stages_of_one_pass_of_a_network_are_no_steps(program: list[str], after: list[str]) -> None:
    assert "reason" in found([*program, *after])


def test_passes_of_the_same_network_are_steps() -> None:
    steps = found([*ONE_PASS * 6, "DtoH", "wait"])

    assert steps["count"] == 6 and steps["num_kernels"] == len(ONE_PASS)


def test_copies_that_repeat_beside_kernels_that_do_not_are_no_steps() -> None:
    """A program that copies in for four streams, launches once on each, and copies out."""
    program = ["HtoD"] * 8 + ["vecAdd"] * 4 + ["DtoH", "wait"] * 4

    assert "reason" in found(program)


def test_turns_of_which_no_two_are_alike_are_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_alike(sequence: Any) -> Any:
        turns = find_repetition(sequence)
        assert turns is not None
        return replace(turns, is_alike=np.zeros_like(turns.is_alike))

    assert found(TOKEN[:-2] * 12)["count"] == 12
    monkeypatch.setattr("analysis.trace.step_evidence.find_repetition", none_alike)

    assert "reason" in found(TOKEN[:-2] * 12)


def test_layers_of_a_single_pass_are_named_as_what_they_may_be() -> None:
    document = found([*START_UP, "embed", *LAYER * 12, *HEAD])

    assert "may be layers" in document["evidence"]
    assert document["confidence"] < 0.5


COPYING_LAYER = ["norm", "HtoD", "wait", *LAYER[1:]]


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 9, 16, 18, 29])
def test_layers_that_vary_are_not_counted_together_by_places_that_chance_finds(seed: int) -> None:
    """A window cut out of a pass whose layers each launch a few things more, somewhere."""
    chance = random.Random(seed)
    program: list[str] = []
    for _ in range(24):
        layer = [f"part {i % 9}" for i in range(26)]
        for _ in range(chance.randint(1, 4)):
            layer.insert(chance.randrange(len(layer)), chance.choice(["pad", "set"]))
        program += layer
    next_pass = ["cat", "lm_head", "embed", *[f"next {i % 26}" for i in range(69)]]

    assert found([*program[11:], *next_pass]).get("num_kernels", 0) < 40


@pytest.mark.parametrize(
    ("program", "num_kernels"),
    [
        (["embed", *COPYING_LAYER * 40, *HEAD, *READ][60:250], 7),
        (["embed", *LAYER * 40, *HEAD, *READ][60:250], 7),
        (["embed", *[*LAYER, "wait", *LAYER, "rope"] * 20, *HEAD, *READ][20:250], 15),
        (["embed", *[*LAYER * 5, *LAYER, "rope"] * 10, *HEAD, *READ][20:290], 43),
        (["embed", *LAYER * 14, *HEAD, *READ, "embed", *LAYER * 14][30:-40], 7),
    ],
    ids=["each waits for a copy", "none waits", "of two kinds", "of five and one", "of two passes"],
)
def test_layers_of_a_window_cut_out_of_one_step_are_named_so(
    program: list[str], num_kernels: int
) -> None:
    document = found(program)

    assert "may be layers of one step" in document["evidence"]
    assert document["confidence"] < 0.5
    assert document["num_kernels"] == num_kernels


@pytest.mark.parametrize(
    "program",
    [(TOKEN * 12)[50:-30], (TRAIN * 8)[50:-30], (["norm", "gemm", "act", *READ] * 20)[2:-2]],
    ids=["decode", "training", "a small model whose result is read"],
)
def test_steps_of_a_cut_window_are_not_doubted(program: list[str]) -> None:
    document = found(program)

    assert "may be layers" not in document["evidence"]
    assert document["confidence"] > 0.75


def test_steps_that_only_wait_are_not_doubted_where_they_cannot_be_layers() -> None:
    batches = [*["memset", "solve"] * 30, "wait"] * 9
    for program in (COPYING_LAYER * 12, [*START_UP, *[*LAYER, "wait"] * 12], batches[20:-20]):
        assert "may be layers" not in found(program)["evidence"]


def test_pages_of_unified_memory_that_move_are_no_launches() -> None:
    moves = ["unified HtoD"] * 48

    assert "reason" in found(["add", *moves])
    assert found(["add", *moves[:3], "wait"] * 6)["count"] == 6


def test_where_every_third_step_waits_for_its_data_waiting_is_no_outlier() -> None:
    late = {len(TOKEN) * i: 5_000_000 for i in range(0, 24, 3)}

    document = steps_document(find_steps(run(TOKEN * 24, pauses=late)))

    assert (document["count"], document["num_excluded"]) == (24, 0)


def test_a_profilers_step_without_work_is_left_out_and_not_the_usual_one() -> None:
    ranges = [("ProfilerStep#1", 0, len(LAYER)), ("ProfilerStep#2", len(LAYER), len(LAYER) + 1)]

    document = steps_document(find_steps(run([*LAYER, "wait", "wait"], ranges=ranges)))

    assert (document["count"], document["num_excluded"]) == (2, 1)
    assert document["num_kernels"] == len(LAYER)


EXPERT = ["index", "linear", "gelu", "linear", "index", "mul", "index_add"]
ROUTER = ["linear", "softmax", "topk", "index", "mul", "sort", "index", "linear", "bincount", "mul"]


def test_two_experts_after_the_router_of_one_pass_are_no_steps() -> None:
    assert "reason" in found([*ROUTER, *EXPERT * 2])


def test_two_passes_after_a_set_up_of_other_kinds_are_steps() -> None:
    assert found([*[f"weight {i}" for i in range(40)], *[*ROUTER, *EXPERT] * 2])["count"] == 2


def of_length(bucket: int) -> list[str]:
    """Return a training step whose products are of kernels that its batch's length decides."""
    sizes = ("64x64", "128x64", "128x128", "256x128")
    return [f"{x}_{sizes[bucket]}" if "gemm" in x else x for x in TRAIN]


def test_steps_of_batches_of_many_lengths_end_with_the_optimizer() -> None:
    chosen = random.Random(4)
    document = found([x for _ in range(24) for x in of_length(chosen.randrange(4))])

    assert document["count"] in (23, 24) and document["num_excluded"] == 0
    assert document["num_kernels"] == len(TRAIN)
    assert "optimizer" in document["evidence"] and document["confidence"] < 0.9


def test_drafts_of_any_number_belong_to_the_step_whose_result_is_read() -> None:
    chosen = random.Random(6)
    draft = ["embed", *[f"d_{k}" for k in LAYER], *HEAD, "argmax"]
    verify = ["embed", *[f"v_{k}" for k in LAYER] * 8, *HEAD, "accept", *READ]
    steps = [[*draft * chosen.randint(1, 5), *verify] for _ in range(30)]

    document = found([x for step in steps for x in step])

    sizes = sorted(len(step) - len(READ) for step in steps)
    assert document["count"] in (29, 30) and document["num_excluded"] == 0
    assert document["num_kernels"] in (sizes[14], sizes[15], (sizes[14] + sizes[15]) / 2)


def test_two_adapters_in_turn_are_two_results_and_no_one_step() -> None:
    tokens = [["embed", *[*LAYER, *[f"adapter_{a}"] * 2] * 8, *HEAD, *READ] for a in "ab"]

    document = found([x for _ in range(12) for token in tokens for x in token])

    assert (document["count"], document["num_kernels"]) == (24, len(tokens[0]) - len(READ))


@pytest.mark.parametrize("late", [False, True], ids=["", "far ahead"])
def test_a_step_starts_on_its_main_stream(late: bool) -> None:
    """Copies on a stream of their own run as soon as the host launches them."""
    step = ["HtoD", *TRAIN]
    made = run(step * 12)
    ops = made.gpu_ops
    is_copy = np.arange(len(ops)) % len(step) == 0
    end = np.cumsum(np.where(is_copy, 0, 40_000))
    start = end - 40_000
    called = made.host_calls.start_ns[ops.launch] + HOST_NS
    own = replace(
        ops,
        stream=np.where(is_copy, 21, 7).astype(np.int32),
        start_ns=np.where(is_copy, called, start if late else called + 5_000),
        end_ns=np.where(is_copy, called + 3_000, end if late else called + 9_000),
    )
    order = np.argsort(own.start_ns, kind="stable")

    document = steps_document(find_steps(replace(made, gpu_ops=own.take(order))))

    period = len(TRAIN) * 40_000 if late else len(step) * HOST_NS
    assert (document["count"], document["period_ns"]) == (12, period)


def test_marks_between_which_anything_runs_end_no_steps() -> None:
    chosen = random.Random(3)
    anything = [
        [f"part {chr(97 + chosen.randrange(26))}{chosen.randrange(9)}" for _ in range(20)]
        for _ in range(12)
    ]

    assert "reason" in found([x for part in anything for x in [*part, *READ]])


def interleaved(seed: int, *programs: list[Any]) -> tuple[list[Any], list[int]]:
    """Return the programs of several threads, merged as chance has it, and each entry's thread."""
    order = [i for i, program in enumerate(programs) for _ in program]
    random.Random(seed).shuffle(order)
    rest = [iter(program) for program in programs]
    return [next(rest[thread]) for thread in order], order


SMALL = [*[f"small_{k}" for k in LAYER[:3]], "small_result"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", [TOKEN, TRAIN], ids=["decode", "training"])
def test_a_loop_of_another_thread_is_none_of_the_steps(step: list[Any], seed: int) -> None:
    program, threads = interleaved(seed, step * 12, SMALL * 55)

    document = steps_document(find_steps(run(program, threads=threads)))

    assert (document["count"], document["num_excluded"]) == (12, 0)
    num_kernels = len([x for x in step if x not in READ])
    assert (document["num_kernels"], document["kernel_ns"]) == (num_kernels, 5_000 * num_kernels)
    (other,) = document["other_loops"]
    assert (other["whose"], other["num_kernels"]) == ("thread 2", len(SMALL))
    assert other["count"] in (54, 55)


def test_ranges_of_steps_hold_no_launches_of_another_loop() -> None:
    program, threads = interleaved(1, TRAIN * 6, SMALL * 30)
    starts = [i for i, thread in enumerate(threads) if thread == 0][:: len(TRAIN)]
    bounds = [*starts, len(program)]
    ranges = [(f"step {i}", bounds[i], bounds[i + 1]) for i in range(6)]

    document = steps_document(find_steps(run(program, threads=threads, ranges=ranges)))

    assert (document["source"], document["count"]) == ("ranges", 6)
    assert document["num_kernels"] == len(TRAIN)


@pytest.mark.parametrize("count", [1, 3])
def test_a_thread_that_takes_turns_with_another_runs_no_loop_of_its_own(count: int) -> None:
    """The backward passes are launched by a thread for which the calling one waits."""
    step = [*MICRO * count, *OPTIMIZER]
    program = [*START_UP, *step * 8]
    threads = [int(name in BACKWARD) for name in program]

    document = steps_document(find_steps(run(program, threads=threads)))

    assert (document["count"], document["num_kernels"]) == (8, len(step))
    assert document["other_loops"] == []


def test_who_takes_turns_is_told_at_sight_only_where_nearly_every_turn_is_alike() -> None:
    step = [*MICRO, *OPTIMIZER]
    turns = run(step * 12, threads=[int(name in BACKWARD) for name in step * 12])
    uneven = [*step, *OPTIMIZER, *step] * 6
    by_chance, threads = interleaved(1, TRAIN * 12, SMALL * 55)

    assert _plainly_take_turns(turns, 0, 1)
    assert not _plainly_take_turns(run(by_chance, threads=threads), 0, 1)
    assert not _plainly_take_turns(
        run(uneven, threads=[int(name in BACKWARD) for name in uneven]), 0, 1
    )


def test_kernels_launched_before_the_capture_began_keep_their_place() -> None:
    """The host is several steps ahead: what runs at first was launched before the capture."""
    made = run(TRAIN * 12)
    num, ops = len(made.gpu_ops), made.gpu_ops
    end = (np.arange(num) + 1) * 40_000
    lost = np.where(np.arange(num) < 3 * len(TRAIN) + 9, -1, ops.launch)
    ahead = replace(ops, start_ns=end - 40_000, end_ns=end, launch=lost)

    document = steps_document(find_steps(replace(made, gpu_ops=ahead)))

    assert (document["count"], document["num_excluded"]) == (12, 0)
    assert (document["num_kernels"], document["period_ns"]) == (len(TRAIN), len(TRAIN) * 40_000)


def test_a_block_is_counted_in_all_of_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.trace.blocks.MAX_IN_BLOCK", 64)

    block = found(["embed", *LAYER * 40, *HEAD, *READ] * 4)["block"]

    assert block == {"num_kernels": len(LAYER), "count": 40}


def test_a_function_called_twice_is_no_loop() -> None:
    assert "reason" in found(["empty", "uniform", "scale"] * 2 + ["transpose", "matmul"])
