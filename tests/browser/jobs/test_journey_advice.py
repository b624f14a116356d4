"""In a real browser, on the CPU: from a run to experiments that were tried, and to their score."""

import re
from typing import Any

import pytest

from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_from_a_run_to_tried_experiments_and_their_score(page: Any, dashboard: str) -> None:
    steps.submit_form(page, dashboard, "decode")
    steps.choose(page, "layers", "2")  # a job of no other journey: what was measured is not offered
    steps.one_process(page)
    page.get_by_role("button", name="Submit 1 job").click()
    steps.wait_until_done(page)
    page.get_by_role("link", name=re.compile("decode")).first.click()
    steps.verdict(page)

    page.goto(f"{page.url.split('&')[0]}&tab=Advice")
    page.get_by_role("button", name="Try it").first.wait_for()
    with steps.presses_at_most(page, 4):  # two, and one more each where the page was drawn anew
        for name in ("batch=2", "batch=4"):
            steps.try_it(page, name)
    outcome = page.get_by_text(re.compile("measured .*: (hit|missed)"))
    for number in range(2):
        outcome.nth(number).wait_for(timeout=steps.RUN_MS)

    with steps.presses_at_most(page, 1):
        page.get_by_role("link", name="How predictions fared so far").click()
        page.get_by_role("heading", name="Every prediction and its outcome").wait_for()
