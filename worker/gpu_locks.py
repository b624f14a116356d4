"""Who has which GPU of this host: locks that several places share, released by any end.

Each place (a GPU's Celery worker) holds its own GPU while it works. A job over several GPUs is
claimed by one place, which gathers the others as they become free. Two such jobs cannot hold a part
each and wait for the rest: only one gathers at a time, and it holds none while it waits for its
turn. A place that becomes free cannot begin a single-GPU job over and over before the one that
gathers: to take a GPU is to queue for it first.
"""

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

POLL_S = 0.2
Stop = Callable[[], bool]


class HeldGpus:
    """The GPUs that this process holds on its host; `close` gives them back, and so does its end.

    `names` are all GPUs of the host that one job may use together; `own` is this place's.
    """

    def __init__(self, folder: Path, names: Sequence[str], own: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._names = list(names)
        self._own = own
        self._held: dict[str, IO[str]] = {}

    def take_own(self, should_stop: Stop) -> bool:
        """Wait for this place's GPU; False when told to stop meanwhile."""
        return self._take(self._own, should_stop)

    def take_several(self, num_gpus: int, should_stop: Stop) -> list[str] | None:
        """Give back what is held, then wait for `num_gpus`; return their names, own first.

        None when told to stop meanwhile: then none is held. ValueError if the host has fewer.
        """
        if num_gpus > len(self._names):
            raise ValueError(f"{num_gpus} GPUs of {len(self._names)}")
        others = [name for name in self._names if name != self._own]
        wanted = [self._own, *others[: num_gpus - 1]]
        self.close()
        turn = self._lock("gather", should_stop)
        if turn is None:
            return None
        try:
            for name in wanted:
                if not self._take(name, should_stop):
                    self.close()
                    return None
        finally:
            turn.close()
        return wanted

    def close(self) -> None:
        """Give all of them back."""
        for file in self._held.values():
            file.close()
        self._held.clear()

    def _take(self, name: str, should_stop: Stop) -> bool:
        if name in self._held:
            return True
        queue = self._lock(f"{name}.next", should_stop)
        if queue is None:
            return False
        try:
            file = self._lock(name, should_stop)
        finally:
            queue.close()
        if file is None:
            return False
        self._held[name] = file
        return True

    def _lock(self, name: str, should_stop: Stop) -> IO[str] | None:
        """Return an open file that is locked; None when told to stop before it was free."""
        file = open(self._folder / f"{name}.lock", "a")  # noqa: SIM115 held open: it is the lock
        os.set_inheritable(file.fileno(), False)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except BlockingIOError:
                if should_stop():
                    file.close()
                    return None
                time.sleep(POLL_S)
