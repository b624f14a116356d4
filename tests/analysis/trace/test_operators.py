"""The table by operator, on traces small enough to add up by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made import launches, trace

from analysis.trace.attribution import attribute
from analysis.trace.flops import operator_elements, operator_flops
from analysis.trace.model import RangeKind, Thread, Trace
from analysis.trace.operators import operator_table, operators_document
from analysis.trace.ranges import phase_ranges
from analysis.trace.steps import find_steps

OP, PYTHON = RangeKind.OPERATOR, RangeKind.PYTHON
LINEAR = [
    ("ProfilerStep#1", 0, 1_000, 0),
    ("nn.Module: Linear_0", 5, 200, 0, PYTHON),
    ("aten::linear", 10, 190, 0, OP),
    ("aten::t", 20, 30, 0, OP),
    ("aten::addmm", 40, 180, 0, OP),
    ("autograd::engine::evaluate_function: AddmmBackward0", 300, 500, 1, OP),
    ("AddmmBackward0", 310, 490, 1, OP),
    ("aten::mm", 320, 400, 1, OP),
    ("aten::mm", 410, 480, 1, OP),
    ("Optimizer.step#SGD.step", 600, 700, 0, OP),
    ("aten::add_", 610, 690, 0, OP),
]


def linear() -> Trace:
    """A linear layer forward, backward on autograd's thread, and its optimizer: six kernels."""
    calls = launches((50, 0), (60, 0), (330, 1), (420, 1), (620, 0), (900, 0))
    ops = [(100, 200, 0), (200, 230, 1), (400, 440, 2), (500, 550, 3), (650, 660, 4), (950, 953, 5)]
    made = trace(ranges=LINEAR, calls=calls, ops=ops, thread_process=(0, 0))
    names = made.names
    sequence = {"aten::linear": 7, "aten::t": 7, "aten::addmm": 8}
    node = {"autograd::engine::evaluate_function: AddmmBackward0": 8, "AddmmBackward0": 8}
    numbers = [(sequence | node).get(names[c], -1) for c in made.host_ranges.name]
    shapes = {"aten::addmm": "[[4], [2, 3], [3, 4]]", "aten::mm": "[[2, 4], [4, 3]]"}
    texts = (*names, *shapes.values())
    detail = [texts.index(shapes.get(names[c], "")) if names[c] in shapes else -1
              for c in made.host_ranges.name]  # fmt: skip
    return replace(
        made,
        names=texts,
        host_ranges=replace(
            made.host_ranges,
            sequence=np.array(numbers, np.int64),
            detail=np.array(detail, np.int32),
        ),
        sources=replace(
            made.sources,
            threads=(Thread(process=0, tid=1), Thread(process=0, tid=2, is_autograd=True)),
        ),
    )


def table(given: Trace):
    return operator_table(given, attribute(given, phase_ranges(given)), find_steps(given))


def row(frame, name: str):
    (found,) = frame[frame["name"] == name].to_dict("records")
    return found


def test_own_time_is_of_the_innermost_operator_and_total_of_all_around() -> None:
    frame = table(linear()).frame

    addmm, outer = row(frame, "aten::addmm"), row(frame, "aten::linear")
    assert (addmm["self_kernel_ns"], addmm["total_kernel_ns"]) == (130, 130)
    assert (outer["self_kernel_ns"], outer["total_kernel_ns"]) == (0, 130)
    assert (outer["num_kernels"], outer["self_num_kernels"]) == (2, 0)
    assert frame["self_kernel_ns"].sum() == 130 + 90 + 10


def test_passes_are_told_apart() -> None:
    frame = table(linear()).frame

    passes = dict(zip(frame["name"], frame["pass"], strict=True))
    assert passes["aten::linear"] == "forward"
    assert passes["aten::mm"] == "backward"
    assert passes["aten::add_"] == "optimizer"


def test_a_backward_operator_names_the_forward_one_of_its_sequence_number() -> None:
    frame = table(linear()).frame

    assert row(frame, "aten::mm")["forward_name"] == "aten::addmm"
    assert row(frame, "AddmmBackward0")["forward_name"] == "aten::addmm"


def test_an_operator_names_the_module_above_it() -> None:
    assert row(table(linear()).frame, "aten::addmm")["module"] == "nn.Module: Linear_0"


def test_what_runs_backward_belongs_to_the_module_of_its_forward_operator() -> None:
    frame = table(linear()).frame

    assert row(frame, "aten::mm")["module"] == "nn.Module: Linear_0"
    assert not isinstance(row(frame, "aten::add_")["module"], str)


def test_figures_per_step_are_those_of_regular_steps() -> None:
    mm = row(table(linear()).frame, "aten::mm")

    assert (mm["count"], mm["step_count"], mm["step_total_kernel_ns"]) == (2, 2.0, 90.0)


def test_flops_come_from_the_shapes_of_every_call() -> None:
    frame = table(linear()).frame

    assert row(frame, "aten::addmm")["flops"] == 2 * 2 * 3 * 4
    assert row(frame, "aten::mm")["flops"] == 2 * (2 * 2 * 4 * 3)
    assert np.isnan(row(frame, "aten::linear")["flops"])
    assert row(frame, "aten::addmm")["elements"] == 4 + 2 * 3 + 3 * 4 + 2 * 4


def test_an_operator_that_calls_itself_again_does_its_work_once() -> None:
    # Autocast runs an operator, casts its inputs, and calls it again with those.
    ranges = [("aten::mm", 0, 100, 0, OP), ("aten::mm", 50, 90, 0, OP)]
    made = trace(ranges=ranges, calls=launches((60, 0)), ops=[(200, 300, 0)])
    names = (*made.names, "[[2, 4], [4, 3]]")
    detail = np.full(len(made.host_ranges), len(names) - 1, np.int32)
    host_ranges = replace(made.host_ranges, detail=detail)
    frame = table(replace(made, names=names, host_ranges=host_ranges)).frame

    assert row(frame, "aten::mm")["flops"] == 2 * 2 * 4 * 3
    assert row(frame, "aten::mm")["elements"] == 2 * 4 + 4 * 3 + 2 * 3


def test_operators_are_linked_to_their_kernels_and_back() -> None:
    found = table(linear())

    linked = found.kernels[found.kernels["name"] == "aten::mm"].to_dict("records")
    assert [(k["kernel"], k["count"], k["total_ns"]) for k in linked] == [("gemm", 2, 90)]
    names = [found.frame["name"][r] if r >= 0 else None for r in found.of_op]
    assert names == ["aten::addmm"] * 2 + ["aten::mm"] * 2 + ["aten::add_", None]


def test_a_nested_call_of_the_same_operator_counts_its_time_once() -> None:
    ranges = [("aten::to", 0, 100, 0, OP), ("aten::to", 10, 90, 0, OP)]
    given = trace(ranges=ranges, calls=launches((20, 0)), ops=[(30, 70, 0)])

    to = row(table(given).frame, "aten::to")

    assert (to["count"], to["num_kernels"], to["total_kernel_ns"]) == (2, 1, 40)
    assert to["host_ns"] == 100


def test_without_operators_there_is_no_table() -> None:
    given = trace(ranges=[("forward", 0, 9, 0)], calls=launches((1, 0)), ops=[(2, 3, 0)])

    assert table(given) is None


def test_the_document_leaves_out_what_is_unknown() -> None:
    document = operators_document(table(linear()).frame)

    mm = next(o for o in document if o["name"] == "aten::mm")
    assert mm["shapes"] == ["[[2, 4], [4, 3]]"]
    assert "flops" not in next(o for o in document if o["name"] == "aten::add_")
    json.dumps(document)


ATTENTION = [[2, 8, 128, 64], [2, 8, 256, 64], [2, 8, 256, 64]]


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::mm", [[2, 3], [3, 4]], 48),
        ("aten::bmm", [[5, 2, 3], [5, 3, 4]], 240),
        ("aten::baddbmm", [[5, 2, 4], [5, 2, 3], [5, 3, 4]], 240),
        ("aten::addmm", [[4], [2, 3], [3, 4]], 48),
        ("aten::_scaled_dot_product_flash_attention", ATTENTION, 4 * 16 * 128 * 256 * 64),
        ("aten::_scaled_dot_product_flash_attention_backward", [[1], *ATTENTION],
         10 * 16 * 128 * 256 * 64),
        ("aten::convolution_backward", [[2, 8, 5, 5], [2, 3, 7, 7], [8, 3, 3, 3]],
         2 * 2 * 2 * 25 * 8 * 3 * 9),
        ("aten::mm", [[2, 3], [5, 4]], None),
        ("aten::mm", [], None),
        ("aten::add", [[2, 3], [2, 3]], None),
    ],
)  # fmt: skip
def test_flops_of_an_operator(name: str, shapes: list, flops: float | None) -> None:
    assert operator_flops(name, shapes) == flops


STRIDED = [[2, 3, 16, 16], [8, 3, 3, 3], [8], "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
GROUPED = [[2, 8, 8, 8], [8, 2, 3, 3], [8], "[1, 1]", "[2]", "[2, 2]", "False", "[0, 0]", "4"]
TRANSPOSED = [[2, 8, 8, 8], [8, 6, 4, 4], [6], "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"]
ALONG = [[2, 6, 64], [5, 6, 5], [], "[1]", "[2]", "[1]", "False", "[0]", "1"]


@pytest.mark.parametrize(
    ("inputs", "flops"),
    # What torch.utils.flop_counter counts for the same calls.
    [(STRIDED, 55_296), (GROUPED, 36_864), (TRANSPOSED, 196_608), (ALONG, 38_400)],
    ids=["stride", "dilation and groups", "transposed", "one dimension"],
)
def test_flops_of_a_convolution_whose_stride_and_padding_were_recorded(
    inputs: list, flops: int
) -> None:
    assert operator_flops("aten::convolution", inputs) == flops


def test_a_convolution_without_the_values_of_stride_and_padding_is_not_known() -> None:
    shapes = [[] if isinstance(x, str) else x for x in STRIDED]

    assert operator_flops("aten::convolution", shapes) is None
    assert operator_elements("aten::convolution", shapes) is None


@pytest.mark.parametrize(
    ("wanted", "times"),
    [("[True, True, True]", 2), ("[False, True, False]", 1), ("[False, False, True]", 0)],
)
def test_a_convolution_s_backward_pass_costs_what_gradients_are_wanted(
    wanted: str, times: int
) -> None:
    backward = [[2, 8, 8, 8], *STRIDED[:2], "[8]", *STRIDED[3:], wanted]

    assert operator_flops("aten::convolution_backward", backward) == times * 55_296


@pytest.mark.parametrize(
    ("name", "shapes", "elements"),
    [
        ("aten::bmm", [[5, 2, 3], [5, 3, 4]], 5 * (6 + 12 + 8)),
        ("aten::_scaled_dot_product_flash_attention", ATTENTION, 16 * 64 * (128 + 256 * 2 + 128)),
        ("aten::_scaled_dot_product_flash_attention_backward", [ATTENTION[0], *ATTENTION],
         16 * 64 * (2 * 128 + 2 * (128 + 2 * 256))),
        ("aten::convolution_backward", [[2, 8, 5, 5], [2, 3, 7, 7], [8, 3, 3, 3]],
         400 + 2 * 294 + 2 * 216),
        ("aten::convolution", STRIDED, 2 * 3 * 256 + 8 * 27 + 8 + 2 * 8 * 64),
        ("aten::_scaled_mm", [[2, 3], [3, 4]], None),
        ("aten::mm", [[2], [3, 4], []], None),
    ],
)  # fmt: skip
def test_elements_that_an_operator_must_move(
    name: str, shapes: list, elements: float | None
) -> None:
    assert operator_elements(name, shapes) == elements
