"""Damaged captures: a small seeded part of what `python -m bench.mutations` does with thousands."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from bench.mutations.__main__ import DATA, FAILURES, captures, plan, run
from bench.mutations.jobs import run_jobs, seed_of
from bench.mutations.structures import FAILURES as STRUCTURE_FAILURES
from bench.mutations.structures import run_structures

SKIPPED = (".ncu-rep",)  # a process of its own each: the bench has them


def test_damage_is_an_error_or_a_warning_never_a_silent_number(tmp_path: Path) -> None:
    files = [f for f in captures(DATA) if f.suffix not in SKIPPED]
    results = run(plan(files, 20, seed=20261127), tmp_path)
    assert len(results) >= 20
    assert [r for r in results if r[2] in FAILURES] == []
    assert {"error", "same numbers"} <= {r[2] for r in results}


def test_processes_do_not_run_the_page_that_a_test_of_pages_left_as_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.py"
    page.write_text("raise SystemExit('a page outside of Streamlit')\n")
    main = ModuleType("__main__")
    main.__file__ = str(page)
    monkeypatch.setitem(sys.modules, "__main__", main)
    files = [f for f in captures(DATA) if f.suffix == ".csv"][:1]

    results = run(plan(files, 2, seed=5), tmp_path)

    assert len(results) == 2
    assert sys.modules["__main__"] is main


def test_jobs_share_the_count_and_give_one_line_of_totals(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = Namespace(jobs=2, count=3, seed=7, only="decode_eager", seconds=60.0, keep=tmp_path)

    assert run_jobs(options) == 0

    (line,) = capfd.readouterr().out.splitlines()
    totals = json.loads(line)
    assert (totals["count"], totals["jobs"], totals["jobs_that_died"]) == (3, 2, 0)
    assert totals["read"] + totals["error"] == 3
    assert len({seed_of(seed, job) for seed in range(9) for job in range(64)}) == 9 * 64


def test_the_same_seed_makes_the_same_damage() -> None:
    files = captures(DATA)
    assert plan(files, 40, seed=3) == plan(files, 40, seed=3)
    assert plan(files, 40, seed=3) != plan(files, 40, seed=4)


@pytest.mark.child
def test_well_formed_files_that_mean_harm_are_read_or_refused_within_the_limits() -> None:
    files = [f for f in captures(DATA) if f.suffix not in SKIPPED]
    results = list(run_structures(files, 20, seed=3))
    assert len(results) == 20
    assert [r for r in results if r[1] in STRUCTURE_FAILURES] == []
    assert {"read", "error"} <= {r[1] for r in results}
