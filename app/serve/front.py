"""What every request passes before pages and API see it: host, origin, session, upload, headers."""

import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from urllib.parse import parse_qs, quote, urlsplit

import anyio
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.serve.addresses import LOOPBACK, NOBODY, Neighbours, client_of, is_address
from app.serve.connections import HOLDING
from app.serve.login import Login

API = "/api/v1/"
HEALTH = ("/_stcore/health", "/api/v1/health")
STREAM = "/_stcore/stream"
UPLOAD = "/_stcore/upload_file/"
AGENT = "/_stcore/agent/"
LOGIN_STEPS = ("/auth/login", "/auth/logout", "/oauth2callback")
OURS = ("/api/", "/perfetto/")
"""Paths that are not Streamlit's: they lie below no base path inside the server."""

_HOST = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::\d{0,5})?\Z", re.ASCII
)
_ODD_PATH = re.compile(r"(?!/)|.*(?:[\x00-\x1f\x7f\\]|//|/\.{1,2}(?:/|\Z))", re.DOTALL)
"""A path that two servers may read in two ways: `..`, `//`, a whole address, a backslash."""

MAX_SESSIONS = 300
MAX_SESSIONS_OF_CLIENT = 100
MAX_UPLOADS_OF_CLIENT = 2
MAX_WAITING_OF_CLIENT = 32
"A browser sends the files of one drop at once; those beyond the first two wait for their turn."
TURN_S = 60.0
MAX_UPLOADS = 12
UPLOAD_WINDOW_S = 600.0
MAX_UPLOADED = 5
"So many times the largest upload may one client send in a window."
MAX_HELD = 10
"So many times the largest upload may all open pages hold: Streamlit keeps uploads in memory."
BODY_IDLE_S = 30.0
MULTIPART_BYTES = 64 * 2**10
PIECE_BYTES = 64 * 2**10
"Answers are sent in chunks, so that an unread one is not copied into a buffer."
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"content-security-policy", b"frame-ancestors 'self'; object-src 'none'; base-uri 'self'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Who is served what."""

    hosts: tuple[str, ...] = LOOPBACK
    "Host names that pages are served under; `*` is any."
    named: tuple[str, ...] = ()
    "Those of them that the operator named: a proxy may serve them under another port."
    is_any_address: bool = False
    "Also under any IP address: no foreign DNS name can be one."
    base_path: str = ""
    workers_port: int | None = None
    "The port where only the workers' API is served."
    login: Login | None = None
    neighbours: Neighbours = NOBODY
    "Containers that get no page: a job could use it, and nobody is asked for a login."
    max_upload_bytes: int = 200 * 2**20


class Refused(Exception):
    """Answer with this status and sentence."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


class Front:
    """The ASGI application before all others."""

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy
        self._sessions: Counter[str] = Counter()
        self._uploads: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._upload_ended: anyio.Event | None = None
        self._uploaded: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path = self._inner_path(scope["path"])
        send = _with_headers(_in_pieces(send, scope))
        try:
            if _ODD_PATH.match(scope["path"]):
                raise Refused(400, "the path is not a plain one")
            if _header(scope, b"content-length") and _header(scope, b"transfer-encoding"):
                raise Refused(400, "two lengths: where the request ends is not clear")
            if not path.startswith(API):
                self._check(scope, path)
            else:
                self._check_api(scope)
            inner = self._inner_scope(scope, path)
        except Refused as refusal:
            await _refuse(scope, receive, send, refusal)
            return
        answer = self._with_slash(scope) or self._login_answer(scope, path)
        if answer is not None:
            await _answer(scope, receive, send, answer)
            return
        scope = inner
        client = client_of(scope["client"][0]) if scope.get("client") else ""
        if scope["type"] == "websocket":
            await self._stream(scope, receive, send, client)
        elif path.startswith(UPLOAD) and scope["method"] == "PUT":
            await self._upload(scope, receive, send, client)
        else:
            await self._app(scope, receive, send)

    def _inner_path(self, path: str) -> str:
        """Return the path below the base path, whether a proxy has taken that off or not."""
        base = self._policy.base_path
        if base and (path == base or path.startswith(f"{base}/")):
            return path.removeprefix(base) or "/"
        return path

    def _with_slash(self, scope: Scope) -> Response | None:
        """Return the way to the base path with its slash, from which the page's files are told."""
        base = self._policy.base_path
        is_page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not base or scope["path"] != base or not is_page:
            return None
        query = scope["query_string"].decode("latin-1")
        return RedirectResponse(f"{base}/" + (f"?{query}" if query else ""), 307)

    def _inner_scope(self, scope: Scope, path: str) -> Scope:
        is_ours = path.startswith(OURS)
        inner = path if is_ours else self._policy.base_path + path
        headers = [(k, v) for k, v in scope["headers"] if k != b"host"]
        origin = _header(scope, b"origin")
        if scope["type"] == "websocket" and origin:
            # Checked above. Streamlit would ask a public service for this host's address otherwise.
            headers.append((b"host", urlsplit(origin).netloc.encode("latin-1")))
        else:
            headers = [(k, v) for k, v in headers if k != b"origin"]
            headers.append((b"host", (_header(scope, b"host") or "").encode("latin-1")))
        raw = quote(inner).encode()
        return {**scope, "path": inner, "raw_path": raw, "headers": headers}

    def _check(self, scope: Scope, path: str) -> None:
        """Raise Refused for what pages and their files are not served to."""
        policy = self._policy
        if policy.workers_port is not None and (scope.get("server") or ("", 0))[1] == (
            policy.workers_port
        ):
            raise Refused(404, "here is only the API of workers")
        if path in HEALTH:
            return
        if path.startswith(AGENT):
            raise Refused(404, "not served")
        if scope.get("client") and policy.neighbours.has(scope["client"][0]):
            raise Refused(
                403, "pages are not served to other containers; WARPBOARD_HOSTS names a proxy"
            )
        host = _header(scope, b"host")
        if host is None or not self._is_host(host):
            raise Refused(421, "not served under this name; WARPBOARD_HOSTS names others")
        origin = _header(scope, b"origin")
        if origin is not None and not self._is_origin(origin, host):
            raise Refused(403, "not served to pages of another origin")
        if scope["type"] == "websocket" and path != STREAM:
            raise Refused(404, "not served")
        reading = ("GET", "HEAD", "OPTIONS")
        allowed = (*reading, "PUT", "DELETE") if path.startswith(UPLOAD) else reading
        if scope["type"] == "http" and scope["method"] not in allowed:
            raise Refused(405, "pages take no such request")

    def _check_api(self, scope: Scope) -> None:
        """Raise Refused for what no worker sends; a website's tries shall not count as its host's.

        Any Host is taken: workers name the dashboard as their network does, and have a token.
        """
        if scope["type"] == "websocket":
            raise Refused(404, "the API has no WebSocket")
        origin, host = _header(scope, b"origin"), _header(scope, b"host")
        if origin is not None and not self._is_origin(origin, host or ""):
            raise Refused(403, "not served to pages of another origin")

    def _is_host(self, host: str) -> bool:
        written = _HOST.match(host)
        if written is None:
            return False
        name = (written["address"] or written["name"]).rstrip(".").lower()
        policy = self._policy
        is_named = "*" in policy.hosts or name in policy.hosts
        return is_named or (policy.is_any_address and is_address(name))

    def _is_origin(self, origin: str, host: str) -> bool:
        """Say whether an origin is this dashboard's own, as the browser or a proxy names it."""
        try:
            parts = urlsplit(origin)
            name, port = parts.hostname, parts.port
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or name is None:
            return False
        return parts.netloc.lower() == host.lower() or (name in self._policy.named and port is None)

    def _login_answer(self, scope: Scope, path: str) -> Response | None:
        """Return what someone without a session gets; None where nothing is in the way."""
        login = self._policy.login
        if login is None or path in HEALTH or path.startswith(API) or path in LOGIN_STEPS:
            return None
        base = self._policy.base_path
        if path == "/login" and scope["type"] == "http":
            return _to_provider(login, base, scope["query_string"].decode("latin-1"))
        cookies = b"; ".join(v for k, v in scope["headers"] if k == b"cookie").decode("latin-1")
        claims = login.claims_of(cookies)
        if login.access.allows(claims):
            return None
        return _login_page(login, base, str(claims.get("email") or claims.get("name") or ""))

    async def _stream(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        is_full = self._sessions.total() >= MAX_SESSIONS
        if is_full or self._sessions[client] >= MAX_SESSIONS_OF_CLIENT:
            await _refuse(scope, receive, send, Refused(503, "too many pages are open"))
            return
        self._sessions[client] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            _one_less(self._sessions, client)

    async def _upload(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        """Let an upload through while its client has not sent too much, or too many at once."""
        limit = self._policy.max_upload_bytes + MULTIPART_BYTES
        announced = _header(scope, b"content-length") or "0"
        num_bytes = int(announced) if announced.isdigit() and len(announced) < 15 else limit + 1
        has_turn = num_bytes > limit or await self._has_turn(client)
        self._forget_old_uploads()
        recent = self._uploaded.get(client, ())
        refusal = None
        if num_bytes > limit:
            refusal = Refused(413, f"uploads are limited to {self._policy.max_upload_bytes} bytes")
        elif self._uploads.total() >= MAX_UPLOADS:
            refusal = Refused(503, "too many uploads are going on")
        elif not has_turn:
            refusal = Refused(429, "other uploads of yours are going on")
        elif sum(n for _, n in recent) + num_bytes > MAX_UPLOADED * limit:
            refusal = Refused(429, "too much was uploaded in the last minutes")
        elif held_bytes() + num_bytes > MAX_HELD * limit:
            refusal = Refused(503, "open pages hold too many uploads; close some, or import less")
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        entry = _Body(receive, limit)
        self._uploads[client] += 1
        try:
            await self._app(scope, entry, send)
        finally:
            _one_less(self._uploads, client)
            self._uploaded[client].append((time.monotonic(), entry.num_bytes))
            if self._upload_ended is not None:
                self._upload_ended.set()
                self._upload_ended = None

    async def _has_turn(self, client: str) -> bool:
        """Wait until few enough uploads of a client go on; False where that takes too long."""
        if self._waiting[client] >= MAX_WAITING_OF_CLIENT:
            return False
        self._waiting[client] += 1
        try:
            with anyio.move_on_after(TURN_S):
                while self._uploads[client] >= MAX_UPLOADS_OF_CLIENT:
                    self._upload_ended = self._upload_ended or anyio.Event()
                    await self._upload_ended.wait()
                return True
        finally:
            _one_less(self._waiting, client)
        return False

    def _forget_old_uploads(self) -> None:
        limit_s = time.monotonic() - UPLOAD_WINDOW_S
        for client, recent in list(self._uploaded.items()):
            while recent and recent[0][0] < limit_s:
                recent.popleft()
            if not recent:
                del self._uploaded[client]


def held_bytes() -> int:
    """Return the size of all uploads that open pages hold."""
    from streamlit.runtime import Runtime

    if not Runtime.exists():
        return 0
    files = getattr(Runtime.instance().uploaded_file_mgr, "file_storage", {})
    return sum(len(f.data) for of_page in list(files.values()) for f in list(of_page.values()))


class _Body:
    """A request's body that is cut off when it stops coming or grows too long."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self.num_bytes = 0

    async def __call__(self) -> Message:
        with anyio.move_on_after(BODY_IDLE_S):
            message = await self._receive()
            self.num_bytes += len(message.get("body", b""))
            if self.num_bytes <= self._limit:
                return message
        return {"type": "http.disconnect"}


def _one_less(counts: Counter[str], client: str) -> None:
    counts[client] -= 1
    if counts[client] <= 0:
        del counts[client]


def _header(scope: Scope, name: bytes) -> str | None:
    """Return a header that comes once; Refused when it comes twice."""
    values = [v.decode("latin-1") for k, v in scope["headers"] if k == name]
    if len(values) > 1:
        raise Refused(400, f"{name.decode()} is given twice")
    return values[0] if values else None


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            have = {name.lower() for name, _ in headers}
            missing: Iterable[tuple[bytes, bytes]] = (h for h in HEADERS if h[0] not in have)
            message = {**message, "headers": [*headers, *missing]}
        await send(message)

    return wrapped


def _in_pieces(send: Send, scope: Scope) -> Send:
    holding = (scope.get("extensions") or {}).get(HOLDING, lambda num_bytes: None)

    async def wrapped(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] != "http.response.body" or len(body) <= PIECE_BYTES:
            await send(message)
            return
        view = memoryview(body)
        last = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        holding(len(body))
        for at in range(0, last, PIECE_BYTES):
            await send({**message, "body": bytes(view[at : at + PIECE_BYTES]), "more_body": True})
        holding(0)
        await send({**message, "body": bytes(view[last:])})

    return wrapped


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: Refused) -> None:
    await _answer(scope, receive, send, PlainTextResponse(f"{refusal}\n", refusal.status))


async def _answer(scope: Scope, receive: Receive, send: Send, response: Response) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    response.headers["cache-control"] = "no-store"
    response.headers["connection"] = "close"  # a body that was not read must not be waited for
    await response(scope, receive, send)


def _to_provider(login: Login, base: str, query: str) -> Response:
    """Send the browser to Streamlit's own login with a fresh token for the provider."""
    from streamlit.auth_util import encode_provider_token

    asked = parse_qs(query).get("provider", [login.providers[0]])[0]
    if asked not in login.providers:
        return PlainTextResponse("no such provider\n", 404)
    return RedirectResponse(f"{base}/auth/login?provider={encode_provider_token(asked)}", 302)


def _login_page(login: Login, base: str, who: str) -> Response:
    """Return the page for someone without a session, or with one that may not enter."""
    if who:
        text = f"{escape(who[:200])} may not use this dashboard."
        links = f'<a href="{base}/auth/logout">Log out</a>'
    else:
        text = "Log in to see runs and submit jobs."
        links = " ".join(
            f'<a href="{base}/login?provider={quote(name)}">Log in'
            f"{'' if len(login.providers) == 1 else ' with ' + escape(name)}</a>"
            for name in login.providers
        )
    return HTMLResponse(_PAGE.format(text=text, links=links), 403 if who else 401)


_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Warpboard</title>
<meta name="viewport" content="width=device-width"><style>
body{{font:16px system-ui,sans-serif;margin:18vh auto;max-width:26rem;padding:0 1rem;
color:#1a2231;background:#fff}}
a{{display:inline-block;background:#0067a3;color:#fff;padding:.55rem 1.1rem;border-radius:.5rem;
text-decoration:none;margin-right:.5rem}}
@media(prefers-color-scheme:dark){{body{{color:#e6eaf0;background:#11151c}}a{{background:#2b79ad}}}}
</style></head><body><main><h1>Warpboard</h1><p>{text}</p><p>{links}</p></main></body></html>
"""
