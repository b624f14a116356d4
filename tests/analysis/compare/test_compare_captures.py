"""Where the time went, on real captures: sums to the nanosecond, kernels across names."""

import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from analysis.compare import launches
from analysis.compare.engine import compare
from analysis.compare.kernels import match_kernels
from analysis.compare.waterfall import make_waterfall, per_iteration
from analysis.runview import RunView
from tests.analysis.compare.views import build_view, read_view

CAPTURES = Path(__file__).parents[2] / "data/h100/nsys"


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunView]:
    folder = tmp_path_factory.mktemp("spans")
    kinds = ("eager", "max_autotune", "reduce_overhead", "cuda_graph_whole")
    names = (*(f"decode_{kind}" for kind in kinds), "train_bf16")
    return {name: read_view(CAPTURES / f"{name}.sqlite", folder) for name in names}


def span_of(name: str) -> int:
    """Read first start to last end with a plain query, apart from the reader."""
    with sqlite3.connect(f"file:{CAPTURES / name}.sqlite?mode=ro", uri=True) as db:
        query = "SELECT max(end) - min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        return int(db.execute(query).fetchone()[0])


def test_span_waterfall_explains_eager_to_compiled_to_the_nanosecond(
    views: dict[str, RunView],
) -> None:
    fall = make_waterfall(views["decode_eager"], views["decode_max_autotune"], "span")

    assert fall is not None
    assert fall.total_a_ns == span_of("decode_eager") == 12_578_217
    assert fall.total_b_ns == span_of("decode_max_autotune")
    assert fall.total_a_ns + sum(b.delta_ns for b in fall.bars) == fall.total_b_ns
    assert not [b for b in fall.bars if b.kind == "other"]
    launches = next(b for b in fall.bars if b.name == "waiting for launches")
    assert launches.delta_ns < -7_000_000


def test_kernel_waterfall_is_kernel_time_by_category(views: dict[str, RunView]) -> None:
    fall = make_waterfall(views["decode_eager"], views["decode_max_autotune"], "kernel_time")

    assert fall is not None
    assert (fall.total_a_ns, fall.total_b_ns) == (2_184_310, 1_616_232)
    assert sum(b.delta_ns for b in fall.bars) == 1_616_232 - 2_184_310
    assert {b.name: b.a_ns for b in fall.bars}["gemm"] == 1_663_084


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("decode_eager", "decode_max_autotune"),
        ("decode_max_autotune", "decode_eager"),
        ("decode_eager", "decode_cuda_graph_whole"),
        ("decode_reduce_overhead", "decode_eager"),
    ],
)
def test_matched_kernels_add_up_to_both_kernel_times(
    views: dict[str, RunView], a: str, b: str
) -> None:
    pairs = match_kernels(views[a], views[b])

    assert sum(p.a_ns for p in pairs) == int(views[a].kernels["total_ns"].sum())
    assert sum(p.b_ns for p in pairs) == int(views[b].kernels["total_ns"].sum())
    assert sum(p.a_count for p in pairs) == int(views[a].kernels["count"].sum())
    assert sum(p.b_count for p in pairs) == int(views[b].kernels["count"].sum())


def test_products_find_the_fused_kernel_that_took_them_in(views: dict[str, RunView]) -> None:
    pairs = match_kernels(views["decode_eager"], views["decode_max_autotune"])
    by_b = {p.b: p for p in pairs}

    both = by_b["triton_red_fused_mm_t_view_11"]
    alone = by_b["triton_red_fused_mm_t_transpose_view_4"]

    assert "nvjet_sm90_tst_128x8_64x12_4x1_v_bz_TNT x2" in (both.a or "")
    assert (both.match, both.a_count, both.b_count) == ("fused", 10, 5)
    assert "splitKreduce_kernel" in (alone.a or "")
    assert alone.match == "path+order"


def test_a_kernel_of_the_same_name_is_matched_by_name(views: dict[str, RunView]) -> None:
    pairs = match_kernels(views["decode_eager"], views["decode_max_autotune"])

    attention = next(p for p in pairs if (p.a or "").startswith("cudnn_generated_fort"))

    assert (attention.a, attention.match, attention.confidence) == (attention.b, "name", 1.0)


def test_a_run_against_itself_pairs_every_kernel_by_name(views: dict[str, RunView]) -> None:
    pairs = match_kernels(views["train_bf16"], views["train_bf16"])

    assert {p.match for p in pairs} == {"name"}
    assert {p.delta_ns for p in pairs} == {0}


@pytest.mark.parametrize("keeps_spans", [True, False])
def test_renamed_kernels_are_never_largest_gain_and_largest_loss(
    views: dict[str, RunView], tmp_path: Path, keeps_spans: bool
) -> None:
    a = views["decode_eager"]
    b = renamed(a, tmp_path, keeps_spans=keeps_spans)

    pairs = match_kernels(a, b)

    assert {p.delta_ns for p in pairs} == {0}
    assert not [p for p in pairs if p.a is None or p.b is None]


def renamed(view: RunView, folder: Path, *, keeps_spans: bool) -> RunView:
    """Return the same run with every kernel under another, meaningless name of its class."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {
        n: f"zq{i}_{'abcdefghij'[i % 10] * 9}" for i, n in enumerate(set(view.kernels["name"]))
    }
    kernels = view.kernels.assign(name=view.kernels["name"].map(names))
    spans = pq.read_table(view.span_paths[0]).to_pandas()
    spans["name"] = spans["name"].astype(str).map(lambda n: names.get(n, n))
    path = folder / "renamed.parquet"
    pq.write_table(pa.Table.from_pandas(spans), path)
    return build_view(
        kernels=kernels,
        phases=view.phases,
        summary=view.summary,
        span_paths=(path,) if keeps_spans else (),
    )


def test_an_iteration_too_long_to_align_is_matched_by_name_and_class(
    views: dict[str, RunView], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launches, "MAX_LAUNCHES", 10)

    pairs = match_kernels(views["decode_eager"], views["decode_max_autotune"])

    assert {p.match for p in pairs} <= {"name", "category", "unmatched"}
    assert sum(p.delta_ns for p in pairs) == 1_616_232 - 2_184_310


def test_shares_of_iterations_add_up_to_the_rounded_total() -> None:
    parts = {"a": 10, "b": 11, "c": 5, "d": -4}

    shares = per_iteration(parts, 3)

    assert sum(shares.values()) == round(22 / 3)
    assert all(abs(shares[k] - parts[k] / 3) < 1 for k in parts)


def test_captures_of_unequal_iterations_are_compared_per_iteration(
    views: dict[str, RunView],
) -> None:
    a = views["decode_eager"]
    b = build_view(kernels=a.kernels, summary=a.summary, phases=twice(a.phases))

    fall = make_waterfall(a, b, "kernel_time")
    pairs = match_kernels(a, b)

    assert fall is not None
    assert (fall.per, fall.total_a_ns, fall.total_b_ns) == ("iteration", 436_862, 218_431)
    assert sum(bar.delta_ns for bar in fall.bars) == fall.total_b_ns - fall.total_a_ns
    assert sum(p.delta_ns for p in pairs) == fall.total_b_ns - fall.total_a_ns


def twice(phases: pd.DataFrame) -> pd.DataFrame:
    return phases.assign(num_ranges=phases["num_ranges"] * 2)


def test_a_comparison_of_imports_says_where_time_went_and_asks_for_repeats(
    views: dict[str, RunView],
) -> None:
    found = compare([views["decode_eager"]], [views["decode_max_autotune"]])
    document = found.as_dict()

    assert found.verdict == "not_enough_samples"
    total = document["total_b_ns"] - document["total_a_ns"]
    assert sum(bar["delta_ns"] for bar in document["waterfall"]) == total
    assert sum(k["delta_ns"] for k in document["kernels"]) == 1_616_232 - 2_184_310


def test_phase_metrics_are_per_iteration(views: dict[str, RunView]) -> None:
    side = [views["decode_eager"]]

    found = compare(side, side, metric="kernel:mlp")

    assert found.a.n_samples == 5
    assert found.unit == "ms"
    mlp = views["decode_eager"].phases
    total = mlp[mlp["path"].str.endswith("/mlp")]["kernel_ns"].sum()
    assert total == 1_241_595
    assert found.a.median == pytest.approx(total / 5 / 1e6, rel=0.02)
