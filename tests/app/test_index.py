"""The HTML of each page: it names the server, so that a browser asks for nothing that is not there.

That a browser then meets no 404 is seen in tests/browser.
"""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app.serve import index


@pytest.mark.parametrize("base", ["", "/warp"])
def test_each_page_names_its_server_before_any_script_runs(base: str) -> None:
    client = TestClient(Starlette(routes=index.routes(base)))
    html = client.get(f"{base}/submit").text
    assert "<title>Warpboard</title>" in html
    assert 0 < html.index("window.__streamlit") < html.index("<script type=")
    assert html.index("window.__streamlit") < html.index("prerenderReady = false")
    assert client.get(f"{base}/no-such-page").status_code == 404


def test_the_pages_of_the_navigation_are_the_addresses_that_are_served() -> None:
    assert set(index.page_names()) >= {"submit", "import", "gpus", "studies", "run", "definitions"}
