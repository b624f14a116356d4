"""How a profiled program's steps are written down: the format of the file, and the file.

Standard library only; Python 3.8 and newer. `worker/profile/records` reads the file.
"""

import json
import mmap
import os
import struct
import time

RECORD = struct.Struct("<BBHIqqqff")
"""kind, flags, name, GPU state, size, host start [ns], host end [ns], GPU call and distance [ms].

The GPU state holds the number of the device above its low byte. The distance runs from the start
event of the record before on that device to this one's; NaN while neither is read, or not recorded.
"""
UNKNOWN = float("nan")
PACK_INTO = RECORD.pack_into
GPU_TIMES = struct.Struct("<ff")
GPU_TIMES_AT = RECORD.size - GPU_TIMES.size
CALL, OPTIMIZER, MARK, PHASE = 1, 2, 3, 4
GRAD, RAISED, LEFT_OUT, PAIRS = 1, 4, 8, 16
"""`LEFT_OUT`: no event was recorded, because the step is a short one inside a row of them. As many
as the GPU state holds above its low byte, began evenly after the host's start up to its end; with
`PAIRS` each ended with a step of the optimizer whose number stands in place of the size."""
HAS_EVENTS = 1
DEVICE_SHIFT = 8
CHUNK_BYTES = 65_536 * RECORD.size
"""A whole number of records and of pages of any size."""
MAX_RECORDS = 2_000_000
ENTERED = "entered"
"""A file that says that some Python of the program had the hooks at all."""


class Records:
    """The records of one process, in a file that is mapped into memory piece by piece.

    They outlive `os._exit` and any signal.
    """

    def __init__(self, folder):
        self.stem = os.path.join(folder, f"process-{os.getpid()}-{time.monotonic_ns()}")
        self._file = None
        self._map = None
        self._base, self._offset = 0, CHUNK_BYTES
        self.num_records = 0

    def add(self, *row):
        """Write a record; return where it is, for `fill`, or None where there was no room."""
        at = self._offset
        if at == CHUNK_BYTES:
            if not self._grow():
                return None
            at = 0
        PACK_INTO(self._map, at, *row)
        self._offset = at + RECORD.size
        self.num_records += 1
        return self._map, at

    def _grow(self):
        if self.num_records >= MAX_RECORDS:
            return False
        try:
            if self._file is None:
                self._file = os.open(self.stem + ".bin", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            else:
                self._base += CHUNK_BYTES
            _allocate(self._file, self._base)
            self._map = mmap.mmap(self._file, CHUNK_BYTES, offset=self._base)
        except OSError:
            self.num_records = MAX_RECORDS  # a full disk: the program goes on, unmeasured
            return False
        self._offset = 0
        return True

    def say(self, **facts):
        """Add one line of facts; seldom, and never inside a measured step."""
        line = json.dumps(facts) + "\n"
        fd = os.open(self.stem + ".jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def fill(place, call_ms, distance_ms):
    """Write the GPU's times into a record."""
    target, at = place
    GPU_TIMES.pack_into(target, at + GPU_TIMES_AT, call_ms, distance_ms)


def _allocate(fd, base):
    """Make room on the disk now: a hole in a mapped file would end the program on a full one."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, base, CHUNK_BYTES)
    else:
        os.ftruncate(fd, base + CHUNK_BYTES)
