"""In a real browser: pages below a path, behind a login; nothing is asked of the network."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.stack import free_port
from core.config import ROOT
from tests.app.test_front import cookie
from tests.app.test_login import SECRETS
from tests.browser.conftest import wait_for_health

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def called() -> Iterator[tuple[int, list[bytes]]]:
    """Stand in for a proxy to the world; return its port and what was asked of it."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                asked.append(peer.recv(200))

    thread = threading.Thread(target=listen)
    thread.start()
    yield listener.getsockname()[1], asked
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory, called: Any) -> Iterator[str]:
    """Serve below /warp with a login; what calls out would go through `called`."""
    folder = tmp_path_factory.mktemp("front")
    port, log = free_port(), folder / "log"
    secrets = folder / "secrets.toml"
    secrets.write_text(SECRETS.replace("8501/oauth2callback", f"{port}/warp/oauth2callback"))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WARPBOARD_DATA": str(folder / "data")}
    env |= {"WARPBOARD_SECRETS": str(secrets), "WARPBOARD_BASE_PATH": "/warp"}
    proxy = f"http://127.0.0.1:{called[0]}"
    env |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
    env |= {"no_proxy": "", "NO_PROXY": ""}
    command = [sys.executable, "-m", "app.serve", "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
    try:
        wait_for_health(f"http://localhost:{port}", process, log)
        yield f"http://localhost:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_pages_below_a_path_want_a_login_and_say_who_is_there(
    page: Any, origin: str, called: tuple[int, list[bytes]]
) -> None:
    page.goto(f"{origin}/warp/")
    page.get_by_role("link", name="Log in").wait_for()

    value = cookie(origin=origin, is_logged_in=True, email="ada@example.com")
    name, _, signed = value.partition("=")
    page.context.add_cookies([{"name": name, "value": signed, "url": origin}])
    page.goto(f"{origin}/warp/")
    page.get_by_text("Nothing here yet").wait_for()
    page.get_by_text("Logged in as ada").wait_for()
    page.goto(f"{origin}/warp/studies?name=decode")
    page.get_by_text("Logged in as ada").wait_for()
    page.get_by_role("button", name="Log out").wait_for()

    page.get_by_role("link", name="GPUs").first.click()
    page.wait_for_url(f"{origin}/warp/gpus")
    page.get_by_text("Add a GPU host").wait_for()
    assert called[1] == []


def test_a_foreign_origin_makes_the_server_ask_nobody(
    origin: str, called: tuple[int, list[bytes]]
) -> None:
    from tests.app.test_front import handshake

    port = int(origin.rpartition(":")[2])
    for foreign in ("http://evil.example", "http://localhost:3000", "http://10.9.8.7"):
        assert " 403 " in handshake(port, "/warp/_stcore/stream", Origin=foreign)
    assert called[1] == []


def test_share_links_carry_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from app.ui import links

    monkeypatch.setenv("WARPBOARD_BASE_PATH", "/warp")
    assert links.share_url("run", run_id="r1") == "/warp/run?run_id=r1"
