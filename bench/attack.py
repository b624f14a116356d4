"""The server under attack: slow, half-open, foreign, oversized, anonymous and pieced requests.

`python -m bench.attack [--seconds 5]` starts `up` on an empty data directory, runs a job of its own
program (`sleep`), and sends each kind of attack for some seconds, bounded in number, while another
thread asks the health route. Holds when that answers within MAX_HEALTH_S, the job goes on, and the
log stays small. Prints one JSON line; exit code 1 when something does not hold.
"""

import argparse
import contextlib
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.stack import free_port

ROOT = Path(__file__).resolve().parent.parent
MAX_HEALTH_S = 1.0
MAX_LOG_BYTES = 200_000
NUM_HALF_OPEN = 1_100
NUM_SLOW = 60
NUM_FOREIGN = 200
NUM_OVERSIZED = 24
NUM_SOCKETS = 8
NUM_ANONYMOUS = 600
JOB_S = 600
START_S = 120.0


@dataclass(slots=True)
class Watch:
    """Polls the health route until stopped, and keeps the longest answer time."""

    port: int
    slowest_s: float = 0.0
    num_asked: int = 0
    num_failed: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(0.1):
            begin_s = time.monotonic()
            status = ask(self.port, "GET", "/api/v1/health", timeout_s=15)[0]
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
            self.num_asked += 1
            self.num_failed += status != 200


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    timeout_s: float = 10,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    """Return status and the beginning of an answer; (0, b"") where there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(2000)
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


@contextmanager
def peers(port: int, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that start a request and never finish it."""
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                peer = socket.create_connection(("127.0.0.1", port), timeout=2)
                opened.append(peer)
                peer.sendall(first)
        yield opened
    finally:
        for peer in opened:
            peer.close()


def half_open(port: int, seconds: float) -> dict[str, Any]:
    with peers(port, NUM_HALF_OPEN, b"GET / HTTP/1.1\r\nHost: local") as opened:
        time.sleep(seconds)
        return {"connections": len(opened)}


def slow(port: int, seconds: float) -> dict[str, Any]:
    end_s = time.monotonic() + seconds
    sent = 0
    with peers(port, NUM_SLOW, b"GET / HTTP/1.1\r\n") as opened:
        while time.monotonic() < end_s:
            for peer in opened:
                with contextlib.suppress(OSError):
                    sent += peer.send(b"X")
            time.sleep(0.2)
    return {"bytes": sent}


def foreign(port: int, seconds: float) -> dict[str, Any]:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    codes: dict[str, int] = {}
    end_s = time.monotonic() + seconds
    for number in range(NUM_FOREIGN):
        origin = ("http://evil.example", "http://localhost:3000", "null")[number % 3]
        host = ("evil.example", f"localhost:{port}")[number % 2]
        headers = upgrade | {"Origin": origin, "Host": host}
        code = str(ask(port, "GET", "/_stcore/stream", headers=headers)[0])
        codes[code] = codes.get(code, 0) + 1
        if time.monotonic() > end_s:
            break
    return {"answers": codes}


def pieces(port: int, seconds: float) -> dict[str, Any]:
    """Send WebSocket messages in empty pieces, and pings, from several connections in turn."""
    head = (
        f"GET /_stcore/stream HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n"
        f"Origin: http://localhost:{port}\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
    first, piece, ping = (bytes([code, 0x80, 0, 0, 0, 0]) for code in (0x02, 0x00, 0x89))
    num_closed = 0
    end_s = time.monotonic() + seconds
    with peers(port, NUM_SOCKETS, head) as opened:
        time.sleep(0.5)
        while opened and time.monotonic() < end_s:
            for number, peer in enumerate(list(opened)):
                flood = ping if number % 2 else piece
                try:
                    peer.sendall(first + flood * 20_000)
                except OSError:
                    num_closed += 1
                    opened.remove(peer)
    return {"sockets": NUM_SOCKETS, "closed": num_closed}


def oversized(port: int, seconds: float) -> dict[str, Any]:
    del seconds
    codes: dict[str, int] = {}
    piece = b"x" * 2**20
    attempts: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("PUT", "/_stcore/upload_file/s/f", piece, {"Content-Length": str(10**10)}),
        ("PUT", "/_stcore/upload_file/s/f", piece * 8, {}),
        ("POST", "/api/v1/workers", piece * 8, {}),
        ("GET", "/", b"", {"X-Long": "x" * 200_000}),
    ]
    for number in range(NUM_OVERSIZED):
        method, path, body, headers = attempts[number % len(attempts)]
        code = str(ask(port, method, path, body, timeout_s=3, headers=headers)[0])
        codes[code] = codes.get(code, 0) + 1
    return {"answers": codes}


def anonymous(port: int, seconds: float) -> dict[str, Any]:
    codes: dict[str, int] = {}
    end_s = time.monotonic() + seconds
    for number in range(NUM_ANONYMOUS):
        if time.monotonic() > end_s:
            break
        path = ("/api/v1/runs", "/api/v1/workers", "/_stcore/upload_file/s/f")[number % 3]
        method = ("GET", "POST", "PUT")[number % 3]
        wrong = {"Authorization": f"Bearer {number}"}
        code = str(ask(port, method, path, b"{}", headers=wrong)[0])
        codes[code] = codes.get(code, 0) + 1
    with peers(port, 40, b"\x16\x03\x01 no HTTP\r\n\r\n"):
        pass
    return {"answers": codes}


KINDS: tuple[Callable[[int, float], dict[str, Any]], ...] = (
    half_open,
    slow,
    foreign,
    pieces,
    oversized,
    anonymous,
)


@contextmanager
def running(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Run `up` with this Python as the worker's; yield its port and the environment."""
    port = free_port()
    sleep = os.path.realpath("/bin/sleep")
    env = {**os.environ, "WARPBOARD_DATA": str(folder / "data"), "PYTHONPATH": str(ROOT)}
    env |= {"WARPBOARD_PYTHON": sys.executable, "WARPBOARD_ALLOW_COMMANDS": sleep}
    # As most hosts start a process: 1024 open files, more on its own request.
    command = ["prlimit", "--nofile=1024:", sys.executable, "-m", "app.cli", "up", "--no-demo"]
    command += ["--port", str(port)]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--gpu", "cpu"], cwd=ROOT, env=env, stdout=log, stderr=log
        )
        try:
            wait_until(lambda: ask(port, "GET", "/api/v1/health")[0] == 200, "the dashboard")
            yield port, env
        finally:
            process.terminate()
            process.wait(60)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        if holds():
            return
        time.sleep(0.3)
    raise SystemExit(f"{what}: not within {START_S:.0f} s")


def cli(env: dict[str, str], *words: str) -> Any:
    command = [sys.executable, "-m", "app.cli", *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def start_job(env: dict[str, str]) -> str:
    """Submit a job that sleeps, and return it once it runs."""
    argv = json.dumps(["/bin/sleep", str(JOB_S)])
    words = ["submit", "command", "--set", f"argv={argv}", "--set", "iterations=1"]
    words += ["--gpu", "cpu", "--repeats", "1", "--profilers", "none"]
    run_id = str(cli(env, *words)["runs"][0]["run_id"])
    wait_until(lambda: status_of(env, run_id) == "running", "the job")
    return run_id


def status_of(env: dict[str, str], run_id: str) -> str:
    return str(cli(env, "show", run_id)["run"]["status"])


def attack(
    kind: Callable[[int, float], dict[str, Any]], port: int, seconds: float
) -> dict[str, Any]:
    """Send one kind while the health route is asked; return what was seen."""
    watch = Watch(port)
    thread = threading.Thread(target=watch.run)
    thread.start()
    begin_s = time.monotonic()
    try:
        figures = kind(port, seconds)
        time.sleep(1)  # what it left behind is felt too
    finally:
        watch.stop.set()
        thread.join()
    return {
        "kind": kind.__name__,
        "seconds": round(time.monotonic() - begin_s, 1),
        **figures,
        "health_slowest_s": round(watch.slowest_s, 3),
        "health_asked": watch.num_asked,
        "health_failed": watch.num_failed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="so long each kind lasts")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with tempfile.TemporaryDirectory() as name, running(Path(name)) as (port, env):
        run_id = start_job(env)
        logs = Path(env["WARPBOARD_DATA"]) / "logs"
        before = sum(p.stat().st_size for p in logs.glob("*"))
        kinds = [attack(kind, port, min(options.seconds, 60)) for kind in KINDS]
        status = status_of(env, run_id)
        log_bytes = sum(p.stat().st_size for p in logs.glob("*")) - before
        cli(env, "cancel", run_id)
    holds = (
        status == "running"
        and log_bytes <= MAX_LOG_BYTES
        and all(k["health_slowest_s"] < MAX_HEALTH_S and not k["health_failed"] for k in kinds)
    )
    result = {"bench": "attack", "holds": holds, "job": status, "log_bytes": log_bytes}
    print(json.dumps(result | {"kinds": kinds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
