"""What tests do with real processes: wait for what they do, see who lives, lend them a Redis."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.stack import free_port


def until(what: Callable[[], Any], limit_s: float = 60.0, why: Callable[[], str] = str) -> Any:
    """Return the first true answer; the time limit only ends a test that hangs."""
    deadline_s = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < deadline_s, f"not within {limit_s} s: {why()}"
        time.sleep(0.05)
    return found


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[str]:
    """Run a Redis that keeps nothing; give its host and port."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen([*command, "--dir", str(folder), *options], stdout=subprocess.DEVNULL)
    try:
        until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
