"""In a real browser: the example data of an empty dashboard, a published study."""

from typing import Any

import pytest

from tests.browser import steps

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("examples"),
]


def test_example_data_is_one_press_away_and_says_what_limits_a_run(
    page: Any, dashboard: str
) -> None:
    page.goto(f"{dashboard}/run?run_id=decode 2 layers, reduce-overhead")
    seen = steps.verdict(page)
    assert "Launch-bound" in seen and "CUDA graphs were asked for and not used" in seen
    page.get_by_role("tab", name="Timeline").click()
    page.locator("canvas").first.wait_for()
    steps.no_fault(page)


def test_a_timeline_opens_in_the_perfetto_of_this_server(page: Any, dashboard: str) -> None:
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.url))
    page.goto(f"{dashboard}/run?run_id=decode 2 layers, eager&tab=Timeline")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open in Perfetto").click()
    seen = opened.value.get_by_text("decode 2 layers, eager: 380 kernels")
    seen.wait_for()
    assert [url for url in asked if not url.startswith((dashboard, "blob:", "data:"))] == []


def test_a_study_shows_published_figures_beside(page: Any, dashboard: str) -> None:
    page.goto(f"{dashboard}/definitions")
    with steps.presses_at_most(page, 2):
        page.get_by_role("link", name="Studies").first.click()
        page.get_by_role("link", name="Attention: growth with sequence length").first.click()
        page.get_by_role("heading", name="Fitted growth").wait_for()
    page.locator("[data-testid=stPlotlyChart] svg").first.wait_for()
    page.get_by_role("cell", name="published: flash-kernels-playground-scaling").first.wait_for()
    steps.no_fault(page)
