"""In a real browser: no page has a serious fault by axe-core, and none asks for what is not there.

Each page once in the light theme, its colours in the dark one too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.imports import import_paths
from core.config import DataDir
from tests.browser import steps

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("examples"),
]
PAGES = (
    "",
    "submit?workload=attention",
    "queue",
    "runs",
    "compare?a={a}&b={b}&metric=kernel_time",
    "studies",
    "studies?name=attention-scaling&published=true",
    "studies?name=decode-latency&published=true",
    "trends",
    "advice",
    "gpus",
    "import",
    "definitions",
    "run?run_id={a}",
    "run?run_id={a}&tab=Advice",
    "run?run_id={a}&tab=Stacks",
    "run?run_id={a}&tab=Phases",
    "run?run_id={a}&tab=Timeline",
    "run?run_id={a}&tab=Counters+and+roofline",
)
THEMES: dict[str, dict[str, Any]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""The themes and which rules to look at: a page in the dark differs in its colours alone."""
SERIOUS = """async rules => {
  const found = await axe.run(document, {resultTypes: ['violations'], ...rules})
  return found.violations
    .filter(fault => ['serious', 'critical'].includes(fault.impact))
    .flatMap(fault => fault.nodes.map(node => `${fault.id}: ${node.html.slice(0, 160)}`))
}"""


@pytest.fixture(scope="module")
def two_runs(examples: None, dashboard_data: Path) -> dict[str, str]:
    """Run ids of two runs with a timeline, the first with counters too.

    By id: another test that imports the same files gives these runs names of its own.
    """
    data = DataDir(root=dashboard_data)
    files = {
        "a": ("nsys/decode_eager.sqlite", "ncu/decode_eager.raw.csv"),
        "b": ("nsys/decode_reduce_overhead.sqlite",),
    }
    return {
        side: import_paths(data, [steps.H100 / n for n in names]).run_id
        for side, names in files.items()
    }


@pytest.fixture
def missing(page: Any) -> Iterator[list[str]]:
    """Collect what the page asked for in vain while a test runs."""
    found: list[str] = []

    def look(response: Any) -> None:
        if response.status >= 400:
            found.append(f"{response.status} {response.url}")

    page.on("response", look)
    yield found
    page.remove_listener("response", look)


def test_no_page_has_a_serious_fault_or_asks_for_what_is_missing(
    page: Any, dashboard: str, missing: list[str], two_runs: dict[str, str]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.base").AXE_SCRIPT
    faults: dict[str, list[str]] = {}
    themes = list(THEMES)
    for path in (page_path.format_map(two_runs) for page_path in PAGES):
        page.goto(f"{dashboard}/{path}")
        page.get_by_role("heading").first.wait_for()
        steps.calm(page)
        page.evaluate(axe)
        for theme in themes:
            page.emulate_media(color_scheme=theme)
            steps.calm(page)
            if hits := page.evaluate(SERIOUS, THEMES[theme]):
                faults[f"{path} {theme}"] = hits
        themes.reverse()  # the next page opens in the theme of this one: one change fewer
    assert faults == {}
    assert missing == []
