"""Serve the dashboard on a free port for a benchmark, and stop it again."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.stack import free_port

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT_S = 60.0


@contextmanager
def served(data: Path, log: Path) -> Iterator[tuple[str, float]]:
    """Serve one data directory; yield the address and the seconds until it answered."""
    port = free_port()
    command = [sys.executable, "-m", "app.serve", "--port", str(port)]
    env = {**os.environ, "WARPBOARD_DATA": str(data)}
    with log.open("wb") as out:
        begin = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, log)
            yield url, time.perf_counter() - begin
        finally:
            process.terminate()
            process.wait(timeout=20)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            with opener.open(f"{url}/_stcore/health", timeout=1):
                return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"the dashboard does not answer:\n{log.read_text(errors='replace')[-2000:]}")
