"""What studies hold beside a latency: ratios, blocks, calls, and what they leave out."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.latency import latency_ms
from analysis.runview import RunView
from analysis.studies import Pivot, run_study
from tests.analysis.compare.views import build_view

ATTENTION = {
    "head_dim": 128, "heads": 32, "batch": 1, "seq_len": 2048, "dtype": "fp16", "mode": "forward",
}  # fmt: skip


def timed(run_id: str, workload: str, params: dict[str, Any], ms: float, **changes: Any) -> RunView:
    summary = {"latency_ms": {"median": ms}}
    return build_view(
        id=run_id, name=run_id, workload=workload, params=params, summary=summary, **changes
    )


def attention(run_id: str, name: str, ms: float, **changes: Any) -> RunView:
    return timed(run_id, "attention", ATTENTION | {"implementation": name} | changes, ms)


def shown(pivot: Pivot) -> dict[tuple[str, str], str]:
    """Return the texts by (whole row key joined, column)."""
    return {
        (" ".join(k for k in key if k), column): cell.text
        for key, row in zip(pivot.rows, pivot.cells, strict=True)
        for column, cell in zip(pivot.columns, row, strict=True)
        if cell.text
    }


def test_attention_beside_a_published_size_is_of_that_size_alone() -> None:
    views = [
        attention("a", "naive", 2.0),
        attention("b", "triton", 1.0),
        attention("c", "triton", 3.0, mode="forward_backward"),
        attention("d", "triton", 4.0, batch=8),
    ]

    table = run_study("flash-kernels-playground", views)

    pivot = next(p for p in table.pivots if p.title == "Attention forward")
    cells = shown(pivot)
    assert sorted(v for (_, c), v in cells.items() if c.startswith("latency")) == ["1.000", "2.000"]
    assert [v for (_, c), v in cells.items() if c.startswith("speed-up")] == ["2.00"]
    assert any("mode forward" in n and "2 of our runs differ" in n for n in table.notes)


def test_attention_scaling_has_a_speed_up_on_the_naive_implementation() -> None:
    views = [attention("a", "naive", 3.0), attention("b", "triton", 1.5)]

    cells = shown(run_study("attention-scaling", views).pivots[0])

    (key, value), *rest = [(k, v) for k, v in cells.items() if "speed-up" in k[1]]
    assert "triton" in key[0] and value == "2.00" and not rest


def test_regrouping_has_an_overhead_on_routing_under_the_published_name() -> None:
    params = {"experts": 64, "top_k": 2, "tokens": 32768}
    views = [
        timed("a", "moe_routing", params | {"implementation": "route"}, 0.2),
        timed("b", "moe_routing", params | {"implementation": "route_sort"}, 0.5),
    ]

    table = run_study("moe-routing", views, published=True)

    cells = shown(next(p for p in table.pivots if p.title == "Overhead of regrouping"))
    assert sorted(cells.values()) == ["150", "191"]
    assert {column for _, column in cells} == {"route_regroup / more than routing alone (%)"}


@pytest.mark.parametrize(
    ("tile_m", "blocks", "waves"), [(16, 688, 688 / 132), (64, 172, 172 / 132)]
)
def test_blocks_of_a_product_are_tiles_of_its_sizes(tile_m, blocks, waves) -> None:
    params = {"m": 64, "n": 11008, "k": 4096, "tile_m": tile_m, "tile_n": 64}
    view = timed("a", "gemm", params | {"implementation": "triton"}, 0.1)

    cells = shown(run_study("gemm-tiles", [view]).pivots[0])

    found = {column: text for (_, column), text in cells.items()}
    assert float(found["grid (blocks)"]) == blocks
    assert float(found["waves per SM"]) == pytest.approx(waves, rel=1e-3)


def test_tiles_of_a_library_are_not_those_of_our_kernel() -> None:
    params = {"m": 64, "n": 11008, "k": 4096, "tile_m": 16, "tile_n": 64}
    view = timed("a", "gemm", params | {"implementation": "cublas"}, 0.1)

    found = {column for _, column in shown(run_study("gemm-tiles", [view]).pivots[0])}

    assert "latency (ms)" in found and not {"grid (blocks)", "waves per SM"} & found


def test_host_calls_have_share_total_count_and_average() -> None:
    rows = [("cudaLaunchKernel", 100, 3_000_000), ("cudaMemcpyAsync", 10, 1_000_000)]
    calls = pd.DataFrame(rows, columns=["name", "count", "total_ns"])

    cells = shown(
        run_study("host-calls", [timed("a", "decode", {}, 1.0, api_calls=calls)]).pivots[0]
    )

    launch = {c: v for (key, c), v in cells.items() if "cudaLaunchKernel" in key}
    assert launch == {
        "share (%)": "75.0", "total (ms)": "3.000", "calls": "100", "average (us)": "30.00",
    }  # fmt: skip


def test_a_cell_of_several_runs_has_the_latency_of_all_their_samples() -> None:
    rng = np.random.default_rng(1)
    views = []
    for run_id, level in (("a", 0.18), ("b", 0.32)):
        view = build_view(
            (tuple(level + rng.normal(0, 0.001, 20)),), id=run_id, name=run_id,
            params={"compile": "none", "context": 512},
        )  # fmt: skip
        view.summary["latency_ms"] = latency_ms(view.samples)
        views.append(view)

    table = run_study("decode-latency", views)

    (cell,) = [c for row in table.pivots[0].cells for c in row if c.text]
    samples = np.concatenate([v.samples["latency_ns"].to_numpy() for v in views]) / 1e6
    assert cell.value == pytest.approx(np.median(samples))
    assert cell.run_ids == ("a", "b")
    assert any("far apart: a 0.1" in note and ", b 0.3" in note for note in table.notes)


def test_a_table_states_what_all_its_rows_share() -> None:
    """What a reader cannot see in the rows or columns is told: no field is implied."""
    params = {"preset": "small", "mode": "forward", "dtype": "bf16", "batch": 8}
    views = [
        timed(f"r{length}", "transformer", params | {"seq_len": length}, 5.0)
        for length in (128, 256)
    ]

    notes = run_study("forward-time", views).notes

    stated = next(note for note in notes if note.startswith("Fixed"))
    assert "batch 8" in stated and "128" not in stated
