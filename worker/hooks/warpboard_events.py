"""CUDA events around steps: recorded by one call of the driver, read when the GPU is past them.

PyTorch's own events look up the device and its context around each record, and query both events
before they tell the time between them. The driver's functions are called instead, on events of our
own; where there is no CUDA driver (ROCm), PyTorch's events do.

Standard library and the program's own torch only; Python 3.8 and newer.
"""

import ctypes
from collections import deque

from warpboard_records import UNKNOWN, fill

MAX_PENDING = 4096
MOST_AT_ONCE = 64
"""Events that are made together, and that are asked for by the last of them."""
NOT_READY = 600
"""CUDA_ERROR_NOT_READY"""


class Events:
    """The events of one process, of any device."""

    def __init__(self, torch, api):
        self.api = api
        self.pending = deque()
        """(place of the record, start event, end event or None, steps of the group that begins
        there; 0: none does), in the order of the records."""
        self.step_ms = 0.0
        "What a step took the GPU, of the quickest group of those that were read last."
        self.is_capturing = False
        "A CUDA graph is being captured: recording would enter it, reading would break it."
        self._torch = torch
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
            lambda device: torch.cuda.current_stream(device).cuda_stream
        )
        self._pools = {}
        self.device_of = {}
        self._last_read = {}
        self._groups = {}
        "Device -> (steps of the group that is being read, its time so far)"
        self._steps_ms = []

    def recorder(self, device):
        """Return what records an event in the device's current stream: the event, or None."""
        pool = self._pools.setdefault(device, [])
        record, raw_stream = self.api.record, self._raw_stream

        def record_event():
            if self.is_capturing:
                return None
            try:
                event = pool.pop() if pool else self._more(pool, device)
                if record(event, raw_stream(device)):
                    return self._record_elsewhere(event, device)
            except Exception:
                return None
            return event

        return record_event

    def _more(self, pool, device):
        """Return a new event, and put others into the pool: one step of many pays for it."""
        with self._torch.cuda.device(device):
            for _ in range(MOST_AT_ONCE):
                event = self.api.new()
                self.device_of[event] = device
                pool.append(event)
        return pool.pop()

    def _record_elsewhere(self, event, device):
        """Record an event where the program's current device is another one."""
        with self._torch.cuda.device(device):
            return None if self.api.record(event, self._raw_stream(device)) else event

    def read(self, limit=MAX_PENDING):
        """Read the times of events that the GPU has passed, at most `limit`; never waits."""
        while limit > 0 and self.pending and not self.is_capturing:
            count = self._num_passed(min(limit, len(self.pending), MOST_AT_ONCE))
            if not count:
                self._drop()
                break
            limit -= count
            if not self._read(count):
                break
        if self._steps_ms:
            self.step_ms = min(self._steps_ms)
            self._steps_ms.clear()

    def _num_passed(self, count):
        """Return how many of the oldest events are past, at most `count`, asking for few.

        On one stream what was recorded before a past event is past as well; on several, the times
        of one that is not are not there yet.
        """
        while count:
            _, start, end, _ = self.pending[count - 1]
            if self.api.is_past(start if end is None else end):
                break
            count //= 2
        return count

    def _read(self, count):
        """Read the oldest events; False at the first that is not past."""
        elapsed_ms, last, device_of = self.api.elapsed_ms, self._last_read, self.device_of
        for _ in range(count):
            place, start, end, size = self.pending[0]
            device = device_of[start]
            before = last.get(device)
            call_ms = UNKNOWN if end is None else elapsed_ms(start, end)
            distance_ms = 0.0 if before is None else elapsed_ms(before, start)
            if call_ms is None or distance_ms is None:
                return False
            self.pending.popleft()
            last[device] = start
            self._note_step(device, size, distance_ms)
            if end is not None:
                self._pools[device].append(end)
            if before is not None:
                self._pools[device].append(before)
            if place is not None:
                fill(place, call_ms, distance_ms)
        return True

    def _note_step(self, device, size, distance_ms):
        num_steps, took_ms = self._groups.get(device, (0, 0.0))
        took_ms += distance_ms
        if size and num_steps:
            self._steps_ms.append(took_ms / num_steps)
        self._groups[device] = (size, 0.0) if size else (num_steps, took_ms)

    def _drop(self):
        """Give up the oldest events where too many wait: the GPU, or a stream of it, stands."""
        while len(self.pending) > MAX_PENDING:
            self.pending.popleft()
            self._last_read.clear()

    def read_all(self):
        """Wait for the last events and read all; the program is over."""
        if self.pending and not self.is_capturing:
            _, start, end, _ = self.pending[-1]
            self.api.wait(start if end is None else end)
            self.read(2 * MAX_PENDING)


class DriverEvents:
    """CUDA's driver: an event is the number of its handle."""

    def __init__(self, library):
        # Called with the GIL released, as PyTorch does: a full queue of launches may block.
        driver = ctypes.CDLL(library)
        handle = ctypes.c_void_p
        self.record = driver.cuEventRecord
        self.record.argtypes = handle, handle
        self.wait = driver.cuEventSynchronize
        self.wait.argtypes = (handle,)
        self._create = driver.cuEventCreate
        self._create.argtypes = ctypes.POINTER(handle), ctypes.c_uint
        quick = ctypes.PyDLL(library)
        self._query = quick.cuEventQuery
        self._query.argtypes = (handle,)
        self._elapsed = quick.cuEventElapsedTime
        self._elapsed.argtypes = ctypes.POINTER(ctypes.c_float), handle, handle
        self._ms = ctypes.c_float()
        self._ms_pointer = ctypes.pointer(self._ms)

    def new(self):
        event = ctypes.c_void_p()
        if self._create(ctypes.byref(event), 0) or not event.value:
            raise OSError("cuEventCreate failed")
        return event.value

    def is_past(self, event):
        return self._query(event) == 0

    def elapsed_ms(self, first, second):
        """Return the time between two events; None where the GPU is not past them yet."""
        error = self._elapsed(self._ms_pointer, first, second)
        if error:
            return None if error == NOT_READY else UNKNOWN
        return self._ms.value


class TorchEvents:
    """PyTorch's events, where there is no CUDA driver to ask."""

    def __init__(self, torch):
        self._torch = torch
        self._streams = {}

    def new(self):
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()  # from now on it belongs to the current device
        return event

    def record(self, event, raw_stream):
        """Record an event; true where it could not be, as of the driver's function."""
        cuda = self._torch.cuda
        key = cuda.current_device(), raw_stream
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = cuda.current_stream()
        try:
            event.record(stream)
        except RuntimeError:
            return True
        return False

    def wait(self, event):
        event.synchronize()

    def is_past(self, event):
        return event.query()

    def elapsed_ms(self, first, second):
        try:
            return first.elapsed_time(second)
        except (RuntimeError, ValueError):
            return UNKNOWN if first.query() and second.query() else None


def make_events(torch):
    """Return the events of this process."""
    if torch.version.cuda:
        try:
            driver = DriverEvents("libcuda.so.1")
            driver.new()
            return Events(torch, driver)
        except (OSError, AttributeError):
            pass
    return Events(torch, TorchEvents(torch))
