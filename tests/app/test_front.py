"""What reaches pages and API: by host, origin, session and size, on a real server."""

import asyncio
import ipaddress
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from streamlit.runtime import Runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec
from streamlit.web.server.starlette.starlette_app_utils import create_signed_value

from app.serve import connections, front
from app.serve.addresses import Neighbours, client_of
from app.serve.connections import Connections, GuardedProtocol
from app.serve.front import Front, Policy
from app.serve.login import Access, Login

SECRET = "0123456789abcdef0123456789abcdef"
LONG_BYTES = 24 << 20
"""More than a connection's buffers hold."""
ADA = Access(users=frozenset({"ada@example.com"}))
LOGIN = Login(providers=("default",), cookie_secret=SECRET, access=ADA)


async def echo(request: Request) -> Response:
    """Say what arrived behind the front; a long answer where that is asked for."""
    if request.url.path == "/long":
        return Response(bytes(LONG_BYTES))
    if request.url.path == "/files":
        return StreamingResponse(bytes(64 << 10) for _ in range(LONG_BYTES >> 16))
    body = await request.body() if request.method == "PUT" else b""
    headers = {k: request.headers.get(k) for k in ("host", "origin")}
    return JSONResponse({"path": request.url.path, "bytes": len(body), **headers})


async def stream(websocket: WebSocket) -> None:
    await websocket.accept(headers=[(b"x-host", websocket.headers["host"].encode())])
    await websocket.receive_text()


@contextmanager
def served(policy: Policy) -> Iterator[int]:
    """Serve `echo` behind the front, on a real port."""
    methods = ["GET", "HEAD", "PUT", "POST", "DELETE"]
    routes = [Route("/{path:path}", echo, methods=methods)]
    app = Starlette(routes=[*routes, WebSocketRoute("/{path:path}", stream)])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            Front(app, policy), http=GuardedProtocol, ws="websockets-sansio", log_level="critical"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()


def ask(port: int, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    where = f"http://127.0.0.1:{port}{path}"
    return httpx.request(method, where, headers=headers, trust_env=False, timeout=20)


def handshake(port: int, path: str = "/_stcore/stream", **headers: str) -> str:
    """Return the status line of a WebSocket handshake."""
    headers = {"Host": f"localhost:{port}"} | headers
    lines = [f"GET {path} HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
        peer.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return peer.recv(4096).decode(errors="replace")


def cookie(**claims: Any) -> str:
    value = json.dumps({"origin": "http://localhost:8501", **claims})
    return "_streamlit_user=" + create_signed_value(SECRET, "_streamlit_user", value).decode()


@pytest.fixture(autouse=True)
def own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the connections of each test alone: servers of the module outlive it."""
    monkeypatch.setattr(connections, "OPEN", Connections())


@pytest.fixture(scope="module")
def opened() -> Iterator[int]:
    with served(Policy()) as port:
        yield port


@pytest.fixture(scope="module")
def guarded() -> Iterator[int]:
    with served(Policy(login=LOGIN)) as port:
        yield port


@pytest.mark.parametrize("path", ["/", "/static/js/x.js", "/media/x.png", "/_stcore/host-config"])
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.5", "a@localhost"]
)
def test_foreign_names_are_not_served(opened: int, path: str, host: str) -> None:
    assert ask(opened, path, Host=host).status_code == 421
    assert ask(opened, path, Host=f"localhost:{opened}").status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "LOCALHOST:{port}",
        "localhost.:{port}",
        "[::1]:{port}",
        "127.0.0.1:{port}",
    ],
)
def test_own_names_are_served_however_they_are_written(opened: int, host: str) -> None:
    name = host.format(port=opened)
    assert ask(opened, "/", Host=name).status_code == 200
    assert " 101 " in handshake(opened, Host=name, Origin=f"http://{name}")


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":8501",
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost/evil",
        "localhost?.evil.example",
        "localhost#.evil.example",
        "localhost:port",
        "[::1",
        "[::1].evil.example",
        "[::ffff:10.0.0.5]",
        "127.0.0.1.evil.example",
        "2130706433",
        "0",
        "0.0.0.0",
        "localhost, evil.example",
    ],
)
def test_names_that_only_look_like_our_own_are_not_served(opened: int, host: str) -> None:
    forwarded = {"X-Forwarded-Host": "localhost", "Forwarded": "host=localhost"}
    assert ask(opened, "/", Host=host, **forwarded).status_code in (400, 421)


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/../runs",
        "/api/v1/..",
        "/api/v1/%2e%2e/static/x.js",
        "/api/v1/..%2f..%2fmedia%2fx.png",
        "/_stcore/health/../stream",
        "/auth/login/../../media/x.png",
        "//evil.example/",
        "/static//x.js",
        "/static/./x.js",
        "/static/..\\x.js",
        "/static/%5c%2e%2e%5cx.js",
        "/media/x%00.png",
        "/media/x%0d%0aSet-Cookie:a",
        "http://evil.example/",
        "http://localhost/api/v1/health",
        "*",
    ],
)
def test_no_path_is_read_in_two_ways(opened: int, guarded: int, target: str) -> None:
    """By one rule to see whether a session is wanted, by another to find what is served."""
    for port in (opened, guarded):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            peer.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b" 400 " in peer.recv(99)


@pytest.mark.parametrize("second", ["Origin: http://localhost:1", "Origin: null", "Host: evil"])
def test_a_header_that_decides_comes_once(opened: int, second: str) -> None:
    own = f"Host: localhost:{opened}\r\nOrigin: http://localhost:{opened}"
    with socket.create_connection(("127.0.0.1", opened), timeout=20) as peer:
        peer.sendall(f"GET / HTTP/1.1\r\n{own}\r\n{second}\r\n\r\n".encode())
        assert b" 400 " in peer.recv(99)


@pytest.mark.parametrize("first", [True, False], ids=["length first", "chunked first"])
def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_read(
    opened: int, first: bool
) -> None:
    lengths = ["Content-Length: 4", "Transfer-Encoding: chunked"]
    head = "\r\n".join([f"Host: localhost:{opened}", *(lengths if first else lengths[::-1])])
    smuggled = f"GET /smuggled HTTP/1.1\r\nHost: localhost:{opened}\r\n\r\n"
    for path in ("/_stcore/upload_file/a/b", "/api/v1/workers"):
        with socket.create_connection(("127.0.0.1", opened), timeout=20) as peer:
            peer.sendall(f"PUT {path} HTTP/1.1\r\n{head}\r\n\r\n0\r\n\r\n{smuggled}".encode())
            answer = b"".join(iter(lambda: peer.recv(4096), b""))
        assert answer.count(b"HTTP/1.1") == 1 and b" 400 " in answer[:20]


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_addresses_of_one_host_are_one_client(address: str, client: str) -> None:
    assert client_of(address) == client


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://user@localhost:{port}",
        "http://localhost:{port}@evil.example",
        "http://localhost.:{port}",
        "ws://localhost:{port}",
        "chrome-extension://localhost:{port}",
        "http://[::1]:{port}",
        "http://localhost:{port} http://evil.example",
        "",
        "http://localhost:3000",
        "http://localhost",
        "null",
        "https://[",
        "http://localhost:{port}.evil.example",
        "file://",
    ],
)
def test_foreign_origins_reach_neither_socket_nor_upload_nor_file(opened: int, origin: str) -> None:
    headers = {"Host": f"localhost:{opened}", "Origin": origin.format(port=opened)}

    assert " 403 " in handshake(opened, **headers)
    assert ask(opened, "/_stcore/upload_file/s/f", "PUT", **headers).status_code == 403
    assert ask(opened, "/static/x.js", **headers).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT"])
def test_foreign_origins_do_not_reach_the_api(
    opened: int, guarded: int, origin: str, method: str
) -> None:
    """Their wrong tokens would count against the workers of the same address."""
    for port in (opened, guarded):
        found = ask(port, "/api/v1/workers", method, Host=f"localhost:{port}", Origin=origin)
        assert found.status_code == 403


def test_own_origin_is_served_and_http_behind_it_sees_none(opened: int) -> None:
    """Streamlit would ask a public service for this host's address to judge an origin."""
    own = {"Host": f"localhost:{opened}", "Origin": f"http://localhost:{opened}"}

    assert " 101 " in handshake(opened, **own)
    assert ask(opened, "/", **own).json()["origin"] is None


def test_a_named_proxy_is_an_origin_and_the_host_behind_it_agrees() -> None:
    policy = Policy(hosts=("gpu.example.com", "127.0.0.1"), named=("gpu.example.com",))
    with served(policy) as port:
        through = handshake(port, Host=f"127.0.0.1:{port}", Origin="https://gpu.example.com")
        other = handshake(port, Host="gpu.example.com", Origin="https://gpu.example.com:8443")

    assert " 101 " in through
    assert "x-host: gpu.example.com\r\n" in through
    assert " 403 " in other


def test_any_address_is_no_foreign_name() -> None:
    with served(Policy(is_any_address=True)) as port:
        codes = [ask(port, "/", Host=host).status_code for host in ("10.0.0.5:80", "evil.example")]

    assert codes == [200, 421]


def test_pages_take_nothing_but_reads_and_uploads(opened: int) -> None:
    codes = {m: ask(opened, "/runs", m).status_code for m in ("POST", "PUT", "DELETE", "PATCH")}
    assert codes == dict.fromkeys(codes, 405)
    assert ask(opened, "/_stcore/agent/interact", "GET").status_code == 404
    assert " 403 " in handshake(opened, "/_stcore/other")


def test_every_answer_has_the_security_headers(opened: int, guarded: int) -> None:
    for port, host in ((opened, "localhost"), (opened, "evil.example"), (guarded, "localhost")):
        found = ask(port, "/", Host=f"{host}:{port}").headers
        assert found["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in found["content-security-policy"]
        assert found["referrer-policy"] == "same-origin"


def test_api_is_guarded_by_its_tokens_alone(opened: int, guarded: int) -> None:
    for port in (opened, guarded):
        assert ask(port, "/api/v1/workers", "POST", Host="dashboard:8501").status_code == 200
        assert ask(port, "/api/v1/health", Host="dashboard:8501").status_code == 200


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [
        ("/", "GET", 401),
        ("/runs", "GET", 401),
        ("/media/x.png", "GET", 401),
        ("/static/x.js", "GET", 401),
        ("/_stcore/upload_file/s/f", "PUT", 401),
        ("/_stcore/upload_file/s/f", "DELETE", 401),
        ("/api/docs", "GET", 401),
        ("/_stcore/health", "GET", 200),
        ("/auth/logout", "GET", 200),
    ],
)
def test_without_a_session_only_the_login_is_served(
    guarded: int, path: str, method: str, code: int
) -> None:
    assert ask(guarded, path, method).status_code == code


def test_socket_wants_a_session_of_someone_who_may_enter(guarded: int) -> None:
    ada = cookie(is_logged_in=True, email="ada@example.com")
    eve = cookie(is_logged_in=True, email="eve@evil.example")
    forged = ada.replace("_streamlit_user=", "_streamlit_user=x")

    answers = [handshake(guarded, Cookie=c) for c in (ada, eve, forged, "", "a=b; =;", '\\"=;')]

    assert [" 101 " in a for a in answers] == [True, False, False, False, False, False]
    page = ask(guarded, "/", Cookie=eve)
    assert (page.status_code, "eve@evil.example may not" in page.text) == (403, True)
    assert "/auth/logout" in page.text
    assert ask(guarded, "/runs", Cookie=ada).json()["path"] == "/runs"


def test_login_page_leads_to_the_provider_below_the_base_path() -> None:
    with served(Policy(login=LOGIN, base_path="/warp")) as port:
        page = ask(port, "/warp/runs")

    assert page.status_code == 401
    assert 'href="/warp/login?provider=default"' in page.text


@pytest.mark.parametrize(
    ("asked", "inner"),
    [
        ("/warp/runs", "/warp/runs"),
        ("/runs", "/warp/runs"),
        ("/warp", "/warp/"),
        ("/warp/_stcore/health", "/warp/_stcore/health"),
        ("/_stcore/health", "/warp/_stcore/health"),
        ("/warp/api/v1/health", "/api/v1/health"),
        ("/api/v1/health", "/api/v1/health"),
        ("/warp/perfetto/index.html", "/perfetto/index.html"),
        ("/warped", "/warp/warped"),
    ],
)
def test_base_path_is_the_same_whether_the_proxy_takes_it_off(asked: str, inner: str) -> None:
    scope = {"type": "http", "path": asked, "headers": [], "method": "GET"}
    guard = Front(Starlette(), Policy(base_path="/warp"))

    assert guard._inner_scope(scope, guard._inner_path(asked))["path"] == inner


def test_the_base_path_without_its_slash_leads_to_the_one_with_it() -> None:
    """A browser tells files from the folder of the page: without the slash that is another's."""
    with served(Policy(base_path="/gpu/warp")) as port:
        asked = ask(port, "/gpu/warp?run=r%0d%0aX:y&a=//evil.example")
        assert ask(port, "/gpu/warp/").json()["path"] == "/gpu/warp/"
        assert ask(port, "/", method="HEAD").status_code == 200

    assert asked.status_code == 307
    assert asked.headers["location"] == "/gpu/warp/?run=r%0d%0aX:y&a=//evil.example"


def test_workers_port_serves_the_api_alone() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(served(Policy()))
        pages_only = ask(port, "/").status_code
    guard = Front(Starlette(), Policy(workers_port=7))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": [(b"host", b"localhost")], "method": "GET"}
    asyncio.run(guard({**scope, "server": ("127.0.0.1", 7)}, send, send))  # type: ignore[arg-type]

    assert pages_only == 200
    assert sent[0]["status"] == 404


@pytest.mark.parametrize(
    ("path", "status"), [("/", 403), ("/_stcore/health", 200), ("/api/v1/health", 200)]
)
def test_a_neighbour_gets_the_api_and_no_page(path: str, status: int) -> None:
    near = Neighbours(networks=(ipaddress.IPv4Network("127.0.0.0/8"),))
    with served(Policy(neighbours=near)) as port:
        assert ask(port, path, Host="localhost").status_code == status
    with served(Policy(neighbours=replace(near, not_them=frozenset({"127.0.0.1"})))) as port:
        assert ask(port, path, Host="localhost").status_code == 200


def test_uploads_are_limited_in_size_and_number() -> None:
    sizes = (200_000, 300_000, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000)
    with served(Policy(max_upload_bytes=200_000)) as port:
        where = f"http://localhost:{port}/_stcore/upload_file/s/f"
        sent = [httpx.put(where, content=b"x" * n, trust_env=False) for n in sizes]
    assert [answer.status_code for answer in sent] == [200, 413, 200, 200, 200, 200, 200, 429]


def test_what_all_pages_hold_of_uploads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly they come: pages keep them in memory until they are closed."""
    monkeypatch.setattr(front, "held_bytes", lambda: front.MAX_HELD * 200_000 + 600_000)
    with served(Policy(max_upload_bytes=200_000)) as port:
        where = f"http://localhost:{port}/_stcore/upload_file/s/f"
        sent = [httpx.put(where, content=b"x" * n, trust_env=False) for n in (9, 100_000)]
    assert [answer.status_code for answer in sent] == [200, 503]


def test_the_uploads_that_pages_hold_are_counted_where_streamlit_keeps_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = MemoryUploadedFileManager("/upload")
    for name, size in (("a", 5), ("b", 7)):
        manager.add_file(name, UploadedFileRec(name, f"{name}.csv", "text/csv", bytes(size)))
    runtime = SimpleNamespace(uploaded_file_mgr=manager)
    monkeypatch.setattr(Runtime, "exists", lambda: True)
    monkeypatch.setattr(Runtime, "instance", lambda: runtime)

    assert front.held_bytes() == 12


def test_files_that_are_dropped_together_wait_for_their_turn() -> None:
    head = "PUT /_stcore/upload_file/s/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n1"
    with served(Policy()) as port, ExitStack() as stack:
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(6)
        ]
        for peer in peers:
            peer.sendall(head.encode())
        time.sleep(0.3)  # all six have begun before the first one ends
        for peer in peers:
            peer.sendall(b"23")
        answers = [peer.recv(99).partition(b"\r\n")[0] for peer in peers]
    assert answers == [b"HTTP/1.1 200 OK"] * 6


def test_an_upload_whose_turn_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "TURN_S", 0.2)
    head = "PUT /_stcore/upload_file/s/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12"
    with served(Policy()) as port, ExitStack() as stack:
        for _ in range(front.MAX_UPLOADS_OF_CLIENT):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            peer.sendall(head.encode())
        where = f"http://localhost:{port}/_stcore/upload_file/s/g"
        until_s = time.monotonic() + 20  # for a busy machine to take the first ones up
        while httpx.put(where, content=b"x", trust_env=False).status_code != 429:
            assert time.monotonic() < until_s


def test_uploads_that_go_on_are_limited_over_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "MAX_UPLOADS", 1)
    head = "PUT /_stcore/upload_file/s/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12"
    with served(Policy()) as port, socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(head.encode())
        where = f"http://localhost:{port}/_stcore/upload_file/s/g"
        until_s = time.monotonic() + 20  # for a busy machine to take the first one up
        while httpx.put(where, content=b"x", trust_env=False).status_code != 503:
            assert time.monotonic() < until_s
            time.sleep(0.3)


def test_uploads_of_the_past_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Front(Starlette(), Policy())
    for number in range(100):
        guard._uploaded[f"2001:db8:{number:x}::/64"].append((time.monotonic(), 1))
    monkeypatch.setattr(front, "UPLOAD_WINDOW_S", -1.0)

    guard._forget_old_uploads()

    assert not guard._uploaded


def test_body_that_stops_coming_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "BODY_IDLE_S", 0.3)
    head = "PUT /_stcore/upload_file/s/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12"
    with served(Policy()) as port, socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(head.encode())
        assert b" 200 " not in peer.recv(99)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_connection_whose_head_does_not_come_ends(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with served(Policy()) as port, socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(sent)
        assert _is_closed(peer)


def test_half_open_connections_do_not_lock_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 3600)  # none ends for its age
    monkeypatch.setattr(connections, "OPEN", Connections(limit=40, of_client=20))
    with served(Policy()) as port, ExitStack() as stack:
        for number in range(60):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            peer.sendall(b"GET / HTTP/1.1\r\n" if number % 2 else b"")
        assert ask(port, "/_stcore/health").status_code == 200
        assert len(connections.OPEN._open) <= 40


def test_a_request_among_a_burst_of_half_open_connections_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits to be read while those behind it are taken: it is idle only to the eye."""
    monkeypatch.setattr(connections, "OPEN", Connections(limit=400, of_client=8))
    with served(Policy()) as port, ExitStack() as stack:
        answers = []
        for number in range(120):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            is_asking = number % 10 == 0
            end = "Connection: close\r\n\r\n" if is_asking else ""
            peer.sendall(f"GET /_stcore/health HTTP/1.1\r\nHost: localhost\r\n{end}".encode())
            answers += [peer] * is_asking
        assert [b" 200 " in peer.recv(99) for peer in answers] == [True] * 12


def test_half_open_connections_beyond_a_clients_share_go_as_others_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "GRACE_S", 100)
    monkeypatch.setattr(connections, "OPEN", Connections(limit=400, of_client=10))
    with served(Policy()) as port, ExitStack() as stack:
        for number in range(80):
            if number == 40:
                _until(lambda: len(connections.OPEN._open) == 40)
                for protocol in connections.OPEN._open.values():
                    protocol.since_s -= 100
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            peer.sendall(b"GET / HTTP/1.1\r\n")
        assert ask(port, "/_stcore/health").status_code == 200
        assert len(connections.OPEN._open) <= 42


class Peer:
    """A connection as `Connections` sees it."""

    is_idle = True
    since_s = 0.0
    loop: Any = None

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.transport = self
        self.is_aborted = False

    def end(self) -> None:
        self.is_aborted = True

    def held_bytes(self) -> int:
        return 0 if self.peer == "reads" else 100_000


def test_when_all_places_are_taken_the_client_that_has_most_loses_one() -> None:
    kept = Connections(limit=10, of_client=100)
    quiet, flood = [Peer("10.0.0.1") for _ in range(3)], [Peer("10.0.0.2") for _ in range(40)]
    for peer in (*quiet, *flood):
        kept.admit(peer)  # type: ignore[arg-type]

    assert [peer.is_aborted for peer in quiet] == [False] * 3
    assert sum(not peer.is_aborted for peer in flood) == 7


def test_when_all_places_are_taken_by_many_clients_an_idle_one_goes() -> None:
    kept = Connections(limit=10, of_client=100)
    peers = [Peer(f"10.0.0.{number}") for number in range(11)]
    for peer in peers[:3]:
        peer.is_idle = False
    for peer in peers:
        kept.admit(peer)  # type: ignore[arg-type]

    assert [number for number, peer in enumerate(peers) if peer.is_aborted] == [3]


def test_answers_that_the_system_keeps_count_though_nobody_waits_for_them() -> None:
    kept = Connections(limit=100, of_client=100, unread_bytes=1_000_000)
    peers = [Peer("reads" if number % 2 else f"10.0.0.{number}") for number in range(40)]
    for peer in peers:
        kept.admit(peer)  # type: ignore[arg-type]

    kept.sweep()

    assert [number for number, peer in enumerate(peers) if peer.is_aborted] == list(range(0, 20, 2))


def test_request_that_is_answered_for_long_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with served(Policy()) as port, socket.create_connection(("127.0.0.1", port), 20) as peer:
        peer.sendall(
            b"PUT /api/v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n1"
        )
        time.sleep(0.6)
        peer.sendall(b"23")
        assert b" 200 " in peer.recv(99)


@pytest.mark.parametrize("end", ["", "Connection: close\r\n"])
def test_an_answer_that_nobody_reads_costs_little_and_ends(end: str) -> None:
    with served(Policy()) as port, ExitStack() as stack:
        slow = stack.enter_context(_asking_for_long(port, end, 256 << 10))
        unread = stack.enter_context(_asking_for_long(port, end))
        _until(lambda: len(_waited_for()) == 2)
        num_read = 0
        for step in range(10):
            waited_for = _waited_for()
            while num_read < (step + 1) << 19:
                num_read += len(slow.recv(64 << 10)) or LONG_BYTES
            _let_their_time_be_over(waited_for)
            kept = [t.get_write_buffer_size() for t in list(connections.OPEN._open)]
            assert max(kept) <= 256 << 10
        assert len(connections.OPEN._open) == 1
        while num_read < LONG_BYTES:
            num_read += len(slow.recv(1 << 20)) or -LONG_BYTES
        assert _unsent_bytes(port) < 1024, "the system still keeps an answer that was given up"
        unread.setblocking(True)
        with suppress(ConnectionResetError):
            while unread.recv(1 << 20):  # what had been sent; then its end
                pass


def _until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def _waited_for() -> dict[GuardedProtocol, asyncio.TimerHandle]:
    """Return the connections whose peers do not read, with the timers that will end them."""
    protocols = list(connections.OPEN._open.values())
    found = {p: timer for p in protocols if (timer := p._unread_timer) is not None}
    for protocol, timer in found.items():
        assert timer.when() <= protocol.loop.time() + connections.UNREAD_S
    return found


def _let_their_time_be_over(waited_for: dict[GuardedProtocol, asyncio.TimerHandle]) -> None:
    """Run those timers that no reading has stopped meanwhile, as when their time is over.

    A clock would end the slow reader too wherever the machine is busy for that long.
    """
    is_over = threading.Event()

    def run() -> None:
        for protocol, timer in waited_for.items():
            if protocol._unread_timer is timer:
                timer._run()
                timer.cancel()
        is_over.set()

    next(iter(connections.OPEN._open.values())).loop.call_soon_threadsafe(run)
    assert is_over.wait(20)


def _unsent_bytes(port: int) -> int:
    """Return what the system keeps to be sent from a port, also of connections that are closed."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return sum(int(row[4].split(":")[0], 16) for row in rows if row[1].endswith(f":{port:04X}"))


@pytest.mark.parametrize("path", ["/long", "/files"])
def test_answers_that_many_clients_do_not_read_take_no_more_than_a_share_of_memory(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(connections, "client_of", lambda address: str(time.monotonic_ns()))
    kept = Connections(unread_bytes=(3 if path == "/long" else 0) * LONG_BYTES + (4 << 20))
    monkeypatch.setattr(connections, "OPEN", kept)
    with served(Policy()) as port, ExitStack() as stack:
        peers = [stack.enter_context(_asking_for_long(port, path=path)) for _ in range(40)]
        assert ask(port, "/_stcore/health").status_code == 200
        most = 4 if path == "/long" else 39  # one that is just leaving may be among them
        _until(lambda: 0 < len(connections.OPEN._open) <= most)
        _until(lambda: _unsent_bytes(port) <= 8 << 20)
        last = peers[-1]
        last.settimeout(20)
        assert len(last.recv(100)) == 100, "the newest is the one that may still be read"


def test_answers_that_a_client_does_not_read_keep_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "GRACE_S", 0.1)
    monkeypatch.setattr(connections, "OPEN", Connections(limit=400, of_client=6))
    with served(Policy()) as port, ExitStack() as stack:
        for number in range(24):
            if number % 6 == 0:
                time.sleep(0.3)
            stack.enter_context(_asking_for_long(port))
        assert ask(port, "/_stcore/health").status_code == 200
        _until(lambda: len(connections.OPEN._open) <= 13)


def _asking_for_long(
    port: int, end: str = "", kept_bytes: int = 4096, path: str = "/long"
) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), 20)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept_bytes)
    peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{end}\r\n".encode())
    return peer


def _is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(999) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("code", [b"\x00", b"\x89"], ids=["pieces of a message", "pings"])
def test_a_flood_of_frames_that_no_browser_sends_ends_its_connection(
    opened: int, code: bytes
) -> None:
    begin, piece = b"\x01\x80" + bytes(4), code + b"\x80" + bytes(4)
    with socket.create_connection(("127.0.0.1", opened), timeout=20) as peer:
        peer.sendall(
            f"GET /_stcore/stream HTTP/1.1\r\nHost: localhost:{opened}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert b" 101 " in peer.recv(999)
        peer.sendall(begin + piece * 10)
        assert ask(opened, "/_stcore/health").status_code == 200
        with suppress(ConnectionError):
            for _ in range(20):
                peer.sendall(piece * 10_000)
            while peer.recv(1 << 16):  # times out where the connection stays
                pass


def test_sessions_of_one_client_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "MAX_SESSIONS_OF_CLIENT", 2)
    with served(Policy()) as port, ExitStack() as stack:
        answers = []
        for _ in range(3):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            peer.sendall(
                b"GET /_stcore/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                b"Sec-WebSocket-Version: 13\r\n\r\n"
            )
            answers.append(peer.recv(99)[:12])
    assert answers == [b"HTTP/1.1 101", b"HTTP/1.1 101", b"HTTP/1.1 403"]
