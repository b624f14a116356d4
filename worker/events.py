"""Carry a running job's events to the dashboard in batches, and its wish to cancel back."""

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from worker.client import DashboardAway, DashboardClient, Refused

INTERVAL_S = 0.4
MAX_BATCH = 200
MAX_MESSAGE_CHARS = 4000
MAX_WAITING = 5000
"""Older log lines are dropped beyond this: log.txt has them all."""


class EventPump:
    """A thread that posts what is put into it, and asks about cancel even when nothing is."""

    def __init__(self, client: DashboardClient, run_id: str, attempt: int) -> None:
        self._client = client
        self._run_id = run_id
        self._attempt = attempt
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=MAX_WAITING)
        self._progress: Mapping[str, Any] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, event: Mapping[str, Any]) -> None:
        """Take one event; never waits for the network."""
        with self._lock:
            if event["kind"] == "progress":
                self._progress = event["progress"]
            else:
                message = str(event["message"])[:MAX_MESSAGE_CHARS]
                self._waiting.append({**event, "message": message})

    def is_cancelled(self) -> bool:
        return self._cancel.is_set()

    def _loop(self) -> None:
        failures = 0
        while not self._stop.wait(min(INTERVAL_S * 2**failures, 10.0)):
            failures = 0 if self._flush() else min(failures + 1, 6)

    def _flush(self) -> bool:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            progress = self._progress
        try:
            if self._client.post_events(self._run_id, self._attempt, batch, progress):
                self._cancel.set()
            return True
        except DashboardAway:
            with self._lock:
                self._waiting.extendleft(reversed(batch))
            return False
        except Refused as refusal:
            # The run is no longer ours: deleted, given up, or taken by another attempt.
            if refusal.status in (404, 409, 410):
                self._cancel.set()
            return True

    def stop(self, limit_s: float = 5.0) -> None:
        """Post what is left, as far as the dashboard answers, and end the thread."""
        self._stop.set()
        self._thread.join(timeout=limit_s)
        deadline = time.monotonic() + limit_s
        while self._waiting and time.monotonic() < deadline:
            if not self._flush():
                return
