"""Steps that several journeys take."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from db.queue import request_cancel
from db.runs import list_runs
from tests.processes import until

H100 = Path(__file__).parents[1] / "data/h100"
RUN_MS = 420_000
AGAIN_MS = 10_000
PRESS_MS = 30_000


@contextmanager
def presses_at_most(page: Any, budget: int) -> Iterator[None]:
    """Fail when what is done inside takes more presses of the mouse than that."""
    before = _num_presses(page)
    yield
    needed = _num_presses(page) - before
    print(f"{needed} presses of {budget}", file=sys.stderr)  # stdout is the command line's
    assert needed <= budget


def _num_presses(page: Any) -> int:
    return int(page.evaluate("Number(sessionStorage.presses ?? 0)"))


def submit_form(page: Any, dashboard: str, workload: str) -> None:
    """Open the Submit page of a workload with its defaults, whatever was submitted before."""
    page.goto(f"{dashboard}/submit?workload={workload}")
    page.get_by_role("button", name=re.compile("Submit .* job")).wait_for()
    calm(page)
    afresh = page.get_by_role("button", name="Start afresh")
    if afresh.count():
        afresh.click()
        afresh.wait_for(state="detached")


def choose(page: Any, field: str, *values: str) -> None:
    """Pick values in one of the sweep's multi-selects; a number is typed, and is that number."""
    from playwright.sync_api import TimeoutError

    box = page.get_by_role("combobox", name=re.compile(rf"{field}\b"))
    for value in values:
        chosen = page.locator(f"[aria-label='Remove {value}']").first
        option = page.get_by_role("option", name=re.compile(rf"^(Add: )?{value}$")).first
        while not chosen.count():
            calm(page)  # a page that is drawn anew under the hand drops what was typed
            box.click()
            box.fill(value)
            try:
                option.wait_for(timeout=AGAIN_MS)
                page.keyboard.press("Enter")
                chosen.wait_for(state="attached", timeout=AGAIN_MS)
            except TimeoutError:
                page.keyboard.press("Escape")
    page.keyboard.press("Escape")


def calm(page: Any) -> None:
    """Wait until the page's script has ended and no part of it is stale."""
    page.wait_for_function(
        """() => document.querySelector('[data-testid=stApp]')
            ?.getAttribute('data-test-script-state') === 'notRunning'
            && !document.querySelector('[data-testid=stSkeleton], [data-stale=true]')"""
    )


def no_trace(page: Any) -> None:
    """Ask for the clean pass alone."""
    page.get_by_test_id("stButtonGroup").get_by_text("trace", exact=True).click()


def one_process(page: Any) -> None:
    """Ask for one process of the clean pass: a journey wants the way, not the statistics."""
    calm(page)  # a page that is drawn anew under the hand drops what was typed
    box = page.get_by_role("spinbutton", name="Processes")
    box.fill("1")
    box.press("Enter")
    page.get_by_text("--repeats 1").wait_for()


def go(page: Any, dashboard: str, path: str) -> None:
    """Go on to another page of the app as the browser's own history does, without loading it anew.

    Only where what is waited for next is nowhere on the page that is left.
    """
    if not page.url.startswith(dashboard):
        page.goto(f"{dashboard}/{path}")
        return
    calm(page)
    page.evaluate(
        """path => {
            history.pushState({}, '', '/' + path)
            dispatchEvent(new PopStateEvent('popstate'))
        }""",
        path,
    )


def give(page: Any, dashboard: str, *files: str) -> None:
    """Give files to the Import page once it stands: a page that is drawn anew drops them."""
    page.goto(f"{dashboard}/import")
    calm(page)
    page.locator("input[type=file]").first.set_input_files([str(H100 / f) for f in files])


def take(page: Any, dashboard: str, name: str, *files: str) -> None:
    """Import files as one run of that name."""
    give(page, dashboard, *files)
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("What it measured").fill(f"compile={name.split('-')[-1]}")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_role("button", name="Open the run").wait_for()


def wait_until_done(page: Any) -> None:
    """Wait on the Queue page until nothing runs, and until its list of ended runs stands still."""
    page.get_by_text("Nothing is running or waiting").wait_for(timeout=RUN_MS)
    calm(page)


def press_until(page: Any, button: Any, is_done: str, argument: Any) -> None:
    """Press until the page's own test holds: a press between two drawings of a page may be lost."""
    from playwright.sync_api import TimeoutError

    for attempt in range(5):
        calm(page)
        button.click()
        try:
            page.wait_for_function(is_done, arg=argument, timeout=PRESS_MS)
            return
        except TimeoutError:
            if attempt == 4:
                raise


def cancel_first(page: Any, *, left: int) -> None:
    """Cancel the first job of the Queue and wait until the page shows that many others."""
    press_until(
        page,
        page.get_by_role("button", name="Cancel").first,
        """left => [...document.querySelectorAll('button')]
            .filter(b => b.innerText.includes('Cancel')).length <= left""",
        left,
    )


def cancel_all(db: Database) -> None:
    """Cancel what waits and runs, and wait for its end."""
    for run_id in _at_work(db):
        request_cancel(db, run_id)
    wait_for_jobs(db)


def wait_for_jobs(db: Database) -> None:
    """Wait until no job waits or runs, without looking at a page."""
    until(lambda: not _at_work(db), RUN_MS / 1000, lambda: f"{_at_work(db)} are at work")


def _at_work(db: Database) -> list[str]:
    return list(list_runs(db, "status:queued,claimed,running,ingesting", limit=100)["id"])


def verdict(page: Any) -> str:
    """Return the text of the answer on a run's or a comparison's page."""
    block = page.locator(".wb-verdict")
    block.wait_for()
    return str(block.inner_text())


def no_fault(page: Any) -> None:
    """Fail when a page says that it broke."""
    assert page.get_by_text("This page failed").count() == 0


def try_it(page: Any, name: str) -> None:
    """Queue one experiment from the Advice tab."""
    key = re.sub(r"[^\w-]", "-", f"try_{name}")
    button = page.locator(f".st-key-{key} button")
    press_until(
        page,
        button.first,
        "key => document.querySelectorAll(`.st-key-${key} button`).length === 0",
        key,
    )
