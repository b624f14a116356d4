"""The server's process: pages and API on one port; where asked, the API alone on another.

`python -m app.serve --host H --port P [--workers-host H --workers-port P]`. Its log cannot be
flooded: repeated lines are counted, not written.
"""

import argparse
import logging
import os
import socket
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from app.api.app import Box, lifespan_for, make_api, routes
from app.serve.addresses import (
    LOOPBACK,
    NOBODY,
    base_path,
    is_loopback,
    named_hosts,
    neighbours,
    published_host,
    served_hosts,
)
from app.serve.front import Front, Policy
from app.serve.login import load_login, secrets_path
from core.config import ROOT, data_dir
from core.console import fail
from core.errors import AppError

WINDOW_S = 60.0
MAX_SAME = 5
"So many lines of one kind in a window; the rest are counted."
MAX_LINES = 300
"So many lines of all kinds in a window."


class Limiter:
    """Decides for each log record whether it is written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin_s = time.monotonic()
        self._seen: dict[tuple[str, str], int] = defaultdict(int)
        self._num_lines = 0

    def allows(self, record: logging.LogRecord) -> bool:
        """Say whether a record is written; the first of a window says how many were dropped."""
        with self._lock:
            now = time.monotonic()
            if now - self._begin_s > WINDOW_S:
                left_out = self._num_lines - self._num_written()
                self._begin_s, self._num_lines = now, 0
                self._seen.clear()
                if left_out > 0:
                    record.msg = f"{record.msg} ({left_out} lines were left out before)"
            self._num_lines += 1
            kind = (record.name, str(record.msg)[:200])
            if kind not in self._seen and len(self._seen) >= MAX_LINES:
                kind = ("", "")  # texts that differ each time are one kind in the end
            self._seen[kind] += 1
            is_allowed = self._seen[kind] <= MAX_SAME and self._num_written() <= MAX_LINES
            if is_allowed and self._seen[kind] == MAX_SAME:
                record.msg = f"{record.msg} (more of these are counted, not written)"
            return is_allowed

    def _num_written(self) -> int:
        return sum(min(count, MAX_SAME) for count in self._seen.values())


LIMITER = Limiter()


class LimitedLogger(logging.Logger):
    """A logger whose records pass the limiter first, whatever handlers it has."""

    def handle(self, record: logging.LogRecord) -> None:
        if LIMITER.allows(record):
            super().handle(record)


def limit() -> None:
    """Limit every logger of this process; called before the servers' modules make theirs."""
    logging.setLoggerClass(LimitedLogger)
    for logger in [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]:
        if not isinstance(logger, LimitedLogger):
            logger.addFilter(LIMITER.allows)
    logging.root.addFilter(LIMITER.allows)
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(name)s %(levelname)s %(message)s",
    )


MAIN = ROOT / "app" / "main.py"
PING_S = 30
MAX_MESSAGE_BYTES = 2**20
"From a browser, whose page may send a part of one and wait; files come another way."
MAX_HEAD_BYTES = 64 * 2**10
STOP_S = 3
BACKLOG = 512


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m app.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-pages", action="store_true", help="the API alone")
    parser.add_argument("--workers-host", help="address of a second port with the API alone")
    parser.add_argument("--workers-port", type=int)
    options = parser.parse_args(argv)
    os.umask(0o077)
    limit()
    try:
        serve(options)
    except AppError as exc:
        return fail(str(exc), exc.exit_code, is_json=False)
    return 0


def serve(options: argparse.Namespace) -> None:
    """Listen and serve; UserError for settings that are wrong."""
    import uvicorn

    from app.serve.connections import OPEN, GuardedProtocol, raise_file_limit

    OPEN.fit_files(raise_file_limit())
    sockets = [_listen(options.host, options.port)]
    port = sockets[0].getsockname()[1]
    if options.workers_host:
        sockets.append(_listen(options.workers_host, options.workers_port or 0))
    workers_port = port if options.no_pages else sockets[-1].getsockname()[1]
    login = None if options.no_pages else load_login(base_path())
    named = tuple(name for name in named_hosts() if name not in LOOPBACK)
    policy = Policy(
        hosts=served_hosts(options.host),
        named=named,
        is_any_address=not is_loopback(published_host(options.host)),
        base_path=base_path(),
        workers_port=workers_port if options.no_pages or options.workers_host else None,
        login=login,
        neighbours=NOBODY if login or named else neighbours(),
    )
    app = make_api(data_dir()) if options.no_pages else _pages_and_api(options.host, port, policy)
    config = uvicorn.Config(
        Front(app, policy),
        http=GuardedProtocol,
        ws="websockets-sansio",
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_max_size=MAX_MESSAGE_BYTES,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        # Who forwards may say for whom; without a proxy that the operator named, nobody forwards.
        proxy_headers=bool(policy.named),
        timeout_graceful_shutdown=STOP_S,
    )
    uvicorn.Server(config).run(sockets=sockets)


def _pages_and_api(host: str, port: int, policy: Policy) -> Any:
    """Return Streamlit's application with our routes in it, configured for this address."""
    from streamlit import config, net_util
    from streamlit.web import bootstrap

    # Nothing calls out by itself: Streamlit asks this service for the host's public address.
    net_util.get_external_ip = lambda: None
    config._main_script_path = str(MAIN)
    _take_own_settings_alone(config)
    shown = "localhost" if is_loopback(host) or host in ("0.0.0.0", "::") else host
    bootstrap.load_config_options(
        {
            "server.address": host,
            "server.port": port,
            "server.headless": True,
            "server.baseUrlPath": policy.base_path.strip("/"),
            "server.fileWatcherType": "none",
            "server.enableXsrfProtection": True,
            "server.enableCORS": True,
            "server.allowedHosts": [],  # `Front` has checked it
            "browser.serverAddress": shown,
            "browser.gatherUsageStats": False,
            "secrets.files": [str(secrets_path())],
        }
    )
    config._server_mode = "starlette-app"
    # Pages are imported before Streamlit's runtime is there, which is of no consequence.
    logging.getLogger("streamlit.runtime.caching.cache_data_api").disabled = True

    import streamlit as st

    from app import perfetto
    from app.serve import index
    from app.serve.ahead import keep_ahead
    from app.ui import warm

    box = Box()
    return st.App(
        str(MAIN),
        routes=[*routes(box), *perfetto.routes(), *index.routes(policy.base_path)],
        lifespan=lifespan_for(data_dir(), box, load=warm.load_all, keep_ahead=keep_ahead),
    )


def _take_own_settings_alone(config: Any) -> None:
    """Have Streamlit read its settings from this checkout: not from a shell, home or folder.

    One of them names headers that say who somebody is, another allows tracebacks on pages.
    """
    for name in [name for name in os.environ if name.startswith("STREAMLIT_")]:
        if name != "STREAMLIT_SERVER_BASE_URL_PATH":
            del os.environ[name]
    config.get_config_files = lambda name: [str(ROOT / ".streamlit" / name)]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


if __name__ == "__main__":
    sys.exit(main())
