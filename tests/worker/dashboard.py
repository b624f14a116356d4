"""A small HTTP server that speaks the worker's API, in memory, with faults on demand."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "test-token"


@dataclass
class Dashboard:
    """What the workers told, and what they are to be told."""

    url: str = ""
    version: str = "0.1.0"
    queued: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: list[str] = field(default_factory=list)
    workers: list[dict[str, Any]] = field(default_factory=list)
    heartbeats: list[list[str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    cancel: set[str] = field(default_factory=set)
    stored: dict[str, bytes] = field(default_factory=dict)
    partial: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_away: bool = False
    break_uploads_after: int | None = None
    "Close the connection once after this many bytes of an upload."
    limit_bytes: int | None = None
    on_register: Callable[[], Any] | None = None
    "Done before a worker hears that it is registered."
    lock: threading.Lock = field(default_factory=threading.Lock)

    def log(self) -> str:
        return "\n".join(e["message"] for e in self.events)


class _Handler(BaseHTTPRequestHandler):
    dashboard: Dashboard
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: dict[str, Any] | None = None, **headers: str) -> None:
        data = json.dumps(body or {}).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def is_refused(self) -> bool:
        if self.dashboard.is_away:
            self.close_connection = True
            self.answer(503)
            return True
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(401, {"error": "unknown token"})
            return True
        return False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.is_refused():
            return
        parts = urlsplit(self.path).path.removeprefix("/api/v1/").split("/")
        with self.dashboard.lock:
            self.answer(*getattr(self, "post_" + parts[-1])(parts, body))

    def post_workers(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.dashboard.workers.append(body)
        if self.dashboard.on_register:
            self.dashboard.on_register()
        return 200, {"heartbeat_s": 0.3, "version": self.dashboard.version}

    def post_heartbeat(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.dashboard.heartbeats.append(body["running"])
        return 200, {"cancel": []}

    def post_claim(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        spec = self.dashboard.queued.pop(parts[1], None)
        if spec is None:
            return 409, {"error": "not queued"}
        self.dashboard.claims.append(parts[1])
        return 200, {"spec": spec, "attempt": 1}

    def post_events(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.dashboard.events += body["events"]
        self.dashboard.progress.append(body["progress"])
        return 200, {"cancel": parts[1] in self.dashboard.cancel}

    def post_finish(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        hashes = [c["sha256"] for p in body["passes"] for c in p["captures"]]
        missing = [h for h in hashes if h not in self.dashboard.stored]
        if missing:
            return 409, {"missing": missing}
        self.dashboard.manifests[parts[1]] = body
        return 200, {}

    def do_HEAD(self) -> None:
        if self.is_refused():
            return
        sha256 = self.path.rsplit("/", 1)[1]
        if sha256 in self.dashboard.stored:
            return self.answer(200)
        return self.answer(404, Upload_Offset=str(len(self.dashboard.partial.get(sha256, b""))))

    def do_PUT(self) -> None:
        if self.is_refused():
            return
        url = urlsplit(self.path)
        sha256, offset = url.path.rsplit("/", 1)[1], int(parse_qs(url.query)["offset"][0])
        length = int(self.headers["Content-Length"])
        board = self.dashboard
        if board.limit_bytes is not None and offset + length > board.limit_bytes:
            self.close_connection = True
            return self.answer(413, {"error": "too large"})
        have = board.partial.get(sha256, b"")
        if offset != len(have):
            self.rfile.read(length)
            return self.answer(409)
        cut, board.break_uploads_after = board.break_uploads_after, None
        data = self.rfile.read(min(length, cut) if cut is not None else length)
        board.partial[sha256] = have + data
        if cut is not None and cut < length:
            self.close_connection = True
            self.connection.close()
            return None
        if hashlib.sha256(board.partial[sha256]).hexdigest() != sha256:
            return self.answer(202)
        board.stored[sha256] = board.partial.pop(sha256)
        return self.answer(201)


@contextmanager
def serve() -> Iterator[Dashboard]:
    dashboard = Dashboard()
    handler = type("Handler", (_Handler,), {"dashboard": dashboard})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    dashboard.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield dashboard
    finally:
        server.shutdown()
        server.server_close()
