"""Take turns on one GPU: programs start up side by side and measure one after another.

Starting Python, importing PyTorch and tracing a model cost more than most measurements. With
`WARPBOARD_GPU_LOCK=FILE` several jobs of one host may run at the same time: each waits for an
exclusive lock on FILE before it touches the GPU, and holds it to its end. Jobs that inductor
compiles without trials on the GPU take their turn after compiling; the rest before building.
"""

import fcntl
import os
from typing import IO

LOCK_VARIABLE = "WARPBOARD_GPU_LOCK"
COMPILES_WITHOUT_TRIALS = ("default", "reduce-overhead")


def is_shared() -> bool:
    """Whether other programs may be measuring on this GPU."""
    return bool(os.environ.get(LOCK_VARIABLE))


class Turn:
    """The right to use the GPU alone; without the variable, always granted."""

    def __init__(self) -> None:
        self.lock_path = os.environ.get(LOCK_VARIABLE, "")
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Wait for the lock; the end of the process gives it back, however it ends."""
        if self.lock_path and self._file is None:
            self._file = open(self.lock_path, "a")  # noqa: SIM115
            fcntl.flock(self._file, fcntl.LOCK_EX)
