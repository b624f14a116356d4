"""In a real browser, without a mouse: main actions are reached, every chart has a name."""

from typing import Any

import pytest

from tests.browser import steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
MOST_TABS = 70
MAIN_ACTIONS = {
    "": "Load the example data",
    "submit?workload=decode": " job",
    "run?run_id=keys&tab=Timeline": "Zoom in",
    "runs": "Filter",
}
FOCUSED = """() => {
  let found = document.activeElement
  while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement
  const is_control = ['A', 'BUTTON', 'INPUT', 'TEXTAREA', 'CANVAS'].includes(found?.tagName)
  return is_control ? `${found.ariaLabel ?? ''} ${found.innerText ?? ''}` : ''
}"""
NAMELESS = """() => [...document.querySelectorAll(
    '[data-testid=stPlotlyChart], [data-testid=stDataFrame], img, [role=img]')]
  .filter((e) => !e.closest('[aria-hidden=true]'))
  .filter((e) => ![e, ...e.querySelectorAll('[aria-label], [alt]')]
    .some((n) => n.ariaLabel || n.getAttribute('alt')))
  .map((e) => e.outerHTML.slice(0, 200))"""


def is_reached(page: Any, name: str) -> bool:
    """Press Tab until a control of that name has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if name in page.evaluate(FOCUSED):
            return True
    return False


def test_main_actions_are_reached_by_tab_and_charts_have_names(page: Any, dashboard: str) -> None:
    for path, action in MAIN_ACTIONS.items():
        if "keys" in path:
            steps.take(page, dashboard, "keys", "nsys/decode_eager.sqlite")
        page.goto(f"{dashboard}/{path}")
        page.get_by_role("heading").first.wait_for()
        steps.calm(page)
        assert page.evaluate(NAMELESS) == []
        if path or page.get_by_role("button", name=action).count():
            assert is_reached(page, action), path
