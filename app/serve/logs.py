"""A log that cannot be flooded: repeated lines are counted, not written."""

import logging
import sys
import threading
import time
from collections import defaultdict

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
