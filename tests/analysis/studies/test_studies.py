"""Studies of our own runs: cells, OOM, missing cells with their jobs, ratios, fits."""

from dataclasses import replace

import pandas as pd
import pytest

from analysis.export import study_dict, to_json
from analysis.runview import RunView
from analysis.studies import list_studies, run_study
from analysis.studies.engine.fields import job_for
from analysis.tables import TRANSFER_COLUMNS
from core.errors import UserError
from core.model_sizes import MODEL_SIZES
from tests.analysis.compare.views import build_view
from tests.analysis.studies.studied_runs import LARGE, transformer

WANTED = (
    "attention-memory",
    "attention-scaling",
    "compile-speedup",
    "decode-latency",
    "forward-time",
    "gemm-fraction",
    "gemm-tiles",
    "gpu-scoreboard",
    "kernel-origin",
    "memory-phases",
    "moe-routing",
    "precision",
    "softmax-matmul",
    "top-kernels",
    "top-non-gemm",
)
TWO_KERNELS = pd.DataFrame(
    {
        "name": ["gemm_kernel", "copy_kernel"],
        "category": ["gemm", "copy"],
        "origin": ["cublas", "aten"],
        "is_opaque": [False, False],
        "total_ns": [900, 100],
        "count": [3, 2],
    }
)


def test_the_studies_that_people_publish_are_there() -> None:
    assert set(WANTED) <= {s.name for s in list_studies()}


@pytest.mark.parametrize("study", list_studies(), ids=lambda s: s.name)
def test_every_study_runs_on_nothing_and_names_a_first_job(study) -> None:
    table = run_study(study.name, [])

    assert table.study.about
    assert [dict(j) for j in table.jobs] == [dict(study.job)]
    assert study_dict(table)["name"] == study.name


def test_a_run_with_capped_memory_stands_for_a_smaller_gpu() -> None:
    whole = transformer("r1", 3.0)
    capped = transformer("r2", None, status="oom", params={"memory_cap_gib": 16.0})

    (pivot, *_) = run_study("forward-time", [whole, capped]).pivots

    assert {row[pivot.row_fields.index("gpu")] for row in pivot.rows} == {
        whole.run.gpu_model,
        f"{whole.run.gpu_model} capped at 16 GiB",
    }
    job = job_for(whole, {"gpu": "x"}, {"gpu": "NVIDIA H200 capped at 24 GiB"})
    assert job and (job["gpu"], job["params"]["memory_cap_gib"]) == ("NVIDIA H200", 24.0)
    back = job_for(capped, {"gpu": "x"}, {"gpu": "NVIDIA H200"})
    assert back and (back["gpu"], back["params"]["memory_cap_gib"]) == ("NVIDIA H200", 0.0)


def test_an_unknown_study_names_those_there_are() -> None:
    with pytest.raises(UserError, match="decode-latency"):
        run_study("nonsense", [])


def test_tiles_and_their_missing_cells_name_the_params_of_the_workload() -> None:
    def tiled(run_id: str, side: int, gpu: str) -> RunView:
        params = {"implementation": "triton", "tile_m": side, "tile_n": side, "preset": None}
        latency = {"latency_ms": {"median": 0.1}}
        fixed = {"workload": "gemm", "params": params, "summary": latency}
        return build_view(id=run_id, gpu_model=gpu, **fixed)

    table = run_study("gemm-tiles", [tiled("a", 64, "G"), tiled("b", 128, "H")])

    assert [key[2] for key in table.pivots[0].rows] == ["tile-64x64", "tile-128x128"]
    assert job_for(
        tiled("a", 64, "G"), {"model": "tile-64x64"}, {"model": "tile-128x128", "gpu": "H"}
    ) == {
        "workload": "gemm",
        "params": {"implementation": "triton", "tile_m": 128, "tile_n": 128},
        "gpu": "H",
        "profilers": [],
        "repeats": 1,
    }


def test_runs_become_cells_by_model_and_sequence() -> None:
    views = [
        transformer("a", 3.0),
        transformer("b", 6.0, seq_len=512),
        transformer("c", 9.0, size=LARGE),
    ]

    pivot = run_study("forward-time", views).pivots[0]
    texts = {
        (key[3], column.split(" ")[0]): cell.text
        for key, cells in zip(pivot.rows, pivot.cells, strict=True)
        for column, cell in zip(pivot.columns, cells, strict=True)
        if "latency" in column
    }

    assert texts == {
        ("small", "256"): "3.000",
        ("small", "512"): "6.000",
        ("large", "256"): "9.000",
        ("large", "512"): "",
    }


def test_a_missing_cell_carries_the_job_that_would_fill_it() -> None:
    views = [
        transformer("a", 3.0),
        transformer("b", 6.0, seq_len=512),
        transformer("c", 9.0, size=LARGE),
    ]

    table = run_study("forward-time", views)
    wanted = [j for j in table.jobs if j["params"]["d_model"] == 1280]

    assert {j["params"]["seq_len"] for j in wanted} == {256, 512}  # 256 lacks the profiled range
    assert all(j["params"]["layers"] == 36 and j["profilers"] == ["nsys"] for j in wanted)
    assert all(j["workload"] == "transformer" for j in wanted)


def test_no_job_is_asked_for_at_a_length_that_only_another_workload_has() -> None:
    decode = build_view(id="d", params={"context": 64}, summary={"gemm_frac": 0.6})
    views = [
        decode,
        transformer("a", 3.0, summary={"gemm_frac": 0.9}),
        transformer("b", 6.0, seq_len=512, size=LARGE, summary={"gemm_frac": 0.9}),
    ]

    jobs = run_study("gemm-fraction", views).jobs

    assert sorted((j["workload"], j["params"]["seq_len"]) for j in jobs) == [
        ("transformer", 256),
        ("transformer", 512),
    ]


def test_an_out_of_memory_run_is_an_oom_cell() -> None:
    views = [transformer("a", 3.0), transformer("b", None, seq_len=512, status="oom")]

    pivot = run_study("forward-time", views).pivots[0]
    cells = {n: c for n, c in zip(pivot.columns, pivot.cells[0], strict=True)}

    cell = next(c for n, c in cells.items() if n.startswith("512 / latency"))
    assert (cell.text, cell.status, cell.value, cell.run_ids) == ("OOM", "oom", None, ("b",))


def test_equal_runs_share_a_cell_as_their_median() -> None:
    views = [transformer(str(i), ms) for i, ms in enumerate((3.0, 5.0, 4.0))]

    cell = run_study("forward-time", views).pivots[0].cells[0][0]

    assert (cell.value, len(cell.run_ids)) == (4.0, 3)


def test_a_param_that_would_mix_two_cells_becomes_a_row() -> None:
    views = [transformer("a", 3.0), transformer("b", 9.0, params={"batch": 16})]

    pivot = run_study("forward-time", views).pivots[0]

    assert "batch" in pivot.row_fields
    assert len(pivot.rows) == 2


def test_speed_up_divides_by_the_eager_run_of_equal_fields() -> None:
    views = [
        transformer("a", 8.0, params={"compile": "none"}),
        transformer("b", 4.0, params={"compile": "default"}),
        transformer("c", 5.0, params={"compile": "default", "batch": 16}),
    ]

    pivot = run_study("compile-speedup", views).pivots[1]

    assert [[c.text for c in row] for row in pivot.cells] == [["2.00"]]


def test_a_job_without_compile_has_no_place_among_compile_modes() -> None:
    latency = {"latency_ms": {"median": 1.0}}
    gemm = build_view(workload="gemm", params={"m": 64, "dtype": "fp32"}, summary=latency)

    assert [p.rows for p in run_study("compile-speedup", [gemm]).pivots] == [(), ()]
    assert len(run_study("precision", [gemm]).pivots[0].rows) == 1


def test_published_rows_stand_beside_ours_and_are_told_apart() -> None:
    decode = build_view(
        id="d",
        params={**MODEL_SIZES["decode"]["llama-7b-layer"], "compile": "none"},
        summary={"latency_ms": {"median": 1.234, "ci95": [1.2, 1.3]}},
    )

    pivot = run_study("decode-latency", [decode], published=True).pivots[0]

    texts = [dict(zip(pivot.columns, (c.text for c in row), strict=True)) for row in pivot.cells]
    assert pivot.rows[0][:3] == ("measured", "llama-7b-layer", "none")
    assert {name: text for name, text in texts[0].items() if text} == {
        "NVIDIA H100 80GB HBM3 / latency (ms)": "1.234"
    }
    assert pivot.rows[1][0] == "published: nsight-minimal-llama"
    assert texts[1]["NVIDIA GeForce RTX 3060 / latency (ms)"] == "3.05"


def test_kernel_shares_fill_origin_and_top_kernel() -> None:
    view = transformer("a", 3.0, kernels=TWO_KERNELS)

    origin = run_study("kernel-origin", [view]).pivots[0]
    other = run_study("top-non-gemm", [view]).pivots[0]

    assert dict(zip(origin.columns, (c.text for c in origin.cells[0]), strict=True)) == {
        "aten / share (%)": "10.0",
        "cublas / share (%)": "90.0",
    }
    assert "copy_kernel" in other.rows[0]
    assert other.cells[0][0].text == "10.0"


def test_imports_that_state_nothing_are_no_repeats_of_each_other() -> None:
    views = []
    for name, part in (("one", TWO_KERNELS), ("two", TWO_KERNELS[1:])):
        view = transformer(name, 3.0, kernels=part)
        views.append(replace(view, run=replace(view.run, name=name, workload=None, params={})))

    pivot = run_study("kernel-origin", views).pivots[0]

    shares = [[c.text for c in row] for row in pivot.cells]
    assert sorted(shares) == [["10.0", "90.0"], ["100.0", ""]]


def test_the_flop_ratio_stands_beside_the_time_ratio() -> None:
    view = transformer("a", 3.0)

    pivot = run_study("softmax-matmul", [view]).pivots[0]
    row = dict(zip(pivot.columns, pivot.cells[0], strict=True))

    # 5 FLOPs an element over 4 x 64 (d_model 768 in 12 heads)
    assert row["256 / FLOP ratio (%)"].value == pytest.approx(100 * 5 / 256)


def test_where_jobs_were_measured_on_two_gpus_those_of_one_are_left_out() -> None:
    h100, h200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
    alone = [transformer("a", 3.0, gpu_model=h100)]
    twice = [transformer(g, 9.0, seq_len=512, gpu_model=g) for g in (h100, h200)]

    assert _texts("gpu-scoreboard", alone, "seq_len") == ["256"]
    assert _texts("gpu-scoreboard", [*alone, *twice], "seq_len") == ["512", "512"]


def test_rows_that_differ_in_dtype_say_so_whatever_else_tells_them_apart() -> None:
    views = [
        transformer("a", 3.0, summary={"gemm_frac": 0.9}),
        transformer("b", 3.0, summary={"gemm_frac": 0.4}, params={"dtype": "bf16", "batch": 32}),
    ]

    assert _texts("gemm-fraction", views, "dtype") == ["fp32", "bf16"]


@pytest.mark.parametrize(("profilers", "num_rows"), [(("memory",), 0), (("nsys",), 1)])
def test_out_of_memory_says_nothing_of_kernels_that_nobody_asked_for(
    profilers: tuple[str, ...], num_rows: int
) -> None:
    view = transformer("a", None, status="oom", profilers=profilers)

    assert len(run_study("gemm-fraction", [view]).pivots[0].rows) == num_rows


def _texts(study: str, views: list[RunView], field: str) -> list[str]:
    """Return what one field says in each row of a study's first table."""
    pivot = run_study(study, views).pivots[0]
    return [row[pivot.row_fields.index(field)] for row in pivot.rows]


def test_the_json_of_a_study_with_holes_is_strict() -> None:
    views = [transformer("a", None), transformer("b", 6.0, seq_len=512)]

    assert "NaN" not in to_json(run_study("forward-time", views, published=True))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [([("DtoD", 8, 4096, 16_000)], {"d2h": 0.0, "d2d": 4.0}), ([], {})],
)
def test_copies_of_a_kind_that_was_not_among_those_recorded_are_none_a_token(
    kinds: list[tuple[str, int, int, int]], expected: dict[str, float]
) -> None:
    """16 000 ns over 4 tokens are 4 us a token; without any record the time is not known."""
    rows = [(kind, None, None, count, size, ns) for kind, count, size, ns in kinds]
    moved = pd.DataFrame(rows, columns=list(TRANSFER_COLUMNS))
    phases = pd.DataFrame([{"path": "iteration_0", "num_ranges": 1, "kernel_ns": 9_000}])
    view = build_view(
        id="r1",
        workload="generate",
        transfers=moved,
        phases=phases,
        cost={"num_tokens": 4},
        summary={},
    )

    frame = run_study("nanochat-inferonly", [view]).frame
    known = frame[frame["value_key"].isin(["d2h", "d2d"]) & frame["value"].notna()]

    assert dict(zip(known["value_key"], known["value"], strict=True)) == expected
