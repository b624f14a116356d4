"""What stands on standard input, for every pass to read from its beginning.

A program is run once a pass, and each of them reads what the program alone would read. A file is
opened again; what comes through a pipe is kept in a file first. A pipe without a writer, as
services have it, is not waited for; nor is a terminal, whose user cannot type once a pass.
"""

import os
import select
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.console import note

WAIT_S = 1.0
"""So long a pipe may be silent before its first byte."""
PAUSE_S = 30.0
"""And so long between two."""
_CHUNK = 1 << 20


@contextmanager
def given_input(fd: int = 0) -> Iterator[Path | None]:
    """Give a file with all of standard input; None where there is nothing to read."""
    kind = _kind(fd)
    if kind == "file" and os.lseek(fd, 0, os.SEEK_CUR) == 0 and Path("/proc/self/fd").is_dir():
        yield Path(f"/proc/self/fd/{fd}")
    elif kind == "file" or (kind == "pipe" and _is_ready(fd, WAIT_S)):
        with tempfile.NamedTemporaryFile(prefix="warpboard-input-") as kept:
            while kind == "file" or _is_ready(fd, PAUSE_S):
                part = os.read(fd, _CHUNK)
                if not part:
                    break
                kept.write(part)
            else:
                note(
                    "warpboard: standard input paused: the program gets only the "
                    "input received so far"
                )
            kept.flush()
            yield Path(kept.name)
    else:
        yield None


def _kind(fd: int) -> str:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:  # closed
        return ""
    if stat.S_ISREG(mode):
        return "file"
    return "pipe" if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else ""


def _is_ready(fd: int, wait_s: float) -> bool:
    return bool(select.select([fd], [], [], wait_s)[0])
