"""Split a device's idle time, between its first and last kernel, by what it waited for.

Inside each gap, in this order: time in which a copy ran is `transfer`; time before the next
kernel's launch in which the host sat in a waiting call is `synchronisation`; stretches of over
HOST_STALL_NS before that launch in which its thread made no CUDA call, or sat in one that neither
launches nor waits (an allocation, a module load), are `host`; the rest is `launch` when the launch
was issued in the gap. A kernel that was queued before the gap and still did not start (start-up
latency, a dependency between streams), or one without a recorded launch, leaves the rest `unknown`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import merge, overlap_ns
from analysis.readers.nsys_columns import Ints
from analysis.readers.nsys_host import NOTHING, HostTime, Intervals, united
from analysis.tables import GAP_COLUMNS, empty

EVIDENCE = {
    "transfer": "copies or memory sets ran on the device while no kernel did",
    "synchronisation": "the host sat in a waiting call before it launched the next kernel",
    "host": "for over 100 us before the next launch its thread made no CUDA call, or sat in an "
    "allocation or module load",
    "launch": "the next kernel's launch was issued while the device was idle",
    "unknown": "the next kernel was launched before the gap, or its launch was not recorded",
}
NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWindow:
    """What one device ran in a window of time: kernels and graphs by start, and copies."""

    start_ns: Ints
    end_ns: Ints
    is_kernel: NDArray[np.bool_]
    launch_ns: Ints
    "Start of each launch call; NO_TIME where none was recorded."
    thread: Ints
    "Its globalTid; MISSING where none was recorded."
    copies: Intervals
    "Copies and memory sets, in order of start."


class DeviceTime:
    """Busy and idle time of one device, window after window."""

    def __init__(self, host: HostTime | None, waits: Intervals) -> None:
        """`host` is None where no API call was recorded; `waits` are those of its processes."""
        self._host = host
        self._waits = waits
        self._copies = NOTHING
        self._reached: int | None = None
        self._first_ns = 0
        self.num_kernels = 0
        self.kernel_time_ns = 0
        self.busy_ns = 0
        self.idle: dict[str, list[int]] = {cause: [0, 0] for cause in EVIDENCE}
        "Number of gaps and time [ns] by cause."

    @property
    def span_ns(self) -> int:
        return 0 if self._reached is None else self._reached - self._first_ns

    def add(self, window: DeviceWindow) -> None:
        """Take the next window; its operations start after those of the one before."""
        start, end = window.start_ns, window.end_ns
        self._copies = united([self._copies, merge(*window.copies)])
        if not len(start):
            return
        if self._reached is None:
            self._first_ns = self._reached = int(start[0])
        before = np.maximum.accumulate(np.append(self._reached, end))
        self.num_kernels += int(window.is_kernel.sum())
        self.kernel_time_ns += int((end - start)[window.is_kernel].sum())
        self.busy_ns += int(np.maximum(end - np.maximum(start, before[:-1]), 0).sum())
        gaps = np.flatnonzero(start > before[:-1])
        if len(gaps):
            self._add_gaps((before[gaps], start[gaps]), window.launch_ns[gaps], window.thread[gaps])
        self._reached = int(before[-1])
        still = self._copies[1] > self._reached
        self._copies = (self._copies[0][still], self._copies[1][still])

    def _add_gaps(self, gaps: Intervals, launch_ns: Ints, thread: Ints) -> None:
        for cause, spent in self._split(gaps, launch_ns, thread).items():
            self.idle[cause][0] += int((spent > 0).sum())
            self.idle[cause][1] += int(spent.sum())

    def _split(self, gaps: Intervals, launch_ns: Ints, thread: Ints) -> dict[str, Ints]:
        opened, closed = gaps
        copies = _within(self._copies, gaps)
        transfer = overlap_ns(*copies, opened, closed)
        rest = closed - opened - transfer
        if self._host is None:
            return {"transfer": transfer, "unknown": rest}
        before = np.clip(launch_ns, opened, closed)
        copied = overlap_ns(*copies, opened, before)
        waiting = united([copies, _within(self._waits, gaps)])
        waited = overlap_ns(*waiting, opened, before)
        away = waited.copy()
        for tid in np.unique(thread).tolist():
            if tid not in self._host.stalls:
                continue
            spells = united([waiting, _within(self._host.stalls[tid], gaps)])
            own = np.flatnonzero(thread == tid)
            away[own] = overlap_ns(*spells, opened[own], before[own])
        rest = rest - (away - copied)
        is_late = launch_ns >= opened
        return {
            "transfer": transfer,
            "synchronisation": waited - copied,
            "host": away - waited,
            "launch": np.where(is_late, rest, 0),
            "unknown": np.where(is_late, 0, rest),
        }


def _within(intervals: Intervals, gaps: Intervals) -> Intervals:
    """Return the disjoint sorted intervals that touch the time from the first gap to the last."""
    starts, ends = intervals
    first = np.searchsorted(ends, gaps[0][0], side="left")
    last = np.searchsorted(starts, gaps[1][-1], side="right")
    return starts[first:last], ends[first:last]


def gaps_frame(devices: Mapping[int, DeviceTime]) -> pd.DataFrame:
    """Return idle time by cause (GAP_COLUMNS); it sums to span - busy over all devices."""
    rows = []
    for cause, evidence in EVIDENCE.items():
        count = sum(device.idle[cause][0] for device in devices.values())
        total = sum(device.idle[cause][1] for device in devices.values())
        if total > 0:
            rows.append((cause, count, total, f"{count} gaps: {evidence}"))
    if not rows:
        return empty(GAP_COLUMNS)
    frame = pd.DataFrame(rows, columns=list(GAP_COLUMNS))
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
