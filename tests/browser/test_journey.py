"""In a real browser: submit two compile modes on the CPU, watch them, compare, share the link."""

import re
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SOON_MS, RUN_MS = 60_000, 420_000


def choose(page: Any, field: str, *values: str) -> None:
    """Pick values in one of the sweep's multi-selects."""
    box = page.get_by_role("combobox", name=re.compile(rf"{field}\b"))
    for value in values:
        box.click(timeout=SOON_MS)
        box.fill(value)
        page.get_by_role("option", name=value, exact=True).click(timeout=SOON_MS)
        page.locator(f"[aria-label='Remove {value}']").first.wait_for(
            state="attached", timeout=SOON_MS
        )
    page.keyboard.press("Escape")


def verdict(page: Any) -> str:
    """Return the text of the answer on a run's or a comparison's page."""
    block = page.locator(".wb-verdict")
    block.wait_for(timeout=SOON_MS)
    return str(block.inner_text())


@pytest.mark.timeout(900)
def test_submit_watch_open_compare_and_share(browser: Any, dashboard: str) -> None:
    page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    page.goto(f"{dashboard}/submit?workload=decode")
    choose(page, "compile", "none", "default")
    page.get_by_role("button", name="Submit 2 jobs").click(timeout=SOON_MS)

    page.get_by_role("progressbar").first.wait_for(timeout=RUN_MS)
    page.get_by_text("Nothing is running or waiting").wait_for(timeout=RUN_MS)
    done = page.get_by_role("link", name=re.compile("compile=none"))
    done.wait_for(timeout=SOON_MS)

    done.click()
    assert "CPU run" in verdict(page)
    page.get_by_test_id("stMetricValue").first.wait_for(timeout=SOON_MS)

    page.get_by_role("button", name="Compare with").click()
    page.get_by_role("button", name="Compare", exact=True).click(timeout=SOON_MS)
    page.wait_for_url(re.compile(r"/compare\?.*a=.*b="), timeout=SOON_MS)
    seen = verdict(page)
    assert "A:" in seen and "B:" in seen

    fresh = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
    fresh.goto(page.url)
    assert verdict(fresh) == seen
