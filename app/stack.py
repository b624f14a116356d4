"""The running product on one host: dashboard and API, ingest and worker, watched together.

One thread: the loop of the caller (`up`, `submit --wait`) calls `step` a few times a second. What
is going on is written to `stack.json`, which the Overview shows.
"""

import fcntl
import json
import os
import socket
import sqlite3
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from app.environments import made_worker_python
from app.parts import Part, stop_all
from app.serve.addresses import LOOPBACK, WILDCARDS, base_path
from app.serve.publish import check_publishing
from core.config import DataDir
from core.errors import AppError, UserError
from core.python import module_command

HEALTH_TIMEOUT_S = 90.0
MAX_DASHBOARD_FAILURES = 3
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """What to start."""

    host: str = "127.0.0.1"
    port: int = 8501
    has_pages: bool = True
    "Streamlit pages beside the API."
    is_open_to_network: bool = False
    "Pages beyond this host although there is no login."
    workers_host: str | None = None
    "Address of a second port with the API alone, for workers of other hosts."
    workers_port: int = 8502
    has_ingest: bool = True
    has_worker: bool = True
    has_demo: bool = True
    "Load the example runs into an empty database."
    worker_gpu: str = "all"


class Stack:
    """The processes of one data directory."""

    def __init__(self, data: DataDir, options: StackOptions, tell: Say) -> None:
        self._data = data
        self._options = options
        self._tell = tell
        self._lock: IO[str] | None = None
        self._parts: dict[str, Part] = {}
        self._worker_note = "off"
        self._written = ""
        self._who = ""
        self.url = f"http://{_own_address(options.host)}:{options.port}"

    def start(self) -> None:
        """Lock the data directory and serve the dashboard; returns once it answers.

        UserError for a port in use or a data directory that another stack serves.
        """
        options = self._options
        if options.has_pages:
            self._who = check_publishing(options.host, is_asked=options.is_open_to_network)
        self._data.ensure()
        self._lock = _locked(self._data)
        check_port(options.host, options.port)
        if options.workers_host:
            check_port(options.workers_host, options.workers_port)
        if self._who:
            self._tell(self._who)
        # Made here, once, so that no two processes migrate at the same time.
        from db.connection import opened

        with opened(self._data.db_path):
            pass
        self._add("dashboard", self._dashboard_command())
        self._wait_for_health()
        if self._options.has_ingest:
            self._add("ingest", module_command("app.ingest_worker"))
        if self._options.has_demo and self._is_empty():
            self._add("demo", module_command("app.cli", "demo"), once=True)
        if self._options.has_worker:
            self._start_worker_or_environment()
        self._write()

    def step(self) -> None:
        """Notice what ended, start it again, go on with what is being prepared."""
        for part in list(self._parts.values()):
            before = part.state
            part.poll()
            if part.state != before and part.state in ("restarting", "failed"):
                self._tell(f"{part.name} ended (code {part.returncode}): {part.last_line()}")
                if part.name == "worker":
                    self._give_up_worker_runs()
        environment = self._parts.get("environment")
        if environment is not None:
            last_line = environment.last_line().removeprefix("warpboard: ")
            self._worker_note = last_line or self._worker_note
            if environment.state == "done":
                del self._parts["environment"]
                self._start_worker()
            elif environment.state == "failed":
                self._worker_note = f"failed: {self._worker_note}"
        self._write()

    @property
    def pages_url(self) -> str:
        """Return where the pages are, as this host reaches them."""
        return f"{self.url}{base_path()}"

    @property
    def worker_note(self) -> str:
        """Return what the worker, or the making of its environment, is at; `failed: ...` if so."""
        return self._worker_note

    @property
    def is_worker_running(self) -> bool:
        """Say whether the worker's process is there."""
        worker = self._parts.get("worker")
        return worker is not None and worker.state == "running"

    def stop(self) -> None:
        """End every process and give the data directory free."""
        order = ("environment", "demo", "worker", "ingest", "dashboard")
        stop_all([self._parts[name] for name in order if name in self._parts])
        if "worker" in self._parts:
            self._give_up_worker_runs()
        self._data.stack_path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()

    def _give_up_worker_runs(self) -> None:
        """Mark the runs of the worker that just ended, without waiting for its silence."""
        from db.connection import opened
        from db.handover import interrupt_stale

        try:
            with opened(self._data.db_path) as db:
                for path in self._data.root.glob("worker-*.id"):
                    interrupt_stale(db, worker_id=path.read_text().strip())
        except (AppError, OSError, sqlite3.Error) as exc:  # the disk is full: the dashboard does it
            self._tell(f"the worker's runs are not given up yet: {exc}")

    def _start_worker_or_environment(self) -> None:
        if os.environ.get("WARPBOARD_PYTHON"):
            self._start_worker()
            return
        self._worker_note = "making the worker's environment"
        self._tell("preparing the worker in the background")
        log = self._data.logs / "environment.log"
        log.unlink(missing_ok=True)
        self._add("environment", module_command("app.environments", "worker"), once=True)

    def _start_worker(self) -> None:
        python = made_worker_python()
        if python is None:
            self._worker_note = "failed: no Python with torch; see logs/environment.log"
            return
        self._worker_note = "running"
        command = module_command("worker", "--dashboard", self.url, python=str(python))
        command += ["--data", str(self._data.root), "--gpu", self._options.worker_gpu]
        self._add("worker", command)
        self._tell("worker started")

    def _dashboard_command(self) -> list[str]:
        options = self._options
        command = module_command("app.serve", "--host", options.host)
        command += ["--port", str(options.port)]
        if not options.has_pages:
            command.append("--no-pages")
        if options.workers_host:
            command += ["--workers-host", options.workers_host]
            command += ["--workers-port", str(options.workers_port)]
        return command

    def _add(self, name: str, command: list[str], *, once: bool = False) -> None:
        env = {"WARPBOARD_DATA": str(self._data.root)}
        log = self._data.logs / f"{name}.log"
        # Jobs and pip see of the shell what the worker, and the user's settings, let pass.
        keeps_shell = name in ("worker", "environment")
        part = Part(name, command, log, env=env, once=once, keeps_shell=keeps_shell)
        part.start()
        self._parts[name] = part

    def _wait_for_health(self) -> None:
        path = "/_stcore/health" if self._options.has_pages else "/api/v1/health"
        part = self._parts["dashboard"]
        deadline_s = time.monotonic() + HEALTH_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if _answers(self.url + path):
                return
            part.poll()
            if part.num_failures >= MAX_DASHBOARD_FAILURES:
                break
            time.sleep(0.1)
        line = part.last_line()
        self.stop()
        raise AppError(f"the dashboard does not start: {line}; see {part.log_path}")

    def _is_empty(self) -> bool:
        from db.connection import opened
        from db.runs import count_runs

        with opened(self._data.db_path) as db:
            return count_runs(db) == 0

    def _write(self) -> None:
        """Write stack.json when something changed."""
        parts = {
            p.name: {"state": p.state, "pid": p.pid, "num_failures": p.num_failures}
            for p in self._parts.values()
        }
        state: dict[str, Any] = {"pid": os.getpid(), "url": self.url, "parts": parts}
        state |= {"worker": self._worker_note, "who": self._who}
        if self._options.workers_host:
            state["workers"] = f"{self._options.workers_host}:{self._options.workers_port}"
        text = json.dumps(state)
        if text == self._written:
            return
        partial = self._data.stack_path.with_suffix(".new")
        try:
            partial.write_text(text)
            partial.replace(self._data.stack_path)
        except OSError:  # the disk is full: tried again with the next step
            return
        self._written = text


def _own_address(host: str) -> str:
    """Return the address under which this host itself reaches what listens on `host`."""
    if host in WILDCARDS or host in LOOPBACK:
        return "[::1]" if host == "::1" else "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def running_stack(data: DataDir) -> dict[str, Any] | None:
    """Return `stack.json` of a stack that serves this data directory now, else None."""
    if not (data.root / "stack.lock").exists():
        return None
    try:
        _locked(data).close()
    except UserError:
        try:
            return dict(json.loads(data.stack_path.read_text()))
        except (OSError, ValueError):
            return {}
    except OSError:  # not writable: no process of this host serves it
        return None
    return None


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_port(host: str, port: int) -> None:
    """Raise UserError when the port cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as exc:
            why = getattr(exc, "strerror", None) or str(exc)
            raise UserError(
                f"port {port} on {host} cannot be used ({why}); choose another with --port"
            ) from exc


def _locked(data: DataDir) -> IO[str]:
    path: Path = data.root / "stack.lock"
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        file.close()
        raise UserError(
            f"{data.root} is already served by another `warpboard up`; stop it, or name another"
            " data directory with --data"
        ) from exc
    return file


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
