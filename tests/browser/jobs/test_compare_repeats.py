"""In a real browser: too few repeats, and one press queues A B A B; one press fills a study."""

import re
from pathlib import Path
from typing import Any

import pytest

from core.config import DataDir
from db.connection import opened
from db.runs import delete_runs, list_runs
from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def test_one_press_queues_repeats_in_turn_and_the_link_waits_for_them(
    page: Any, dashboard: str, dashboard_data: Path
) -> None:
    steps.submit_form(page, dashboard, "attention")
    steps.choose(page, "seq_len", "64")
    steps.choose(page, "implementation", "naive", "sdpa")
    steps.no_trace(page)
    steps.one_process(page)
    page.get_by_role("button", name="Submit 2 jobs").click()
    steps.wait_until_done(page)
    link = f"compare?a={run_of(page, 'naive')}&b={run_of(page, 'sdpa')}"

    steps.go(page, dashboard, link)
    assert "Not enough repeats" in steps.verdict(page)
    page.get_by_role("button", name="Run 5 interleaved repeats").click()
    page.wait_for_url(re.compile("/queue"))
    waiting = page.get_by_role("link", name=re.compile("^repeats of"))
    waiting.nth(7).wait_for()
    asked = [text.rpartition("=")[2] for text in waiting.all_inner_texts()]
    assert asked == [asked[0], asked[1]] * (len(asked) // 2) + asked[: len(asked) % 2]
    assert set(asked) == {"naive", "sdpa"}

    steps.go(page, dashboard, link)
    page.get_by_text(re.compile(r"\d+ repeats of these jobs are queued or running")).wait_for()
    with opened(DataDir(root=dashboard_data).db_path) as db:
        steps.cancel_all(db)


def run_of(page: Any, implementation: str) -> str:
    """Return the id of the newest run of an implementation, from its link on the Queue page."""
    link = page.get_by_role("link", name=re.compile(f"implementation={implementation}")).first
    return str(link.get_attribute("href")).rpartition("=")[2]


def test_an_empty_study_says_what_to_run_and_one_press_fills_it(
    page: Any, dashboard: str, dashboard_data: Path
) -> None:
    with opened(DataDir(root=dashboard_data).db_path) as db:
        delete_runs(db, list(list_runs(db, "workload:gemm", limit=100)["id"]))  # of other journeys
    study = "studies?name=gemm-tiles"
    steps.go(page, dashboard, study)
    page.get_by_text("./warpboard submit gemm --profilers ncu").wait_for()
    page.get_by_role("button", name="Run 1 missing job").click()
    page.wait_for_url(re.compile("/queue"))
    page.get_by_role("link", name=re.compile("^gemm-tiles")).first.wait_for()
    steps.wait_until_done(page)

    steps.go(page, dashboard, study)
    page.locator("table").get_by_text("measured").first.wait_for()
    assert page.get_by_text("No run of yours fills this study yet").count() == 0
