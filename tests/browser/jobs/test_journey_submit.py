"""In a real browser, on the CPU: submit, watch, compare; a sweep whose cells run out."""

import re
from pathlib import Path
from typing import Any

import pytest

from core.config import DataDir
from tests.app.conftest import Cli
from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]


def test_submit_watch_open_and_compare(
    page: Any,
    dashboard: str,
    dashboard_data: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps.submit_form(page, dashboard, "decode")
    with steps.presses_at_most(page, 4):
        steps.choose(page, "compile", "none", "default")
        steps.one_process(page)
        page.get_by_role("button", name="Submit 2 jobs").click()
    page.get_by_role("progressbar").first.wait_for(timeout=steps.RUN_MS)
    steps.wait_until_done(page)

    page.get_by_role("link", name=re.compile("compile=none")).first.click()
    assert "CPU run" in steps.verdict(page)
    for text in ("95 %: ", "GEMM fraction", "Longest operators"):
        page.get_by_text(text).first.wait_for()
    run_id = re.findall(r"run_id=(\w+)", page.url)[0]
    shown = Cli(DataDir(root=dashboard_data), capsys).json("show", run_id)
    assert "BENCHMARK/iteration_0/forward" in {p["path"] for p in shown["phases"]}

    with steps.presses_at_most(page, 2):
        page.get_by_role("button", name="Compare with").click()
        page.get_by_role("button", name="Compare", exact=True).click()
        page.wait_for_url(re.compile(r"/compare\?.*a=.*b="))
        seen = steps.verdict(page)
    assert "A:" in seen and "B:" in seen


def test_a_typed_number_is_that_number_and_comes_back(page: Any, dashboard: str) -> None:
    steps.submit_form(page, dashboard, "attention")
    for typed in ("64", "12"):  # both begin the name of a larger number that is offered
        box = page.get_by_role("combobox", name=re.compile(r"seq_len\b"))
        box.press_sequentially(typed)
        page.get_by_role("option", name=f"Add: {typed}").wait_for()
        page.keyboard.press("Enter")
        page.locator(f"[aria-label='Remove {typed}']").wait_for()
        steps.calm(page)
    page.keyboard.press("Escape")
    page.get_by_text("--set seq_len=64,12 ").wait_for()

    page.get_by_role("link", name="GPUs").first.click()
    page.get_by_text("Add a GPU host").wait_for()
    page.get_by_role("link", name="Submit").first.click()
    page.get_by_text("--set seq_len=64,12 ").wait_for()


def test_a_sweep_beyond_the_memory_has_cells_that_ran_out(page: Any, dashboard: str) -> None:
    steps.submit_form(page, dashboard, "attention")
    with steps.presses_at_most(page, 8):
        steps.choose(page, "seq_len", "64", "128", "32768")
        page.get_by_text("More fields").click()
        steps.choose(page, "memory_cap_gib", "8")
        steps.no_trace(page)
        steps.one_process(page)
        page.get_by_text("1 likely out of memory").wait_for()
        page.get_by_role("button", name="Submit 3 jobs").click()
    steps.wait_until_done(page)

    steps.go(page, dashboard, "studies?name=attention-scaling")
    page.get_by_role("heading", name="Latency", exact=True).wait_for()
    page.get_by_role("heading", name="Fitted growth").wait_for()
    page.get_by_text("exponent of latency in sequence length").first.wait_for()
    steps.no_fault(page)
    with steps.presses_at_most(page, 2):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as found:
            page.get_by_role("button", name="Markdown").click()
    table = found.value.path().read_text(encoding="utf-8")
    assert "OOM" in table and "32768" in table
