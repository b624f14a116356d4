"""Steps that several journeys take."""

import re
from typing import Any

RUN_MS = 420_000


def choose(page: Any, field: str, *values: str) -> None:
    """Pick values in one of the sweep's multi-selects; numbers may be new ones."""
    box = page.get_by_role("combobox", name=re.compile(rf"{field}\b"))
    for value in values:
        box.click()
        box.fill(value)
        page.get_by_role("option", name=re.compile(rf"^(Add: )?{value}$")).first.click()
        page.locator(f"[aria-label='Remove {value}']").first.wait_for(state="attached")
    page.keyboard.press("Escape")


def one_process(page: Any) -> None:
    """Ask for one process of the clean pass: a journey wants the way, not the statistics."""
    box = page.get_by_role("spinbutton", name="Processes")
    box.fill("1")
    box.press("Enter")
    page.get_by_text("--repeats 1").wait_for()


def wait_until_done(page: Any) -> None:
    """Wait on the Queue page until nothing runs."""
    page.get_by_text("Nothing is running or waiting").wait_for(timeout=RUN_MS)


def verdict(page: Any) -> str:
    """Return the text of the answer on a run's or a comparison's page."""
    block = page.locator(".wb-verdict")
    block.wait_for()
    return str(block.inner_text())


def no_fault(page: Any) -> None:
    """Fail when a page says that it broke."""
    assert page.get_by_text("This page failed").count() == 0
