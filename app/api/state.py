"""What the routes share: the data directory, one database connection a thread, the senders."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio.to_thread
from starlette.requests import Request

from core.config import DataDir
from db import Database
from db.connection import connect

T = TypeVar("T")
HEARTBEAT_S = 3.0
EMBEDDED_SILENCE_S = 12.0
"A worker on this host that has been silent this long is gone: its process answers every 3 s."
REMOTE_SILENCE_S = 90.0
"A worker elsewhere may lose its network for a while; a late bundle is still taken."


@dataclass(slots=True)
class ApiState:
    """One API process. Times are monotonic: a jump of the wall clock interrupts nothing."""

    data_dir: DataDir
    send_job: Callable[[str, str, str | None], None]
    "`send_job(run_id, gpu_model, device)` puts a message on the queue of that GPU, or model."
    send_ingest: Callable[[str], None]
    started_s: float = field(default_factory=time.monotonic)
    seen_s: dict[str, float] = field(default_factory=dict)
    "Worker id -> when it was last heard of."
    asking: Counter[str] = field(default_factory=Counter)
    "Workers whose heartbeat is being answered: the database may keep them waiting."
    resent_s: dict[str, float] = field(default_factory=dict)
    "Queue -> when a message was last sent again."
    tokens: dict[str, str] = field(default_factory=dict)
    "SHA-256 of each accepted token -> label, as last read."
    tokens_read_s: float = float("-inf")
    used_s: dict[str, float] = field(default_factory=dict)
    "Label of a token -> when its last use was noted."
    disk: str = "ok"
    "`ok`, `low` or `full`, as last looked at."
    cleaned_s: float = float("-inf")
    ingest_waits: tuple[str, float] = ("", 0.0)
    "The run that is next to be read, and since when (or when ingest was last reminded)."
    _local: threading.local = field(default_factory=threading.local)

    def hear_again(self) -> None:
        """Begin anew to measure silence."""
        self.seen_s.clear()
        self.started_s = time.monotonic()

    def database(self) -> Database:
        """Return this thread's connection."""
        db = getattr(self._local, "db", None)
        if db is None:
            db = connect(self.data_dir.db_path)
            self._local.db = db
        return db


def state_of(request: Request) -> ApiState:
    """Return the process's state."""
    state: ApiState = request.scope["warpboard"]
    return state


async def in_thread(request: Request, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run `work(db, *args)` in a thread: SQLite would block the event loop."""
    state = state_of(request)

    def call() -> T:
        return work(state.database(), *args, **kwargs)

    return await anyio.to_thread.run_sync(call)
