"""Real launches that another build runs in another order, in two halves, or under other names."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.classify import classify
from analysis.compare.kernels import match_kernels
from analysis.compare.unmatched import Rows, pair_unmatched
from analysis.runview import RunView
from tests.analysis.compare.views import build_view, read_view

CAPTURE = Path(__file__).parents[2] / "data/h100/nsys/decode_max_autotune.sqlite"
FIRST = "triton_red_fused__to_copy__unsafe_view_add_mean_mm_pow_5"
"""Runs once an iteration, between kernels of other names on the same path."""


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> RunView:
    return read_view(CAPTURE, tmp_path_factory.mktemp("spans"))


def spans_of(view: RunView) -> pd.DataFrame:
    spans = pq.read_table(view.span_paths[0]).to_pandas()
    text = ("kind", "name", "grid", "block", "path")
    return spans.astype(dict.fromkeys(text, object)).sort_values("start_ns", ignore_index=True)


def changed(view: RunView, spans: pd.DataFrame, folder: Path) -> RunView:
    """Return the view of the same capture with other launches."""
    path = folder / "changed.parquet"
    pq.write_table(pa.Table.from_pandas(spans.sort_values("start_ns"), preserve_index=False), path)
    launches = spans.assign(total_ns=spans["end_ns"] - spans["start_ns"])
    shown = launches[launches["kind"] == "kernel"].groupby(["name", "grid", "block"], dropna=False)
    kernels = shown.agg(count=("total_ns", "size"), total_ns=("total_ns", "sum")).reset_index()
    classes = [classify(name) for name in kernels["name"]]
    kernels["category"] = [str(c.category) for c in classes]
    kernels["origin"] = [str(c.origin) for c in classes]
    return build_view(
        kernels=kernels.assign(is_opaque=False), phases=view.phases, span_paths=(path,)
    )


def moved_before_its_neighbour(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the launches with FIRST run one place earlier in every iteration."""
    kernels = spans.index[spans["kind"] == "kernel"]
    places = [k for k, i in enumerate(kernels) if spans.at[i, "name"] == FIRST]
    order = list(kernels)
    for k in places:
        order[k - 1], order[k] = order[k], order[k - 1]
    what = spans.loc[order, ["name", "grid", "block"]].to_numpy()
    length = (spans["end_ns"] - spans["start_ns"]).loc[order].to_numpy()
    out = spans.copy()
    out.loc[kernels, ["name", "grid", "block"]] = what
    out.loc[kernels, "end_ns"] = out.loc[kernels, "start_ns"] + length
    assert len(places) == 5
    return out


def test_a_kernel_that_moved_is_still_matched_by_its_name(view: RunView, tmp_path: Path) -> None:
    pairs = match_kernels(view, changed(view, moved_before_its_neighbour(spans_of(view)), tmp_path))

    assert {p.match for p in pairs} == {"name"}
    assert {p.delta_ns for p in pairs} == {0}


def test_renumbered_triton_kernels_find_their_own(view: RunView, tmp_path: Path) -> None:
    spans = spans_of(view)
    spans["name"] = spans["name"].str.replace(r"^(triton_\w+)_(\d+)$", r"\1_9\2", regex=True)

    pairs = match_kernels(view, changed(view, spans, tmp_path))

    triton = [p for p in pairs if (p.a or "").startswith("triton")]
    assert {p.match for p in triton} == {"path+order"}
    assert {p.delta_ns for p in pairs} == {0}


@pytest.mark.parametrize("is_fused_later", [False, True])
def test_a_kernel_that_became_two_is_one_row(
    is_fused_later: bool, view: RunView, tmp_path: Path
) -> None:
    spans = spans_of(view)
    is_pointwise = spans["name"].str.startswith("triton_poi")
    head, tail = spans[is_pointwise].copy(), spans[is_pointwise].copy()
    middle = (head["start_ns"] + head["end_ns"]) // 2
    head["end_ns"], tail["start_ns"] = middle, middle
    head["name"], tail["name"] = head["name"] + "_head", tail["name"] + "_tail"
    two = changed(view, pd.concat([spans[~is_pointwise], head, tail]), tmp_path)

    pairs = match_kernels(two, view) if is_fused_later else match_kernels(view, two)

    assert {p.delta_ns for p in pairs} == {0}
    assert {p.match for p in pairs} == {"name", "fused"}
    assert not [p for p in pairs if p.a is None or p.b is None]


def test_guesses_of_one_kind_are_never_largest_gain_and_largest_loss() -> None:
    rows = Rows()
    for side, name, total_ns in (
        ("a", "ampere_gemm_128x64_a", 900),
        ("a", "ampere_gemm_64x64_b", 100),
        ("b", "hopper_gemm_128x64_c", 120),
        ("b", "hopper_gemm_64x64_d", 880),
        ("b", "copy_kernel", 5),
    ):
        category = "copy" if name == "copy_kernel" else "gemm"
        rows.alone(side, name, category, None).add(side, total_ns, 1)

    pair_unmatched(rows)

    found = rows.as_pairs(1, 1)
    assert sorted(p.delta_ns for p in found) == [0, 5]
    assert [p.a for p in found if p.delta_ns == 5] == [None]
    assert max(p.confidence for p in found) <= 0.75


def test_a_pool_of_pools_names_kernels_and_counts_the_others() -> None:
    rows = Rows()
    for side, names, total_ns in (("a", "abcde", 100), ("b", "pqrs", 10)):
        for name in names:
            rows.alone(side, f"aten::{name * 6}", "elementwise", None).add(side, total_ns, 1)
    rows.alone("b", "mystery", "unknown", None).add("b", 400, 1)

    pair_unmatched(rows)

    (pair,) = rows.as_pairs(1, 1)
    assert pair.a == "aten::aaaaaa + aten::bbbbbb + aten::cccccc + 2 more"
    assert pair.b == "aten::pppppp + aten::qqqqqq + aten::rrrrrr + 2 more"
