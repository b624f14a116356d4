"""In a real browser, on the CPU: too few repeats; one press runs A B A B; the link then decides."""

import re
from typing import Any

import pytest

from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


def test_one_press_runs_repeats_in_turn_and_the_same_link_then_has_a_verdict(
    page: Any, dashboard: str
) -> None:
    page.goto(f"{dashboard}/submit?workload=attention")
    steps.choose(page, "seq_len", "64")
    steps.choose(page, "implementation", "naive", "sdpa")
    page.get_by_test_id("stButtonGroup").get_by_text("trace", exact=True).click()
    steps.one_process(page)
    page.get_by_role("button", name="Submit 2 jobs").click()
    steps.wait_until_done(page)
    link = f"{dashboard}/compare?a={run_of(page, 'naive')}&b={run_of(page, 'sdpa')}"

    page.goto(link)
    assert "too few repeats" in steps.verdict(page)
    page.get_by_role("button", name="Run 5 interleaved repeats").click()
    page.wait_for_url(re.compile("/queue"))
    waiting = page.get_by_role("link", name=re.compile("^repeats of"))
    waiting.nth(7).wait_for()
    asked = [text.rpartition("=")[2] for text in waiting.all_inner_texts()]
    assert asked == [asked[0], asked[1]] * (len(asked) // 2) + asked[: len(asked) % 2]
    assert set(asked) == {"naive", "sdpa"}
    steps.wait_until_done(page)

    page.goto(link)
    page.get_by_text("Count 10 more runs of these jobs that ran in turn").wait_for()
    seen = steps.verdict(page)
    assert seen.count("(6 processes, ") == 2
    assert "not enough repeats" not in seen


def run_of(page: Any, implementation: str) -> str:
    """Return the id of the newest run of an implementation, from its link on the Queue page."""
    link = page.get_by_role("link", name=re.compile(f"implementation={implementation}")).first
    return str(link.get_attribute("href")).rpartition("=")[2]


def test_an_empty_study_says_what_to_run_and_one_press_fills_it(page: Any, dashboard: str) -> None:
    study = f"{dashboard}/studies?name=gemm-tiles"
    page.goto(study)
    page.get_by_text("./warpboard submit gemm --profilers ncu").wait_for()
    page.get_by_role("button", name="Run 1 missing job").click()
    page.wait_for_url(re.compile("/queue"))
    page.get_by_role("link", name=re.compile("^gemm-tiles")).first.wait_for()
    steps.wait_until_done(page)

    page.goto(study)
    page.get_by_role("heading", name="Tiles").wait_for()
    assert page.get_by_text("No run of yours fills this study yet").count() == 0
