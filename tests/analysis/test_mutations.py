"""Damaged captures: a small seeded part of what `python -m bench.mutations` does with thousands."""

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from bench.mutations.__main__ import DATA, FAILURES, captures, plan, run
from bench.mutations.structures import FAILURES as STRUCTURE_FAILURES
from bench.mutations.structures import run_jobs, run_structures, seed_of

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
    options = Namespace(jobs=2, count=3, first=4, seed=7, only="decode_eager", seconds=60.0)
    options.keep = tmp_path

    assert run_jobs(options) == 0

    (line,) = capfd.readouterr().out.splitlines()
    totals = json.loads(line)
    assert (totals["count"], totals["jobs"], totals["jobs_that_died"]) == (3, 2, 0)
    assert totals["read"] + totals["error"] == 3
    for use in ("memory_mb", "cpu_s", "wall_s"):
        assert [who.split(", ")[1][:8] for _, who in totals["most"][use]].count("mutant 4") == 2
        assert [value for value, _ in totals["most"][use]] == sorted(
            (value for value, _ in totals["most"][use]), reverse=True
        )
    assert len({seed_of(seed, job) for seed in range(9) for job in range(64)}) == 9 * 64


def test_the_same_seed_makes_the_same_damage() -> None:
    files = captures(DATA)
    assert plan(files, 40, seed=3) == plan(files, 40, seed=3)
    assert plan(files, 40, seed=3) != plan(files, 40, seed=4)


@pytest.mark.child
def test_well_formed_files_that_mean_harm_are_read_or_refused_within_the_limits() -> None:
    files = [f for f in captures(DATA) if f.suffix not in SKIPPED]
    readings = list(run_structures(files, range(20), seed=3))
    assert [r.number for r in readings] == list(range(20))
    assert [r for r in readings if r.outcome in STRUCTURE_FAILURES] == []
    assert {"read", "error"} <= {r.outcome for r in readings}


@pytest.mark.child
def test_each_mutant_is_measured_alone_and_can_be_made_again(tmp_path: Path) -> None:
    files = [f for f in captures(DATA) if f.suffix == ".csv"][:1]
    held = b"x" * 400_000_000  # of whoever starts the child: not the mutant's

    readings = list(run_structures(files, range(5, 8), seed=3))
    (again,) = run_structures(files, range(7, 8), seed=3, keep=tmp_path)

    assert len(held) > 10**6 * max(r.memory_mb or 0 for r in readings)
    assert all(r.memory_mb and r.cpu_s and r.wall_s for r in readings)
    assert (again.number, again.outcome) == (7, readings[2].outcome)
    assert [f.name for f in tmp_path.iterdir()] == ["3-7"]
