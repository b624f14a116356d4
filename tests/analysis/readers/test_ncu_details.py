"""Figures of ncu beyond the table: waits of warps, hit rates, traffic; real pages and made ones."""

import csv
import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.assemble import assemble
from analysis.bundle import load_paths
from analysis.capture_file import Staging
from analysis.readers.ncu.csv import read_ncu_csv
from analysis.readers.ncu.details import HITS, TRAFFIC, WAITS, details_of


@pytest.fixture(scope="module")
def eager(example_captures: Path) -> Path:
    """A bundle with both pages of a real report."""
    return example_captures / "h200" / "decode_eager"


def _raw_values(eager: Path, launch: str, names: list[str]) -> dict[str, float]:
    """Return metrics of one launch as the file prints them, read without product code."""
    with (eager / "ncu-0.raw.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    row = next(r for r in rows if r["ID"] == launch)
    return {name: float(row[name].replace(",", "")) for name in names}


def test_figures_of_a_real_report_are_those_that_its_page_prints(eager: Path) -> None:
    found = read_ncu_csv(eager / "ncu-0.raw.csv").counter_details
    assert found is not None

    mine = found[found["launch"] == 5].set_index(["group", "name"])["value"]

    printed = _raw_values(
        eager,
        "5",
        ["l1tex__t_sector_hit_rate.pct", "dram__bytes_read.sum",
         "smsp__pcsamp_warps_issue_stalled_long_scoreboard"],
    )  # fmt: skip
    assert [mine[HITS, "L1"], mine[TRAFFIC, "DRAM read"], mine[WAITS, "long scoreboard"]] == list(
        printed.values()
    )


def test_waits_come_longest_first_and_never_twice() -> None:
    stalled = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    values = {
        (stalled.format("long_scoreboard"), ""): 3.5,
        (stalled.format("barrier"), ""): 9.25,
        (stalled.format("barrier_not_issued"), ""): 8.0,
        (stalled.format("drain"), ""): 0.0,
        ("smsp__pcsamp_warps_issue_stalled_barrier", "warp"): 120.0,
    }

    found = [(name, value) for group, name, value, _ in details_of(values) if group == WAITS]

    assert found == [("barrier", 9.25), ("long scoreboard", 3.5)]


def test_what_was_not_collected_is_absent() -> None:
    assert details_of({("lts__t_sector_hit_rate.pct", "%"): math.nan}) == []


@pytest.mark.parametrize("page", ["raw", "details"])
def test_both_pages_agree_on_what_both_hold(eager: Path, page: str) -> None:
    one = read_ncu_csv(eager / f"ncu-0.{page}.csv").counter_details
    raw = read_ncu_csv(eager / "ncu-0.raw.csv").counter_details
    assert one is not None and raw is not None

    both = one.merge(raw, on=["launch", "group", "name"])

    assert len(both) >= 5 * one["launch"].nunique()
    assert (both["value_x"] - both["value_y"]).abs().max() < 0.01
    assert (both["unit_x"] == both["unit_y"]).all()


def test_figures_of_both_pages_of_one_report_are_counted_once(eager: Path, tmp_path: Path) -> None:
    pages = [eager / f"ncu-0.{page}.csv" for page in ("raw", "details")]

    run = assemble(load_paths(pages, Staging(folder=tmp_path)))

    found = [c.tables.counter_details for c in run.captures]
    rows = pd.concat([f for f in found if f is not None])
    assert not rows.duplicated(["launch", "group", "name"]).any()
    assert len(rows) > 300
