"""`trend` as a nightly check, and `compare` against the last good runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from sqlite_utils import Database

from tests.app.conftest import Cli
from tests.history_runs import night, store_nights

AT, COUNT = 20, 26


@pytest.fixture
def slowed(db: Database) -> list[str]:
    """Store 26 nights, 8 % slower from the twenty-first on, with a newer torch."""
    values = 2.0 * np.exp(np.random.default_rng(7).normal(0, 0.004, COUNT))
    values[AT:] *= 1.08
    environments = [{"torch": "2.11.0" if i < AT else "2.12.0"} for i in range(COUNT)]
    return store_nights(db, values.tolist(), environments=environments)


def test_a_new_slow_down_fails_with_what_changed(cli: Cli, slowed: list[str]) -> None:
    assert cli("trend", "nightly 25", "--fail-above", "5", "--json") == 1

    found = json.loads(cli.out)
    assert found["answer"] == "regression" and len(found["jobs"]) == 1
    (metric,) = found["jobs"][0]["metrics"]
    (change,) = metric["changes"]
    assert change["run_id"] == slowed[AT] and change["previous_run_id"] == slowed[AT - 1]
    assert change["at"] == night(AT) and change["is_worse"]
    assert metric["change_pct"] == pytest.approx(8, abs=1)
    assert [(d["field"], d["a"], d["b"]) for d in change["differs"]] == [
        ("environment.torch", "2.11.0", "2.12.0")
    ]


def test_below_the_limit_or_long_ago_is_no_failure(cli: Cli, slowed: list[str]) -> None:
    assert cli("trend", slowed[-1], "--fail-above", "10") == 0
    assert cli("trend", slowed[-1], "--fail-above", "5", "--new", "2") == 0
    assert cli("trend", slowed[-1]) == 0 and "+8." in cli.out


def test_the_report_is_markdown_with_the_comparison(
    cli: Cli, slowed: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.md"

    words = ("--fail-above", "5", "--markdown", str(report), "--url", "https://dash")
    assert cli("trend", "workload:decode", *words) == 1

    text = report.read_text()
    assert "1 of 1 jobs got worse" in text and "environment.torch 2.11.0 -> 2.12.0" in text
    assert f"https://dash/compare?a={slowed[AT - 5]}" in text


def test_a_short_history_passes_unless_asked_to_fail(cli: Cli, db: Database) -> None:
    store_nights(db, [2.0, 2.1])

    assert cli("trend", "nightly 0", "--fail-above", "5") == 0
    assert cli("trend", "nightly 0", "--fail-above", "5", "--on-inconclusive", "fail") == 4


@pytest.mark.parametrize("status", ["done", "failed"])
def test_a_history_that_cannot_be_judged_says_so_and_is_no_clean_bill(
    cli: Cli, db: Database, tmp_path: Path, status: str
) -> None:
    store_nights(db, [2.0])
    with db.atomic():
        db.conn.execute("UPDATE runs SET status = ?", [status])
    report = tmp_path / "report.md"

    assert cli("trend", "nightly 0", "--fail-above", "5", "--markdown", str(report)) == 0

    number = "1 run finished" if status == "done" else "0 runs finished"
    assert f"undecided: {number}" in cli.err and number in cli.out
    assert report.read_text().startswith("## Warpboard: 1 of 1 jobs undecided\n")
    assert number in report.read_text()


def test_a_run_that_failed_tonight_is_said_to_be_no_part_of_what_is_judged(
    cli: Cli, db: Database, slowed: list[str]
) -> None:
    with db.atomic():
        db.conn.execute("UPDATE runs SET status = 'failed' WHERE id = ?", [slowed[-1]])

    cli("trend", "nightly 25", "--fail-above", "5")
    assert "nightly 25 is failed: no part of the history" in cli.err

    cli("trend", "nightly 24", "--fail-above", "5")
    assert "no part of" not in cli.err


def test_one_judged_job_beside_one_that_cannot_be_is_told_apart(
    cli: Cli, db: Database, slowed: list[str], tmp_path: Path
) -> None:
    store_nights(db, [2.0, 2.1], params={"compile": "default"}, name="new")
    report = tmp_path / "report.md"

    assert cli("trend", "workload:decode", "--fail-above", "5", "--markdown", str(report)) == 1

    head = report.read_text().splitlines()[0]
    assert head == "## Warpboard: 1 of 2 jobs got worse, 1 of 2 jobs undecided"


def test_a_filter_checks_every_job_it_names(cli: Cli, db: Database, slowed: list[str]) -> None:
    store_nights(db, [4.0] * 10, params={"compile": "default"}, name="compiled")

    assert cli("trend", "workload:decode", "--fail-above", "5", "--json") == 1

    answers = {j["job"]["name"]: j["answer"] for j in json.loads(cli.out)["jobs"]}
    assert answers == {"nightly 25": "regression", "compiled 9": "passed"}


def test_a_job_that_is_not_there_is_one_line(cli: Cli) -> None:
    assert cli("trend", "nothing", "--fail-above", "5") == 2 and "no run has" in cli.err


@pytest.mark.parametrize("words", [("last:5", "nightly 25"), ("nightly 25", "--base", "last:5")])
def test_compare_takes_the_last_good_runs_as_its_base(
    cli: Cli, db: Database, slowed: list[str], words: tuple[str, ...]
) -> None:
    cli("tag", slowed[24], "bad")

    assert cli("compare", *words, "--json") == 0

    assert json.loads(cli.out)["a"]["run_ids"] == slowed[19:24]


def test_compare_wants_two_sides(cli: Cli, slowed: list[str]) -> None:
    assert cli("compare", slowed[0]) == 2 and "wants two sides" in cli.err
