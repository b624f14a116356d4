"""In a real browser: jobs in the queue are moved up, cancelled while they run or wait, retried."""

from typing import Any

import pytest

from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]


ORDER = r"""([first, second]) => {
  const text = document.querySelector('[data-testid=stMain]').innerText
  const [, one, two] = text.match(/\n1\.\n([^]*?)\n2\.\n([^]*)/) ?? [, '', '']
  return one.includes(first) && two.includes(second) && !one.includes(second)
}"""
"""Whether the two waiting jobs stand in this order, by a text of each."""


def test_a_job_is_moved_up_cancelled_and_retried(page: Any, dashboard: str) -> None:
    steps.submit_form(page, dashboard, "decode")
    steps.choose(page, "batch", "1", "2", "4")
    page.get_by_text("More fields").click()
    steps.choose(page, "iterations", "100000")
    steps.one_process(page)
    page.get_by_role("button", name="Submit 3 jobs").click()
    page.get_by_role("progressbar").first.wait_for(timeout=steps.RUN_MS)

    page.wait_for_function(ORDER, arg=["batch=2", "batch=4"])
    move_up = page.get_by_role("button", name="Move up")
    steps.press_until(page, move_up, ORDER, ["batch=4", "batch=2"])

    steps.cancel_first(page, left=2)
    page.get_by_role("progressbar").first.wait_for(timeout=steps.RUN_MS)
    steps.cancel_first(page, left=1)
    steps.cancel_first(page, left=0)
    page.get_by_text("Nothing is running or waiting").wait_for()
    page.get_by_role("button", name="Retry").nth(2).wait_for()

    page.get_by_role("button", name="Retry").first.click()
    page.get_by_role("button", name="Cancel").wait_for()
    steps.cancel_first(page, left=0)
    steps.no_fault(page)
