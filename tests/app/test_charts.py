"""Charts draw what the frame says and never read a name as markup."""

from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
import pytest

from analysis.colours import (
    CATEGORY_COLOURS,
    category_colour,
    category_order,
    gpu_colour,
    series_colour,
)
from analysis.roofline import ceilings
from analysis.studies import Pivot, Table, run_study
from analysis.studies.engine.drawn import value_colours
from analysis.studies.engine.records import Chart, Value
from app.charts import compare, memory, phases, ranks, roofline, studies
from tests.analysis.compare.views import build_view

NAMES = [
    "void at::native::elementwise_kernel<4, MulFunctor<float>>(int)",
    "gemm_a" + "x" * 60 + "1",
]


def kernel_frame(names: list[str]) -> pd.DataFrame:
    size = len(names)
    return pd.DataFrame(
        {
            "name": names,
            "grid": [f"{i},1,1" for i in range(size)],
            "category": ["elementwise"] * size,
            "origin": ["aten"] * size,
            "total_ns": [3_000_000] * size,
            "count": [2] * size,
            "share_frac": [1 / size] * size,
        }
    )


def test_template_arguments_are_shown_as_text() -> None:
    fig = phases.top_kernels(kernel_frame(NAMES)).to_plotly()
    assert "&lt;" in fig.data[0].y[0] and "<" not in fig.data[0].y[0]


def test_names_that_look_alike_when_cut_keep_their_own_bars() -> None:
    alike = ["k" * 90 + end for end in ("one", "one")]
    fig = phases.top_kernels(kernel_frame(alike)).to_plotly()
    assert len(set(fig.data[0].y)) == 2


def test_kernels_of_one_name_are_told_apart_by_their_shapes_and_never_numbered() -> None:
    name = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_bias"
    frame = kernel_frame([name] * 3).assign(
        grid=["8,1,1", "8,1,1", "16,1,1"], block=["128,1,1", "256,1,1", "128,1,1"]
    )
    labels = list(phases.top_kernels(frame).to_plotly().data[0].y)
    assert len({text.replace("\u200b", "") for text in labels}) == 3
    assert not any(text.endswith(("(2)", "(3)")) for text in labels)
    assert all("bias" in text and text.startswith("sm90") for text in labels)


def test_the_whole_name_of_a_kernel_is_told_on_hover() -> None:
    name = "void at::native::elementwise_kernel<" + "a, " * 200 + "last>(int)"
    told = phases.top_kernels(kernel_frame([name])).to_plotly().data[0].hovertext[0]
    told = told.replace("<br>", "").replace("&lt;", "<").replace("&gt;", ">")
    assert told.startswith(name)


def test_the_memory_curve_keeps_its_name_beside_bands_of_phases() -> None:
    fig = memory.memory_timeline(points(50), phases=[("optimizer", 10, 30)]).to_plotly()
    assert {trace.name for trace in fig.data} == {"reserved", "allocated"}


def test_a_category_has_one_colour_in_every_chart() -> None:
    frame = kernel_frame(["a"]).assign(category="gemm")
    bar = phases.top_kernels(frame).to_plotly().data[0].marker.color[0]
    share = phases.shares(frame, by="category").to_plotly().data[0].marker.color[0]
    assert bar == share == category_colour("gemm")


def test_no_two_categories_share_a_colour() -> None:
    assert len(set(CATEGORY_COLOURS.values())) == len(CATEGORY_COLOURS)


def test_categories_keep_legend_order_and_new_ones_come_last() -> None:
    assert category_order(["brand_new", "copy", "gemm"]) == ["gemm", "copy", "brand_new"]


def test_waterfall_ends_at_the_other_side() -> None:
    steps = [("gemm", -332_600.0), ("gemv", 301_300.0), ("idle", 0.0)]
    fig = compare.waterfall(
        steps, start_ns=436_900.0, labels=("a", "b"), what="kernel time"
    ).to_plotly()
    assert fig.data[0].x[-1] == pytest.approx(405.6)
    assert list(fig.data[0].y) == ["a", "gemm", "gemv", "b"]


def test_every_bar_of_a_waterfall_has_its_number_and_room_for_it() -> None:
    fig = compare.waterfall(
        [("waiting for launches", -1_590_000.0), ("copy", 12_000.0)],
        start_ns=2_500_000.0,
        labels=("a", "b"),
        what="span",
    ).to_plotly()
    bars = fig.data[0]
    assert list(bars.text) == [
        "2.50\u00a0ms",
        "\u22121.59\u00a0ms",
        "+12.0\u00a0\u00b5s",
        "922\u00a0\u00b5s",
    ]
    assert fig.layout.uniformtext.mode is False and bars.constraintext == "none"
    longest = max(b + x for b, x in zip(bars.base, bars.x, strict=True))
    assert fig.layout.xaxis.range[1] >= 1.15 * longest


def test_waterfall_of_two_runs_of_one_name_keeps_both_bars() -> None:
    fig = compare.waterfall([], start_ns=1e3, labels=("same", "same"), what="span").to_plotly()
    assert list(fig.data[0].y) == ["A: same", "B: same"]


def test_a_waterfall_of_milliseconds_is_drawn_in_milliseconds() -> None:
    fig = compare.waterfall(
        [("gemm", -4e6)], start_ns=12e6, labels=("a", "b"), what="span"
    ).to_plotly()
    assert fig.layout.xaxis.title.text == "span (ms)"
    assert fig.data[0].x[0] == pytest.approx(12.0)


def test_an_interval_that_rules_nothing_out_leaves_the_ratio_in_sight() -> None:
    fig = compare.interval(1.1, (1e-9, 1e9), None).to_plotly()
    low, high = fig.layout.xaxis.range
    assert fig.layout.xaxis.type == "log" and low < 0 < high < 3
    several = compare.intervals([("x", 1.1, (1e-9, 1e9), "#111111")]).to_plotly()
    assert several.layout.xaxis.type == "log"
    narrow = compare.interval(1.1, (1.0, 1.2), None).to_plotly()
    assert narrow.layout.xaxis.type is None


def test_an_unknown_phase_time_is_left_out_not_drawn_as_zero() -> None:
    frame = pd.DataFrame(
        {
            "label": ["forward"],
            "host_ns": pd.array([5_000_000], dtype="Int64"),
            "projected_ns": pd.array([None], dtype="Int64"),
            "kernel_ns": pd.array([2_000_000], dtype="Int64"),
        }
    )
    drawn = {t.name: len(t.y) for t in phases.phase_times(frame).to_plotly().data}
    assert drawn == {"host range": 1, "kernel sum": 1}
    assert {t.name for t in phases.phase_times(frame, what="operator").to_plotly().data} == {
        "host range",
        "operator sum",
    }


def points(size: int) -> pd.DataFrame:
    level = pd.Series(range(size)).mod(997)
    level.iloc[size // 2] = 5000
    return pd.DataFrame(
        {
            "time_ns": range(size),
            "device": 0,
            "allocated_bytes": level,
            "reserved_bytes": pd.array([6000] * size, dtype="Int64"),
            "phase": None,
        }
    )


def test_thinning_a_long_memory_curve_keeps_its_peak() -> None:
    fig = memory.memory_timeline(points(50_000)).to_plotly()
    allocated = next(t for t in fig.data if t.name == "allocated")
    assert max(allocated.y) == 5000 and len(allocated.y) <= 4000


def test_roofline_tells_measured_and_datasheet_ceilings_apart() -> None:
    roofs = ceilings(
        {"copy_bytes_per_s": 3e12, "gemm_bf16_flops_per_s": 9e14}, "NVIDIA H100 80GB HBM3", "bf16"
    )
    empty = pd.DataFrame(
        {c: [] for c in ("label", "intensity", "flops_per_s", "duration_ns", "category")}
    )
    fig = roofline.roofline(empty, roofs, [("run", 1.0, 1e12)]).to_plotly()
    assert [t.line.dash for t in fig.data[:2]] == ["solid", "dash"]
    assert fig.data[2].marker.symbol == "diamond"


def test_kernels_of_all_runs_share_a_roofline_told_apart_by_run_and_side() -> None:
    points = pd.DataFrame(
        {
            "label": "gemm",
            "category": "gemm",
            "intensity": 1.0,
            "flops_per_s": 1e12,
            "duration_ns": [100.0, 400.0, 400.0, 900.0],
            "side": ["A", "B", "B", "B"],
            "run": ["A: x", "B1: y", "B1: y", "B2: z"],
            "colour": ["#111111", "#222222", "#222222", "#333333"],
        }
    )
    fig = roofline.roofline(points, ceilings({}, None, "bf16")).to_plotly()
    seen = [(t.name, t.marker.symbol, t.marker.color, len(t.x)) for t in fig.data]
    assert seen == [
        ("A: x", "circle", "#111111", 1),
        ("B1: y", "square", "#222222", 2),
        ("B2: z", "square", "#333333", 1),
    ]
    assert fig.data[0].marker.size[0] < fig.data[1].marker.size[0] < fig.data[2].marker.size[0]


def study_table(kind: str, x: str, colour: str) -> Table:
    return Table(
        title="Latency",
        rows=("gpu",),
        columns=("compile",),
        values=(Value(key="latency", label="latency", unit="ms", measure="latency"),),
        chart=Chart(kind=kind, x=x, colour=colour, value="latency"),
    )


def study_base() -> dict[str, object]:
    """What all cells of these studies have in common."""
    return {
        "table": "Latency",
        "value_key": "latency",
        "unit": "ms",
        "status": "ok",
        "provenance": "measured",
        "from": "measured",
    }


def study_rows(**columns: object) -> pd.DataFrame:
    fixed = {
        "gpu": ["H100", "H100"],
        "compile": ["none", "none"],
        "value": [2.0, 3.0],
        "text": ["2", "3"],
    }
    return pd.DataFrame(study_base() | fixed | columns)


def drawn(rows: pd.DataFrame, table: Table, pivot: Pivot) -> go.Figure:
    (panel,) = studies.draw(rows, table, pivot)
    return panel.chart.to_plotly()


PIVOT = Pivot(title="Latency", row_fields=("from", "gpu"), rows=(), columns=(), cells=())


def test_two_values_at_one_place_are_bars_beside_each_other_not_a_sum() -> None:
    by_row = drawn(study_rows(), study_table("bars", "gpu", "compile"), PIVOT)
    by_value = drawn(study_rows(), study_table("bars", "compile", "gpu"), PIVOT)
    assert by_row.layout.xaxis.title.text == "latency (ms)"
    assert len(set(by_row.data[0].y)) == 2
    assert by_value.layout.yaxis.title.text == "latency (ms)"
    assert [list(bar.y) for bar in by_value.data] == [[2.0], [3.0]]
    assert len({bar.name for bar in by_value.data}) == 2


def test_gpus_stand_side_by_side_in_their_colours_in_decode_latency() -> None:
    models = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
    params = {"compile": "none", "layers": 1, "context": 512}
    views = [
        build_view(
            id=model,
            gpu_model=model,
            workload="decode",
            params=params,
            summary={"latency_ms": {"median": 2.0 + place}},
        )
        for place, model in enumerate(models)
    ]
    found = run_study("decode-latency", views)

    fig = drawn(found.frame, found.study.tables[0], found.pivots[0])

    assert {bar.marker.color for bar in fig.data} == {gpu_colour(model) for model in models}
    assert len(found.pivots[0].rows) == 1
    assert sorted(value for bar in fig.data for value in bar.x) == [2.0, 3.0]


def test_bars_of_a_row_leave_no_hole_for_those_that_it_lacks() -> None:
    rows = study_rows(gpu=["A", "B"], compile=["none", "default"])
    fig = drawn(rows, study_table("bars", "gpu", "compile"), PIVOT)
    assert len(fig.data) == 2
    assert fig.data[0].offset == fig.data[1].offset


def test_a_row_that_ran_out_of_memory_says_so_in_its_bar() -> None:
    lost = {"compile": ["none", "default"], "status": ["ok", "oom"], "value": [2.0, None]}
    fig = drawn(study_rows(**lost), study_table("bars", "gpu", "compile"), PIVOT)
    assert {bar.name: bar.text for bar in fig.data} == {
        "compile none": ("",),
        "default": ("OOM",),
    }


def test_rows_of_a_heat_map_whose_names_are_alike_when_cut_keep_their_cells() -> None:
    alike = [f"NVIDIA H100 {'x' * 90} {end} {'y' * 90}" for end in ("one", "two")]
    fig = drawn(study_rows(gpu=alike), study_table("heatmap", "compile", "gpu"), PIVOT)
    assert len(set(fig.data[0].y)) == 2


def test_a_column_of_a_heat_map_that_a_run_does_not_state_says_so() -> None:
    table = study_table("heatmap", "seq_len", "gpu")
    fig = drawn(study_rows(seq_len=[128.0, None]), table, PIVOT)
    assert list(fig.data[0].x) == ["128", "not stated"]


def test_every_series_of_a_study_has_a_colour_of_its_own() -> None:
    assert len({series_colour(i) for i in range(24)}) == 24


def test_a_value_of_a_field_has_one_colour_whichever_others_are_drawn() -> None:
    all_modes = study_rows(compile=["default", "none"])
    one_mode = study_rows(compile=["default", "default"])
    colours = value_colours(all_modes, "compile")
    assert value_colours(one_mode, "compile")["default"] == colours["default"]
    assert colours["default"] != colours["none"]


def test_a_gpu_has_the_colour_of_every_page_and_its_capped_self_a_shade_of_it() -> None:
    names = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 capped at 16 GiB"]
    colours = value_colours(study_rows(gpu=names), "gpu")
    assert colours[names[0]] == gpu_colour(names[0])
    assert colours[names[1]] not in (gpu_colour(names[0]), gpu_colour("cpu"))


def test_a_series_has_one_colour_and_symbol_in_all_charts_of_a_study() -> None:
    """The second table lacks the first of the series, which would shift all others."""
    kinds = {"gpu": ["H100", "H200", "A100"], "compile": "none", "seq_len": ["1", "2", "4"]}
    numbers = {"value": [1.0, 2.0, 3.0], "text": ["1", "2", "3"]}
    first, second = (pd.DataFrame({**study_base(), **kinds, **numbers}) for _ in range(2))
    second = second.iloc[1:].assign(table="Memory")
    frame = pd.concat([first, second], ignore_index=True)
    layout = study_table("loglog", "seq_len", "compile")
    one = drawn(frame, layout, PIVOT)
    two = drawn(frame, replace(layout, title="Memory"), PIVOT)
    looks = [{t.name: (t.line.color, t.marker.symbol) for t in fig.data} for fig in (one, two)]
    assert len(looks[0]) == 3 and len(looks[1]) == 2
    assert {name: looks[0][name] for name in looks[1]} == looks[1]


def test_values_on_a_logarithmic_axis_are_dots_and_not_bars() -> None:
    near = drawn(study_rows(), study_table("bars", "gpu", "compile"), PIVOT)
    wide = study_rows(value=[1.0, 500.0], text=["1", "500"], status=["ok", "ok"])
    far = drawn(wide, study_table("bars", "gpu", "compile"), PIVOT)
    assert {t.type for t in near.data} == {"bar"}
    assert {(t.type, t.mode) for t in far.data} == {("scatter", "markers+text")}
    assert far.layout.xaxis.type == "log"


def test_many_lines_are_drawn_in_panels_where_one_value_has_one_colour() -> None:
    models, batches = ["naive", "sdpa", "triton"], ["1", "2", "4"]
    places = [(m, b, n) for m in models for b in batches for n in ("128", "256")]
    rows = pd.DataFrame(
        study_base()
        | {
            "model": [m for m, _, _ in places],
            "batch": [b for _, b, _ in places],
            "seq_len": [n for _, _, n in places],
            "value": [float(i + 1) for i in range(len(places))],
            "text": [str(i + 1) for i in range(len(places))],
        }
    )
    table = study_table("loglog", "seq_len", "model")
    fields = ("from", "model", "batch")
    pivot = Pivot(title="Latency", row_fields=fields, rows=(), columns=(), cells=())

    panels = studies.draw(rows, table, pivot)

    assert [panel.title for panel in panels] == ["batch 1", "batch 2", "batch 4"]
    looks = [{t["name"]: t["line"]["color"] for t in p.chart.data} for p in panels]
    assert list(looks[0]) == models and looks[0] == looks[1] == looks[2]
    assert len(set(looks[0].values())) == 3
    assert len({str(p.chart.layout["yaxis"]["range"]) for p in panels}) == 1


@pytest.mark.parametrize(("num_steps", "dtick"), [(5, 1), (40, None)])
def test_no_half_step_is_marked_where_a_run_has_few(num_steps, dtick):
    columns = {"skew_ns": 1e6, "waited_ns": 2e6, "straggler": 1}
    steps = pd.DataFrame(
        {"step": range(num_steps)} | {k: [v] * num_steps for k, v in columns.items()}
    )

    assert ranks.step_skew(steps).layout["xaxis"].get("dtick") == dtick
