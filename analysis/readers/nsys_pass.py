"""Go once over the operations of a capture in order of time, and make what needs that order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analysis.readers.nsys_attribution import Attributor
from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_gaps import NO_TIME, DeviceTime, DeviceWindow
from analysis.readers.nsys_host import NOTHING, HostTime, host_time
from analysis.readers.nsys_launches import GpuWork
from analysis.readers.nsys_nesting import RangeTree
from analysis.readers.nsys_phase_sums import PhaseSums
from analysis.readers.nsys_spans import Spans
from analysis.readers.nsys_windows import Window, windows
from analysis.span_file import SpanFile


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    """What the pass gives."""

    devices: Mapping[int, DeviceTime]
    "Those that ran kernels or graphs."
    phase_sums: PhaseSums
    spans: pa.Table | SpanFile | None
    num_operations: int
    num_ambiguous: int
    by_device_time: bool


def pass_over(
    work: GpuWork,
    calls: ApiCalls,
    tree: RangeTree,
    names: Mapping[int, str],
    *,
    is_wait: NDArray[np.bool_],
    is_launch: NDArray[np.bool_],
    scratch: Path | None,
) -> InOrder:
    """Read all operations once; `is_wait` and `is_launch` are by kind of call."""
    devices = _devices(work, host_time(calls, is_wait, is_launch) if len(calls) else None)
    attributor = Attributor(work, calls, tree)
    sums = PhaseSums(tree)
    with Spans(work, tree, names, scratch) as spans:
        for window in windows(work):
            given = attributor.attribute(window)
            sums.add(window, given)
            spans.add(window, given.deepest())
            for device, part in _by_device(window, calls, devices):
                device.add(part)
    return InOrder(
        devices=devices,
        phase_sums=sums,
        spans=spans.result(),
        num_operations=len(work),
        num_ambiguous=attributor.num_ambiguous,
        by_device_time=attributor.by_device_time,
    )


def _devices(work: GpuWork, host: HostTime | None) -> dict[int, DeviceTime]:
    found = {}
    for device, owners in sorted(work.owners_of.items()):
        processes = work.processes[sorted(owners)]
        waits = NOTHING if host is None else host.waits_of(processes)
        found[device] = DeviceTime(host, waits)
    return found


def _by_device(
    window: Window, calls: ApiCalls, devices: Mapping[int, DeviceTime]
) -> Iterator[tuple[DeviceTime, DeviceWindow]]:
    runs, thread = window.runs, window.threads(calls)
    launch_ns = np.where(window.call >= 0, window.first_ns, NO_TIME)
    for number, device in devices.items():
        is_here = window.device == number
        mine, beside = np.flatnonzero(is_here & runs), np.flatnonzero(is_here & ~runs)
        yield (
            device,
            DeviceWindow(
                start_ns=window.start_ns[mine],
                end_ns=window.end_ns[mine],
                is_kernel=window.is_kernel[mine],
                launch_ns=launch_ns[mine],
                thread=thread[mine],
                copies=(window.start_ns[beside], window.end_ns[beside]),
            ),
        )
