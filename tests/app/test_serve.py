"""The served product below a path, with a port for workers; and a start that fails closed."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from app.stack import Stack, StackOptions, free_port
from core.config import ROOT, DataDir
from core.errors import UserError
from tests.app.test_front import cookie, handshake
from tests.app.test_login import SECRETS

pytestmark = pytest.mark.slow
START_S = 90
SETTINGS = [
    "server.enableStaticServing",
    "server.trustedUserHeaders",
    "client.showErrorDetails",
    "server.scriptHealthCheckEnabled",
    "client.toolbarMode",
    "server.cookieSecret",
]


def command(port: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "app.serve", "--port", str(port), *more]


def environment(data: Path, **more: str) -> dict[str, str]:
    own = {"WARPBOARD_DATA": str(data), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own, **more}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Serve below /warp with a login, and the API for workers; return both ports."""
    folder = tmp_path_factory.mktemp("served")
    secrets = folder / "secrets.toml"
    secrets.write_text(SECRETS.replace("/oauth2callback", "/warp/oauth2callback"))
    pages, workers = free_port(), free_port()
    more = ("--workers-host", "127.0.0.1", "--workers-port", str(workers))
    env = environment(folder / "data", WARPBOARD_SECRETS=str(secrets), WARPBOARD_BASE_PATH="warp")
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command(pages, *more), env=env, stdout=out, stderr=out, cwd=ROOT)
    try:
        _wait(pages, process, log)
        yield pages, workers
    finally:
        process.terminate()
        process.wait(20)
    assert "Traceback" not in log.read_text()


def _wait(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            if get(port, "/_stcore/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail(log.read_text()[-2000:])


def get(port: int, path: str, **headers: str) -> httpx.Response:
    where = f"http://127.0.0.1:{port}{path}"
    return httpx.get(where, headers=headers, trust_env=False, timeout=30)


def test_pages_are_served_below_the_base_path_after_a_login(ports: tuple[int, int]) -> None:
    ada = cookie(is_logged_in=True, email="ada@example.com")

    assert get(ports[0], "/warp/").status_code == 401
    shown = get(ports[0], "/warp/", Cookie=ada)
    assert (shown.status_code, "<script" in shown.text) == (200, True)
    assert get(ports[0], "/", Cookie=ada).status_code == 200


def test_socket_opens_for_the_session_and_for_no_one_else(ports: tuple[int, int]) -> None:
    ada = cookie(is_logged_in=True, email="ada@example.com")
    own = {"Origin": f"http://localhost:{ports[0]}", "Sec-WebSocket-Protocol": "streamlit"}
    path = "/warp/_stcore/stream"

    assert " 101 " in handshake(ports[0], path, Cookie=ada, **own)
    assert " 403 " in handshake(ports[0], path, **own)
    assert " 403 " in handshake(ports[0], path, Cookie=ada, Origin="http://localhost:3000")


def test_a_message_that_no_page_sends_is_not_waited_for(ports: tuple[int, int]) -> None:
    """Its beginning would be kept in memory as long as its sender likes."""
    ada = cookie(is_logged_in=True, email="ada@example.com")
    host = f"localhost:{ports[0]}"
    lines = ["GET /warp/_stcore/stream HTTP/1.1", f"Host: {host}", f"Origin: http://{host}"]
    lines += ["Upgrade: websocket", "Connection: Upgrade", f"Cookie: {ada}"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "", ""]
    with socket.create_connection(("127.0.0.1", ports[0]), timeout=20) as peer:
        peer.sendall("\r\n".join(lines).encode())
        assert b" 101 " in peer.recv(4096)
        peer.sendall(b"\x82\xff" + (8 << 20).to_bytes(8, "big") + bytes(4))
        said = b""
        with suppress(ConnectionResetError):
            while more := peer.recv(4096):
                said += more

    assert (1009).to_bytes(2, "big") in said


def test_login_button_leads_to_streamlits_login(ports: tuple[int, int]) -> None:
    answer = get(ports[0], "/warp/login?provider=default")

    assert answer.status_code == 302
    assert answer.headers["location"].startswith("/warp/auth/login?provider=")


def test_workers_port_serves_the_api_alone(ports: tuple[int, int]) -> None:
    codes = [
        get(ports[1], path).status_code
        for path in (
            "/api/v1/health",
            "/api/v1/runs",
            "/",
            "/warp/",
            "/_stcore/health",
            "/api/docs",
        )
    ]
    assert codes == [200, 401, 404, 404, 404, 404]


def test_a_secrets_file_without_a_login_stops_the_server(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.toml"
    secrets.write_text("[database]\npassword = 'x'\n")
    env = environment(tmp_path / "data", WARPBOARD_SECRETS=str(secrets))

    done = subprocess.run(
        command(free_port()), env=env, capture_output=True, text=True, timeout=START_S
    )

    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "no [auth] section" in line


def test_streamlits_settings_are_those_of_the_checkout_alone(tmp_path: Path) -> None:
    config = tmp_path / ".streamlit" / "config.toml"
    config.parent.mkdir()
    config.write_text('[server]\nenableStaticServing = true\ntrustedUserHeaders = \'{"X": "a"}\'\n')
    hostile = {
        "HOME": str(tmp_path),
        "STREAMLIT_CLIENT_SHOW_ERROR_DETAILS": "full",
        "STREAMLIT_SERVER_SCRIPT_HEALTH_CHECK_ENABLED": "true",
        "STREAMLIT_SERVER_COOKIE_SECRET": "known",
    }
    code = (
        "import json; from app.serve import __main__ as serve; from app.serve.front import Policy;"
        "serve._pages_and_api('127.0.0.1', 8501, Policy()); from streamlit import config;"
        f"print(json.dumps([config.get_option(name) for name in {SETTINGS}]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path / "data", **hostile),
        capture_output=True,
        text=True,
        timeout=START_S,
        cwd=tmp_path,
        check=True,
    )

    *others, secret = json.loads(done.stdout)
    assert others == [False, {}, "none", False, "minimal"]
    assert secret != "known"


def test_up_does_not_start_open_pages_by_accident(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PUBLISH", "SECRETS", "OPEN_TO_NETWORK"):
        monkeypatch.delenv(f"WARPBOARD_{name}", raising=False)
    stack = Stack(data_dir, StackOptions(host="0.0.0.0", port=free_port()), print)

    with pytest.raises(UserError, match="--open-to-network"):
        stack.start()

    assert not data_dir.stack_path.exists()
