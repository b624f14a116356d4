"""Busy and idle time of each device, and the cause of the idle time.

Idle time lies between the first and the last kernel of a device. Inside each gap, in this order:
time in which a copy ran is `transfer`; time before the next kernel's launch in which the host sat
in a waiting call is `synchronisation`; stretches of over HOST_STALL_NS before that launch in which
its thread made no CUDA call, or sat in one that neither launches nor waits (an allocation, a module
load), are `host`; the rest is `launch` when the launch was issued in the gap, or `host` too where
that launch took over SLOW_LAUNCH_NS: it loads the kernel's module. A launch shortly before the gap
came too late as well: until a kernel usually starts after its launch, the gap is `launch`. A kernel
that was queued before and still did not start (a dependency between streams), one that starts over
MAX_START_NS after its launch returned (it waits for an event, for another GPU), or one without a
recorded launch, leaves the rest `unknown`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.intervals import merge, overlap_ns
from analysis.tables import GAP_COLUMNS, empty
from analysis.trace.attribution import launching_thread
from analysis.trace.calls import of_launch
from analysis.trace.host_time import HOST_STALL_NS, NOTHING, HostTime, Spans, united
from analysis.trace.model import Int32s, Int64s, OpKind, Trace

EVIDENCE = {
    "transfer": "copies or memory sets ran on the device while no kernel did",
    "synchronisation": "the host sat in a waiting call before it launched the next kernel",
    "host": "for over 100 us before the next launch its thread made no CUDA call, or sat in an "
    "allocation or module load, or in a launch of over 1 ms, which loads one",
    "launch": "the next kernel's launch was issued while the device was idle, or so shortly before "
    "that the kernel could not start earlier",
    "unknown": "the next kernel was launched before the gap, or began over 1 ms after its launch, "
    "or its launch was not recorded",
}
SLOW_LAUNCH_NS = 1_000_000
"""No launch takes so long on an idle device but the first of its kernel or its library."""
MAX_START_NS = 1_000_000
"""No kernel starts so long after its launch on an idle device, unless it waits for something."""
NO_TIME = np.iinfo(np.int64).min
WINDOW_OPS = 1 << 17
"""Operations that are split at a time: temporary arrays stay in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What one GPU did between its first and its last kernel (or opaque graph launch)."""

    device: int
    num_kernels: int
    num_ops: int
    "Kernels and opaque graph launches."
    kernel_time_ns: int
    busy_ns: int
    "Union of the intervals of kernels and opaque graph launches."
    span_ns: int
    idle: dict[str, tuple[int, int]]
    "Number of gaps and time [ns] by cause; the times add up to span - busy."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaps:
    """Idle times of a device, with the launch of the kernel that ended each."""

    start_ns: Int64s
    end_ns: Int64s
    launch_ns: Int64s
    "NO_TIME where no launch was recorded."
    launched_ns: Int64s
    "End of that launch."
    thread: Int32s
    latency_ns: int
    "From the start of a launch to that of its kernel, usually; 0 where unknown."


def start_latency_ns(trace: Trace) -> int:
    """Return how long after the start of its launch an operation usually starts on an idle GPU.

    The median over launches on an idle GPU, else the least of all; 0 where none were recorded.
    """
    ops = trace.gpu_ops
    started = ops.start_ns - of_launch(trace.host_calls.start_ns, ops.launch, NO_TIME // 2)
    could = (ops.launch >= 0) & (started >= 0) & (started < MAX_START_NS)
    if not could.any():
        return 0
    is_idle = np.zeros(len(ops), bool)
    for device in np.unique(ops.device).tolist():
        mine = np.flatnonzero(ops.device == device)
        reached = np.maximum.accumulate(ops.end_ns[mine])[:-1]
        is_idle[mine[1:]] = (ops.start_ns - started)[mine[1:]] >= reached
    late = started[could & is_idle]
    return int(np.median(late)) if len(late) else int(started[could].min())


def device_use(trace: Trace, host: HostTime | None) -> tuple[DeviceUse, ...]:
    """Return the use of each device that ran kernels or graphs, in order of device."""
    ops = trace.gpu_ops
    runs = ops.runs_kernels
    thread, latency_ns = launching_thread(trace), start_latency_ns(trace)
    devices = np.unique(ops.device[runs]).tolist()
    uses = []
    for device in devices:
        is_here = np.True_ if len(devices) == 1 else ops.device == device
        mine = np.flatnonzero(runs & is_here)
        beside = np.flatnonzero(~runs & (ops.device == device))
        copies = merge(ops.start_ns[beside], ops.end_ns[beside])
        uses.append(_device(trace, device, mine, thread, copies, host, latency_ns))
    return tuple(uses)


def gap_table(devices: Sequence[DeviceUse]) -> pd.DataFrame:
    """Return idle time by cause (GAP_COLUMNS); it sums to span - busy over all devices."""
    rows = []
    for cause, evidence in EVIDENCE.items():
        count = sum(device.idle[cause][0] for device in devices)
        total = sum(device.idle[cause][1] for device in devices)
        if total > 0:
            rows.append((cause, count, total, f"{count} gaps: {evidence}"))
    if not rows:
        return empty(GAP_COLUMNS)
    frame = pd.DataFrame(rows, columns=list(GAP_COLUMNS))
    return frame.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def _device(
    trace: Trace,
    device: int,
    mine: NDArray[np.intp],
    thread: Int32s,
    copies: Spans,
    host: HostTime | None,
    latency_ns: int,
) -> DeviceUse:
    ops = trace.gpu_ops
    waits = NOTHING if host is None else host.waits_of(_owners(trace, mine))
    busy_ns, reached = 0, int(ops.start_ns[mine[0]])
    idle = dict.fromkeys(EVIDENCE, (0, 0))
    kernels = mine[ops.kind[mine] == OpKind.KERNEL]
    for first in range(0, len(mine), WINDOW_OPS):
        rows = mine[first : first + WINDOW_OPS]
        start_ns, end_ns = ops.start_ns[rows], ops.end_ns[rows]
        before = np.maximum.accumulate(np.append(reached, end_ns))
        reached = int(before[-1])
        before = before[:-1]
        busy_ns += int(np.maximum(end_ns - np.maximum(start_ns, before), 0).sum())
        at = np.flatnonzero(start_ns > before)
        if len(at):
            gaps = _Gaps(
                start_ns=before[at],
                end_ns=start_ns[at],
                launch_ns=of_launch(trace.host_calls.start_ns, ops.launch[rows[at]], NO_TIME),
                launched_ns=of_launch(trace.host_calls.end_ns, ops.launch[rows[at]], NO_TIME),
                thread=thread[rows[at]],
                latency_ns=latency_ns,
            )
            for cause, spent in _split(gaps, copies, waits, host).items():
                count, total = idle[cause]
                idle[cause] = (count + int((spent > 0).sum()), total + int(spent.sum()))
    return DeviceUse(
        device=device,
        num_kernels=len(kernels),
        num_ops=len(mine),
        kernel_time_ns=int(ops.end_ns[kernels].sum() - ops.start_ns[kernels].sum()),
        busy_ns=busy_ns,
        span_ns=reached - int(ops.start_ns[mine[0]]),
        idle=idle,
    )


def gaps_within(trace: Trace, host: HostTime | None, device: int, windows: Spans) -> dict[str, int]:
    """Return the idle time of a device by cause [ns] inside disjoint windows in order.

    A window may last beyond the last operation: there the next launch is missing, as if it came at
    the window's end.
    """
    ops = trace.gpu_ops
    is_here = ops.device == device
    runs = ops.runs_kernels
    mine, beside = np.flatnonzero(runs & is_here), np.flatnonzero(~runs & is_here)
    if not len(mine):
        return {}
    before, after, next_op = idle_times(trace, mine, windows)
    row, low, high = clipped(before, after, windows)
    waits = NOTHING if host is None else host.waits_of(_owners(trace, mine))
    copies = merge(ops.start_ns[beside], ops.end_ns[beside])
    thread, latency_ns = launching_thread(trace), start_latency_ns(trace)
    idle: Counter[str] = Counter()
    for first in range(0, len(row), WINDOW_OPS):
        part = slice(first, first + WINDOW_OPS)
        opened, closed = low[part], high[part]
        op, is_last = next_op[row[part]], row[part] == len(mine)
        launch_ns = of_launch(trace.host_calls.start_ns, ops.launch[op], NO_TIME)
        launched_ns = of_launch(trace.host_calls.end_ns, ops.launch[op], NO_TIME)
        is_stall = closed - opened >= HOST_STALL_NS
        gaps = _Gaps(
            start_ns=opened,
            end_ns=closed,
            launch_ns=np.where(is_last, closed, launch_ns),
            launched_ns=np.where(is_last, closed + is_stall * SLOW_LAUNCH_NS, launched_ns),
            thread=thread[op],
            latency_ns=latency_ns,
        )
        for cause, spent in _split(gaps, copies, waits, host).items():
            idle[cause] += int(spent.sum())
    return dict(idle)


def idle_times(
    trace: Trace, mine: NDArray[np.intp], windows: Spans
) -> tuple[Int64s, Int64s, NDArray[np.intp]]:
    """Return start and end of the times between some operations, and the operation after each.

    The first time is from the windows' start to the first operation; the last one, to the windows'
    end, has the last operation in place of a next one. Without operations there is none.
    """
    if not len(mine):
        return np.empty(0, np.int64), np.empty(0, np.int64), mine
    start, reached = trace.gpu_ops.start_ns[mine], np.maximum.accumulate(trace.gpu_ops.end_ns[mine])
    first, last = windows[0].min(initial=start[0]), windows[1].max(initial=reached[-1])
    return np.append(first, reached), np.append(start, last), np.append(mine, mine[-1])


def clipped(start_ns: Int64s, end_ns: Int64s, windows: Spans) -> tuple[Int64s, Int64s, Int64s]:
    """Cut intervals at disjoint windows in order: the row of each piece, its start and its end.

    The intervals are disjoint and in order as well; what is empty is left out.
    """
    first = np.searchsorted(windows[1], start_ns, side="right")
    count = np.maximum(np.searchsorted(windows[0], end_ns) - first, 0)
    row = np.repeat(np.arange(len(start_ns)), count)
    window = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    low = np.maximum(start_ns[row], windows[0][window])
    high = np.minimum(end_ns[row], windows[1][window])
    kept = high > low
    return row[kept], low[kept], high[kept]


def _owners(trace: Trace, mine: NDArray[np.intp]) -> list[int]:
    """Return the processes whose kernels these are."""
    process = trace.gpu_ops.process[mine]
    return np.flatnonzero(np.bincount(process + 1)[1:]).tolist()


def _split(gaps: _Gaps, copies: Spans, waits: Spans, host: HostTime | None) -> dict[str, Int64s]:
    opened, closed = gaps.start_ns, gaps.end_ns
    copies, waits = _within(copies, gaps), _within(waits, gaps)
    transfer = overlap_ns(*copies, opened, closed)
    rest = closed - opened - transfer
    if host is None:
        return {"transfer": transfer, "unknown": rest}
    before = np.clip(gaps.launch_ns, opened, closed)
    copied = overlap_ns(*copies, opened, before)
    waiting = united([copies, waits])
    waited = overlap_ns(*waiting, opened, before)
    away = waited.copy()
    for thread in np.unique(gaps.thread).tolist():
        if thread not in host.stalls:
            continue
        stalls = united([waiting, _within(host.stalls[thread], gaps)])
        own = np.flatnonzero(gaps.thread == thread)
        away[own] = overlap_ns(*stalls, opened[own], before[own])
    rest = rest - (away - copied)
    is_late = gaps.launch_ns >= opened
    launched = np.clip(gaps.launched_ns, opened, closed)
    is_held = is_late & (closed - launched > MAX_START_NS)
    held = closed - launched - overlap_ns(*copies, launched, closed)
    held = np.where(is_held, np.minimum(rest, held), 0)
    rest = rest - held
    could_start = np.maximum(gaps.launch_ns, opened - gaps.latency_ns) + gaps.latency_ns
    starting = np.where(is_late, 0, np.minimum(could_start - opened, rest))
    is_slow = is_late & (gaps.launched_ns - gaps.launch_ns >= SLOW_LAUNCH_NS)
    return {
        "transfer": transfer,
        "synchronisation": waited - copied,
        "host": away - waited + np.where(is_slow, rest, 0),
        "launch": np.where(is_late, np.where(is_slow, 0, rest), starting),
        "unknown": np.where(is_late, held, rest - starting),
    }


def _within(spans: Spans, gaps: _Gaps) -> Spans:
    """Return the intervals that touch the time from the first gap to the last."""
    starts, ends = spans
    if not len(gaps.start_ns):
        return NOTHING
    first = np.searchsorted(ends, gaps.start_ns[0], side="left")
    last = np.searchsorted(starts, gaps.end_ns[-1], side="right")
    return starts[first:last], ends[first:last]
