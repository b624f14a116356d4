"""Whether the worker of a data folder lives: `python -m worker.health`, for containers.

The worker notes the time of the monotonic clock, which the containers of a host share and which no
change of the wall clock moves.
"""

import logging
import sys
import time

from core.config import DataDir, data_dir

LOG = logging.getLogger("warpboard.worker")
MAX_AGE_S = 60.0


def note_alive(data: DataDir) -> None:
    """Say that the worker is registered and its loop goes round."""
    try:
        (data.root / "worker.alive").write_text(f"{time.monotonic():.1f}\n")
    except OSError as error:  # a full disk must not end the worker
        LOG.warning("worker.alive: %s", error)


def age_s(data: DataDir) -> float | None:
    """Return how long ago the worker was last alive; None when that is not known."""
    try:
        age = time.monotonic() - float((data.root / "worker.alive").read_text())
    except (OSError, ValueError):
        return None
    return age if age >= 0 else None  # negative: written before the host's last start


def main() -> int:
    """Return 0 when a worker was alive within the last minute."""
    age = age_s(data_dir())
    print("no worker has been alive" if age is None else f"alive {age:.0f} s ago")
    return 0 if age is not None and age <= MAX_AGE_S else 1


if __name__ == "__main__":
    sys.exit(main())
