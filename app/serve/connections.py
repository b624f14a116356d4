"""Connections that send nothing are closed, and no client has more than its share of them."""

import asyncio
import contextlib
import fcntl
import resource
import socket
import struct
import termios
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.serve.addresses import client_of

HEAD_S = 10.0
"So long may the head of a request take."
MAX_CONNECTIONS = 3000
"At most; fewer where the process may open few files."
MAX_OF_CLIENT = 256
KEPT_FILES = 224
SOCKET_READ_BYTES = 4 * 2**10
"Read from a WebSocket at once: frames of no bytes take the event loop a while."
MAX_FRAMES = 256
"Of one message of a WebSocket; browsers send one or a few."
MAX_PINGS = 20
"So many, and one a second; browsers send none."
UNREAD_S = 30.0
"So long may a client read nothing of an answer that is sent to it."
MIN_READ_BYTES = 32 * 2**10
"In that time; who reads less holds the answer's memory and its connection for ever."
MAX_UNREAD_BYTES = 128 * 2**20
"Of the answers that nobody reads, of all clients together: the one that waits longest goes."
MANY = 64
"From so many connections on all are measured again and again."
SWEEP_S = 0.5
WAITING_BYTES = 128 * 2**10
"Of an answer that the system keeps for a peer, beyond what is on its way."
HOLDING = "warpboard.holding"
"The extension of ASGI by which an application tells how much of an answer it keeps in memory."
GRACE_S = 0.5
"A connection of a client that has its share stays so long: its request may be on its way."


def raise_file_limit() -> int:
    """Raise the number of open files to what the system allows this process; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Connections:
    """The open connections of the process, oldest first."""

    def __init__(
        self,
        limit: int = MAX_CONNECTIONS,
        of_client: int = MAX_OF_CLIENT,
        unread_bytes: int = MAX_UNREAD_BYTES,
    ) -> None:
        self._limit = limit
        self._of_client = of_client
        self._unread_limit = unread_bytes
        self._is_swept = False
        self._unread: dict[GuardedProtocol, int] = {}
        self._unread_bytes = 0
        self._open: dict[asyncio.Transport, Any] = {}
        self._of_peer: dict[str, dict[asyncio.Transport, Any]] = {}

    def fit_files(self, num_files: int) -> None:
        """Keep to what the process may open."""
        self._limit = min(self._limit, num_files - KEPT_FILES)

    def admit(self, protocol: "GuardedProtocol") -> None:
        """Count a new connection; where that is one too many an idle one goes.

        Of a client beyond its share that is one that has had time to ask, or to read; where all are
        too many, the oldest of the client that has most, else of all, else the new one.
        """
        transport = protocol.transport
        self._open[transport] = protocol
        self._sweep_soon(protocol.loop)
        same = self._of_peer.setdefault(protocol.peer, {})
        same[transport] = protocol
        if len(self._open) > self._limit:
            most = max(self._of_peer.values(), key=len)
            unused = (_first_idle(of.values(), protocol) for of in (most, self._open))
            self._close(next(filter(None, unused), protocol))
            return
        for _ in range(2):  # a burst that was let in goes as the next ones come
            if len(same) > self._of_client:
                idle = _first_idle(same.values(), protocol)
                if idle is not None and protocol.since_s - idle.since_s >= GRACE_S:
                    self._close(idle)

    def is_beyond_share(self, peer: str) -> bool:
        """Say whether a client has more connections than its share."""
        return len(self._of_peer.get(peer, ())) > self._of_client

    def keep_unread(self, protocol: "GuardedProtocol", num_bytes: int) -> None:
        """Count an answer that its peer does not read; where all are too much the oldest goes."""
        self.let_go(protocol)
        self._unread[protocol] = num_bytes
        self._unread_bytes += num_bytes
        while self._unread_bytes > self._unread_limit:
            oldest = next(iter(self._unread))
            self.let_go(oldest)
            self._close(oldest)

    def sweep(self) -> None:
        """Measure all answers: the system also takes what nobody waits for, of many connections."""
        waiting = [p for p in self._open.values() if p not in self._unread]
        held = [(p, p.held_bytes()) for p in (*self._unread, *waiting)]
        too_many = sum(num_bytes for _, num_bytes in held) - self._unread_limit
        for protocol, num_bytes in held:
            if too_many > 0 and num_bytes >= MIN_READ_BYTES:
                too_many -= num_bytes
                self._close(protocol)
        self._is_swept = False

    def _sweep_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_swept and len(self._open) >= MANY:
            self._is_swept = True
            loop.call_later(SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sweep()
        self._sweep_soon(loop)

    def let_go(self, protocol: "GuardedProtocol") -> None:
        """Forget an answer that is read again, or is over."""
        self._unread_bytes -= self._unread.pop(protocol, 0)

    def forget(self, transport: asyncio.Transport) -> None:
        """Remove a connection that has ended."""
        protocol = self._open.pop(transport, None)
        if protocol is None:
            return
        self.let_go(protocol)
        same = self._of_peer[protocol.peer]
        del same[transport]
        if not same:
            del self._of_peer[protocol.peer]

    def _close(self, protocol: "GuardedProtocol") -> None:
        self.forget(protocol.transport)
        protocol.end()


def _first_idle(
    candidates: Iterable["GuardedProtocol"], newest: "GuardedProtocol"
) -> "GuardedProtocol | None":
    return next((p for p in candidates if p.is_idle and p is not newest), None)


OPEN = Connections()


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP with a limit for heads that do not come, and a place in `OPEN`."""

    peer = ""
    since_s = 0.0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _unread_since_s = 0.0
    _is_upgraded = False
    _answer_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        app = self.app

        async def with_holding(scope: Any, receive: Any, send: Any) -> None:
            extensions = {**scope.get("extensions", {}), HOLDING: self._hold}
            await app({**scope, "extensions": extensions}, receive, send)

        self.app = with_holding

    def _hold(self, num_bytes: int) -> None:
        self._answer_bytes = num_bytes

    def end(self) -> None:
        """End it now, and have the system forget at once what it still keeps for the peer."""
        place: Any = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            place.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Say whether it is idle, or its peer does not read the answer."""
        is_unread = self._unread_timer is not None
        return not self._is_answering or (
            is_unread and self.loop.time() - self._unread_since_s >= GRACE_S
        )

    @property
    def _is_answering(self) -> bool:
        is_waiting = self.cycle is None or self.cycle.response_complete
        return self._is_upgraded or not is_waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.since_s = self.loop.time()
        self.peer = client_of(self.client[0]) if self.client else ""
        with contextlib.suppress(OSError):
            place: Any = transport.get_extra_info("socket")
            place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, WAITING_BYTES)
        OPEN.admit(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        OPEN.forget(self.transport)
        self._stop_timer()
        self._stop_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reading()  # what is still to be sent keeps it open
        elif not self._is_answering:
            self._await_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_timer()
        self._stop_unread()
        self._is_upgraded = True
        super().handle_websocket_upgrade(event)
        transport: Any = self.transport
        transport.max_size = SOCKET_READ_BYTES
        _guard(transport, transport.get_protocol())

    def _await_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if not self._is_answering:
            self.end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since_s = self.loop.time()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()

    def _await_reading(self) -> None:
        self._stop_unread()
        unread_bytes = self._unread_bytes()
        OPEN.keep_unread(self, self.held_bytes())
        wait_s = GRACE_S if OPEN.is_beyond_share(self.peer) else UNREAD_S
        self._unread_timer = self.loop.call_later(wait_s, self._unread, unread_bytes)

    def _stop_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
            OPEN.let_go(self)

    def _unread(self, before_bytes: int) -> None:
        """End the connection unless enough of the answer was taken since it was looked at."""
        if before_bytes - self._unread_bytes() < MIN_READ_BYTES:
            self.end()
        else:
            self._await_reading()

    def held_bytes(self) -> int:
        """Return what its answer takes: unread, and kept by the application."""
        return self._unread_bytes() + self._answer_bytes

    def _unread_bytes(self) -> int:
        """Return what the peer has not taken: here, and in the system's buffer of the socket."""
        place: Any = self.transport.get_extra_info("socket")
        try:
            (sent,) = struct.unpack("i", fcntl.ioctl(place.fileno(), termios.TIOCOUTQ, bytes(4)))
        except (OSError, ValueError):  # it is closed
            sent = 0
        return self.transport.get_write_buffer_size() + int(sent)


def _guard(transport: Any, protocol: Any) -> None:
    """Have a WebSocket leave `OPEN` with its end, and end when it is flooded with small frames."""
    lost, more, answer = protocol.connection_lost, protocol.handle_cont, protocol.handle_ping
    loop = asyncio.get_running_loop()
    first_s = loop.time() - MAX_PINGS
    num_pings = 0

    def connection_lost(exc: Exception | None) -> None:
        OPEN.forget(transport)
        lost(exc)

    def handle_cont(frame: Any) -> None:
        if len(protocol.frames) < MAX_FRAMES:
            more(frame)
        else:
            transport.abort()

    def handle_ping() -> None:
        nonlocal num_pings
        num_pings += 1
        if num_pings <= loop.time() - first_s:
            answer()
        else:
            transport.abort()

    protocol.connection_lost = connection_lost
    protocol.handle_cont = handle_cont
    protocol.handle_ping = handle_ping
