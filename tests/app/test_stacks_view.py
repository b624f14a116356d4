"""A flame graph that can be walked: boxes add up, a choice opens one, its kernels stay chosen."""

import html
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.colours import category_colour
from app.charts.flame import TOP, Tree, difference_tree, flame
from app.imports import import_paths
from core.config import data_dir

NODES = pd.DataFrame(
    [
        (0, pd.NA, "forward", "range", 1e6),
        (1, 0, "attention", "operator", 0.0),
        (2, 1, "flash_fwd", "kernel", 3e6),
        (3, 0, "mlp", "operator", 0.0),
        (4, 3, "gemm", "kernel", 5e6),
        (5, pd.NA, "optimizer", "range", 1e6),
    ],
    columns=["node", "parent", "name", "kind", "self_ns"],
)


def box(shown: pd.DataFrame, node: int) -> tuple[int, float, float]:
    row = shown[shown["node"] == node].iloc[0]
    return int(row["depth"]), float(row["x_ns"]), float(row["width_ns"])


def test_a_box_is_as_wide_as_the_time_under_it_and_lies_inside_the_one_above() -> None:
    shown = Tree.of(NODES, whole="all").laid_out(TOP)

    assert box(shown, TOP) == (0, 0.0, 10e6)
    assert box(shown, 0) == (1, 0.0, 9e6)
    assert box(shown, 5) == (1, 9e6, 1e6)
    assert box(shown, 3) == (2, 0.0, 5e6)
    assert box(shown, 1) == (2, 5e6, 3e6)


def test_an_opened_box_fills_the_width_under_those_over_it() -> None:
    tree = Tree.of(NODES, whole="all")

    shown = tree.laid_out(3)

    assert box(shown, TOP)[2] == box(shown, 0)[2] == box(shown, 3)[2] == 5e6
    assert set(shown["node"]) == {TOP, 0, 3, 4}
    assert tree.path(4) == [TOP, 0, 3, 4]


def test_each_bar_carries_its_box() -> None:
    tree = Tree.of(NODES, whole="all")

    trace = flame(tree, TOP).data[0]

    assert trace["type"] == "bar"
    assert sorted(trace["customdata"]) == [TOP, 0, 1, 2, 3, 4, 5]
    assert list(trace["x"]) == list(tree.laid_out(TOP)["width_ns"] / 1e6)


def test_kernels_have_the_colour_of_their_class_and_names_that_tell_them_apart() -> None:
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(T)"
    nodes = pd.DataFrame(
        [(0, pd.NA, add, "kernel", 5e6), (1, pd.NA, "ampere_sgemm_128x64_tn", "kernel", 4e6)],
        columns=NODES.columns,
    )

    trace = flame(Tree.of(nodes, whole="all"), TOP).data[0]

    texts = [html.unescape(text) for text in trace["text"][1:]]
    assert texts == ["vectorized_elementwise_kernel <add, f32>", "ampere_sgemm_128x64_tn"]
    assert trace["marker"]["color"][1:] == [category_colour(c) for c in ("elementwise", "gemm")]


def test_a_difference_is_as_wide_as_the_longer_of_both() -> None:
    rows = pd.DataFrame(
        {
            "node": [0, 1],
            "parent": [-1, 0],
            "name": ["forward", "mm"],
            "kind": ["range", "kernel"],
            "a_self_ns": [0.0, 40.0],
            "b_self_ns": [0.0, 30.0],
        }
    )

    assert float(difference_tree(rows).boxes.at[TOP, "total_ns"]) == 40.0


def page(run_id: str) -> None:
    import streamlit as st

    from app.ui import data
    from app.ui.run import kernels, operators

    view = data.fetch_view(run_id)
    if st.session_state.get("show") == "kernels":
        kernels.kernels(view)
    else:
        operators.stacks(view)


def test_an_opened_stack_lists_its_kernels_and_they_stay_chosen_in_the_table_of_kernels(
    tmp_path: Path, example_captures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPBOARD_DATA", str(tmp_path))
    trace = example_captures / "train_bf16_small.trace.json"
    run_id = import_paths(data_dir(tmp_path), [trace], name="small").run_id
    at = AppTest.from_function(page, default_timeout=60, kwargs={"run_id": run_id}).run()
    assert len(at.dataframe) == 0
    choice = next(box for box in at.selectbox if box.label == "Open stack")
    place = next(i for i, text in enumerate(choice.options) if "optimizer" in text.lower())

    choice.select_index(place).run()

    assert not at.exception
    listed = len(at.dataframe[0].value)
    assert listed > 0
    at.session_state["show"] = "kernels"
    at.run()
    assert len(at.dataframe[0].value) == listed
    next(b for b in at.button if b.label == "Show all kernels").click().run()
    assert len(at.dataframe[0].value) > listed
