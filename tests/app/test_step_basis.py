"""Every figure of one step is the same whatever else a capture holds: lists, views, comparison.

One capture twice, once with start-up before its steps: 60 launches of 1 ms that the program makes
before its first iteration, and their calls, ranges and copies.
"""

import shutil
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from analysis.compare.engine import compare
from analysis.compare.kernels import match_kernels
from analysis.compare.waterfall import make_waterfall
from analysis.per_step import (
    basis_of,
    calls_of_one,
    kernel_time_of_one,
    kernels_of_one,
    phases_of_one,
    transfers_of_one,
)
from analysis.runview import RunView
from analysis.studies.engine.readings import kernel_shares, phase_ns
from core.config import DataDir
from db.connection import opened
from db.fetch import run_view

CAPTURE = Path(__file__).parent.parent / "data/h100/nsys/decode_eager.sqlite"
NUM_LATE, MS = 60, 1_000_000


def with_start_up(path: Path) -> Path:
    """Put launches of 1 ms, one each 2 ms, before all that the capture holds."""
    shutil.copy(CAPTURE, path)
    with sqlite3.connect(path) as db:
        kernel = db.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start").fetchone()
        call = db.execute(
            "SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId = ?", [kernel[6]]
        ).fetchone()
        first = db.execute("SELECT min(start) FROM NVTX_EVENTS").fetchone()[0]
        for i in range(NUM_LATE):
            at = first - 2 * MS * (NUM_LATE - i)
            row = (at + 5_000, at + 5_000 + MS, *kernel[2:6], 900_000 + i, *kernel[7:])
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", row)
            row = (at, at + 4_000, *call[2:4], 900_000 + i, *call[5:])
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({marks})", row)
    return path


@pytest.fixture
def views(cli, data_dir: DataDir, tmp_path: Path) -> tuple[RunView, RunView]:
    plain = cli.json("import", str(CAPTURE), "--name", "plain")["run_id"]
    late = with_start_up(tmp_path / "late.sqlite")
    more = cli.json("import", str(late), "--name", "start-up")["run_id"]
    with opened(data_dir.db_path, is_reader=True) as db:
        return run_view(db, data_dir, plain), run_view(db, data_dir, more)


def test_a_step_has_the_same_figures_whatever_ran_before_it(
    views: tuple[RunView, RunView],
) -> None:
    plain, late = views
    added = late.summary["kernel_time_ns"] - plain.summary["kernel_time_ns"]
    assert added == NUM_LATE * MS

    assert kernel_time_of_one(plain) == kernel_time_of_one(late) == 437_100
    assert basis_of(plain) == basis_of(late)
    for read in (calls_of_one, transfers_of_one, phases_of_one):
        pd.testing.assert_frame_equal(read(plain), read(late))
    own = kernels_of_one(late).query("one_count > 0").set_index(["name", "grid", "block"])
    wanted = kernels_of_one(plain).set_index(["name", "grid", "block"])
    assert own["one_ns"].sort_index().to_dict() == wanted["one_ns"].sort_index().to_dict()
    assert kernel_shares(late, "category").to_dict() == pytest.approx(
        kernel_shares(plain, "category").to_dict()
    )
    assert phase_ns(late, "mlp", "kernel_ns") == phase_ns(plain, "mlp", "kernel_ns")


def test_the_kernels_of_a_step_add_up_to_those_of_its_iterations_in_the_file(
    views: tuple[RunView, RunView],
) -> None:
    with sqlite3.connect(CAPTURE) as db:
        (total,) = db.execute(
            'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        ).fetchone()
        calls = dict(
            db.execute(
                "SELECT s.value, count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME r"
                " JOIN StringIds s ON s.id = r.nameId WHERE EXISTS (SELECT 1 FROM NVTX_EVENTS n"
                " WHERE n.text LIKE 'iteration!_%' ESCAPE '!' AND n.start <= r.start"
                ' AND r.start < n."end") GROUP BY 1'
            ).fetchall()
        )
        (host,) = db.execute(
            "SELECT sum(\"end\" - start) FROM NVTX_EVENTS WHERE text LIKE 'iteration!_%' ESCAPE '!'"
        ).fetchone()
    late = views[1]

    assert kernels_of_one(late)["one_ns"].sum() == pytest.approx(total / 5)
    found = calls_of_one(late).set_index("name")["count"]
    assert found["cudaLaunchKernel"] == calls["cudaLaunchKernel_v7000"] / 5
    phases = phases_of_one(late).set_index("path")
    iteration = phases[phases.index.str.endswith("iteration_*")].iloc[0]
    assert iteration["host_ns"] == host / 5
    assert iteration["num_ranges"] == 1
    assert iteration["kernel_ns"] == pytest.approx(total / 5)
    marked = late.phases[late.phases["path"].str.contains(r"iteration_\d$")]
    assert iteration["projected_ns"] == marked["projected_ns"].sum() / 5


def test_captures_with_other_start_up_compare_equal(views: tuple[RunView, RunView]) -> None:
    plain, late = views

    for metric in ("kernel_time", "busy"):
        found = compare([plain], [late], metric=metric)
        assert (found.metric_per, found.ratio) == ("step", 1.0)
    fall = make_waterfall(plain, late, "kernel_time")
    assert fall is not None and fall.per == "step"
    assert [bar.delta_ns for bar in fall.bars] == [0] * len(fall.bars)
    assert fall.total_a_ns == fall.total_b_ns == 436_862
    span = make_waterfall(plain, late, "span")
    assert span is not None
    assert sum(bar.delta_ns for bar in span.bars) == span.total_b_ns - span.total_a_ns == 0
    pairs = match_kernels(plain, late)
    assert {p.match for p in pairs} == {"name"}
    assert [p.delta_ns for p in pairs] == [0] * len(pairs)
    assert sum(p.a_ns for p in pairs) == fall.total_a_ns
    assert sum(p.a_count for p in pairs) == 76


def test_lists_show_the_idle_share_of_the_steps_and_say_so(cli, views) -> None:
    rows = {row["name"]: row for row in cli.json("runs", "--json")["runs"]}

    assert {row["idle_source"] for row in rows.values()} == {"steps"}
    assert rows["plain"]["idle_frac"] == rows["start-up"]["idle_frac"]
    assert rows["plain"]["gemm_frac"] == pytest.approx(rows["start-up"]["gemm_frac"])
    shown = cli.json("show", rows["start-up"]["id"], "--json")
    assert shown["summary"]["idle_source"] == "profiled"
    assert rows["start-up"]["idle_frac"] == shown["steps"]["idle_frac"]
    cli("reclassify")
    again = {row["name"]: row for row in cli.json("runs", "--json")["runs"]}
    assert again["start-up"]["gemm_frac"] == pytest.approx(rows["plain"]["gemm_frac"])
