"""In a real browser: import before and after, compare kernels, share and export; filter."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


COMPARISON = "compare?a=mine-before&b=mine-after&metric=kernel_time"


@pytest.fixture(scope="module")
def before_and_after(page: Any, dashboard: str) -> None:
    """Import a run before a change, look at it, and import one after the change."""
    steps.take(
        page,
        dashboard,
        "mine-before",
        "nsys/decode_eager.sqlite",
        "ncu/decode_eager.details.csv.gz",
    )
    page.get_by_role("button", name="Open the run").click()
    assert "Launch-bound: the GPU idles 82 % of a step of 2.39 ms" in steps.verdict(page)
    page.get_by_role("tab", name="Counters and roofline").click()
    page.get_by_text("What Nsight Compute says").wait_for()
    page.get_by_text("LaunchConfiguration").first.wait_for()
    steps.take(page, dashboard, "mine-after", "nsys/decode_max_autotune.sqlite")


@pytest.mark.usefixtures("before_and_after")
def test_a_comparison_is_shared_and_exported_in_four_formats(
    stranger: Any, page: Any, dashboard: str
) -> None:
    steps.go(page, dashboard, COMPARISON)
    seen = steps.verdict(page)
    assert "26.0 % lower" in seen and "Not enough repeats" in seen
    page.get_by_role("heading", name="Kernel matching").wait_for()
    page.get_by_text("No repeats from here").wait_for()

    with steps.presses_at_most(page, 1):
        page.get_by_role("button", name="Share").click()
        shown = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode")
        link = shown.inner_text().strip()
    stranger.goto(link)
    assert steps.verdict(stranger) == seen

    page.keyboard.press("Escape")
    with steps.presses_at_most(page, 2):
        page.get_by_role("button", name="Export").click()
        suffix, text = download(page, "Markdown")
    assert suffix == "md" and "| " in text
    suffix, text = download(page, "CSV")
    assert suffix == "csv" and "nvjet" in text
    suffix, text = download(page, "JSON")
    assert suffix == "json" and json.loads(text)["verdict"] == "not_enough_samples"
    suffix, text = download(page, "One-file HTML")
    assert suffix == "html" and "<svg" in text


def download(page: Any, label: str) -> tuple[str, str]:
    """Press one of the export buttons; return the file's ending and text."""
    with page.expect_download() as found:
        page.get_by_role("button", name=label, exact=True).click()
    name = str(found.value.suggested_filename)
    return name.rpartition(".")[2], found.value.path().read_text(encoding="utf-8")


@pytest.mark.usefixtures("before_and_after")
def test_a_check_of_the_command_line_is_decided_as_the_page_says(
    page: Any, dashboard: str, dashboard_data: Path
) -> None:
    check = ["compare", "mine-before", "mine-after", "--metric", "kernel_time", "--fail-above", "5"]
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "app.cli",
            "--data",
            str(dashboard_data),
            *check,
            "--format",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr  # no regression without enough repeats
    with steps.presses_at_most(page, 0):
        steps.go(page, dashboard, COMPARISON)
        seen = steps.verdict(page)
    assert json.loads(answer.stdout)["verdict"] == "not_enough_samples"
    assert "Not enough repeats" in seen


@pytest.mark.usefixtures("before_and_after")
def test_a_filter_is_completed_by_a_press(page: Any, dashboard: str) -> None:
    steps.go(page, dashboard, "runs?q=name:mine")
    page.get_by_text("2 runs.").wait_for()
    page.goto(f"{dashboard}/runs?q=name:mine+compile:")
    page.get_by_text("compile:before", exact=True).click()
    page.get_by_text("1 run.").wait_for()


def test_two_captures_are_dropped_together_and_compared(page: Any, dashboard: str) -> None:
    files = [f"nsys/decode_cuda_graph_{kind}.sqlite" for kind in ("node", "whole")]
    steps.give(page, dashboard, *files)
    with steps.presses_at_most(page, 2):
        page.get_by_text("are each a timeline, under different names").wait_for()
        page.get_by_role("button", name="Import 2 runs").click()
        page.get_by_role("button", name="Compare the two").click()
        steps.verdict(page)

    steps.give(page, dashboard, files[0])
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_text("This file is here already, as ").wait_for()
