"""Kernel time by operator, an eager run against a compiled one."""

from dataclasses import replace

import pandas as pd
import pytest
from views import build_view

from analysis.compare.waterfall import (
    fused_operators,
    operator_name,
    operator_waterfall,
    stack_difference,
)
from analysis.runview import RunView, StepView
from analysis.tables import OPERATOR_COLUMNS


def with_operators(run_id: str, *rows: tuple[str, str, str, int], steps: int = 1) -> RunView:
    """Return a run; rows are (operator, pass, kernel, ns of a step). The capture holds `steps`."""
    sums: dict[tuple[str, str], int] = {}
    for name, where, _, ns in rows:
        sums[name, where] = sums.get((name, where), 0) + ns
    operators = pd.DataFrame(
        [
            {"name": n, "pass": p, "self_kernel_ns": ns * steps, "step_self_kernel_ns": float(ns)}
            for (n, p), ns in sums.items()
        ]
    ).reindex(columns=list(OPERATOR_COLUMNS))
    links = pd.DataFrame(
        [{"name": n, "pass": p, "kernel": k, "count": 1, "total_ns": ns * steps}
         for n, p, k, ns in rows]
    )  # fmt: skip
    kernels = pd.DataFrame(
        [{"name": k, "is_opaque": False, "count": 1.0, "total_ns": float(ns), "category": "gemm"}
         for _, _, k, ns in rows]
    )  # fmt: skip
    by_step = StepView(operators=operators, operator_kernels=links, kernels=kernels)
    return replace(build_view(id=run_id), by_step=by_step)


EAGER = with_operators(
    "a",
    ("aten::mm", "forward", "gemm_1", 100),
    ("aten::add_", "forward", "vectorized_add", 30),
    ("aten::mul", "forward", "vectorized_mul", 20),
    ("aten::mm", "backward", "gemm_2", 200),
    steps=4,
)
COMPILED = with_operators(
    "b",
    ("aten::mm", "forward", "gemm_1", 90),
    ("triton_poi_fused_add_mul_view_0", "forward", "triton_poi_fused_add_mul_view_0", 25),
    ("aten::mm", "backward", "gemm_2", 200),
)


def bars(a: RunView, b: RunView) -> dict[str, tuple[int, int]]:
    return {bar.name: (bar.a_ns, bar.b_ns) for bar in operator_waterfall(a, b).bars}


def test_operators_that_a_kernel_fuses_are_one_row_against_the_eager_ones() -> None:
    assert bars(EAGER, COMPILED) == {
        "add + mul": (50, 25),
        "mm": (100, 90),
        "mm (backward)": (200, 200),
    }


def test_the_steps_add_up_from_one_run_to_the_other() -> None:
    fall = operator_waterfall(EAGER, COMPILED)

    assert (fall.total_a_ns, fall.total_b_ns, fall.per) == (350, 315, "step")
    assert fall.total_a_ns + sum(bar.delta_ns for bar in fall.bars) == fall.total_b_ns


def test_two_eager_runs_are_matched_by_name() -> None:
    assert bars(EAGER, EAGER)["add"] == (30, 30)


def test_a_run_without_operators_has_no_such_waterfall() -> None:
    assert operator_waterfall(EAGER, build_view()) is None


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [
        ("triton_poi_fused_add_mul_3", {"add", "mul"}),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_7",
         {"_to_copy", "add", "mean", "mul", "pow", "rsqrt"}),
        ("triton_per_fused_native_layer_norm_native_layer_norm_backward_0",
         {"native_layer_norm", "native_layer_norm_backward"}),
        ("triton_poi_fused_addmm_relu_1", {"relu"}),
        ("triton_tem_fused_mm_5", {"mm"}),
        ("triton_poi_fused_view_2", {"view"}),
        ("ampere_sgemm_128x64_nn", set()),
    ],
)  # fmt: skip
def test_the_operators_in_an_inductor_name(kernel: str, operators: set[str]) -> None:
    assert fused_operators(kernel) == operators


@pytest.mark.parametrize(
    ("name", "short"),
    [("aten::mm", "mm"), ("aten::add_", "add"), ("aten::copy_", "_to_copy"),
     ("aten::sum.dim_IntList", "sum"), ("aten::_softmax", "_softmax")],
)  # fmt: skip
def test_operator_names_as_inductor_writes_them(name: str, short: str) -> None:
    assert operator_name(name) == short


def flame(run_id: str, *rows: tuple[int, int | None, str, float]) -> RunView:
    """Return a run with GPU stacks; rows are (node, parent, name, own ns)."""
    nodes = pd.DataFrame(
        [{"metric": "gpu", "node": n, "parent": p, "name": name, "kind": "range", "self_ns": ns}
         for n, p, name, ns in rows]
    )  # fmt: skip
    nodes["parent"] = nodes["parent"].astype("Int64")
    return replace(build_view(id=run_id), by_step=StepView(flame=nodes))


def test_stacks_of_two_runs_are_matched_by_their_names() -> None:
    a = flame("a", (0, None, "forward", 0), (1, 0, "mm", 40), (2, 0, "add", 10))
    b = flame("b", (0, None, "forward", 0), (1, 0, "fused", 5), (2, 0, "mm", 30))

    rows = stack_difference(a, b, "gpu").set_index("name")

    assert rows.loc["forward", ["a_ns", "b_ns"]].tolist() == [50, 35]
    assert rows.loc["mm", ["a_self_ns", "b_self_ns"]].tolist() == [40, 30]
    assert rows.loc["add", ["a_ns", "b_ns"]].tolist() == [10, 0]
    assert set(rows["parent"]) == {-1, rows.loc["forward", "node"]}


def test_without_stacks_on_both_sides_there_is_no_difference() -> None:
    assert stack_difference(flame("a", (0, None, "mm", 1)), build_view(), "gpu").empty
