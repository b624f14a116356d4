"""The operator's Perfetto UI is served from its folder alone, and only where one is named."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from app import perfetto


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    ui = tmp_path / "ui"
    (ui / "v1").mkdir(parents=True)
    (ui / "index.html").write_text("<title>UI</title>")
    (ui / "v1" / "engine.js").write_text("run()")
    (tmp_path / "secret.txt").write_text("secret")
    (ui / "out.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setenv(perfetto.VARIABLE, str(ui))
    return TestClient(Starlette(routes=perfetto.routes()))


def test_the_folder_is_served_and_may_reach_this_server_alone(client: TestClient) -> None:
    assert client.get("/perfetto/").text == client.get("/perfetto/index.html").text
    found = client.get("/perfetto/v1/engine.js")
    assert found.text == "run()" and perfetto.why_not() == ""
    assert "connect-src 'self' blob: data:;" in found.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "v1/..%2f..%2fsecret.txt",
        "%2fetc%2fpasswd",
        "out.txt",
    ],
)
def test_nothing_outside_the_folder_is_served(client: TestClient, path: str) -> None:
    assert client.get(f"/perfetto/{path}").status_code == 404


def test_a_folder_that_holds_no_ui_is_named_and_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(perfetto.VARIABLE, str(tmp_path))
    assert perfetto.routes() == [] and str(tmp_path) in perfetto.why_not()
    monkeypatch.delenv(perfetto.VARIABLE)
    assert perfetto.routes() == [] and "docs/perfetto.md" in perfetto.why_not()
