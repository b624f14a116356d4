"""Join GPU operations to the host calls that launched them, by process and correlation id.

Correlation ids are counted per process: two ranks in one file share hundreds of them, so a join by
the id alone invents launches (design/cases.md 18).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import KERNEL, TID_BITS, ApiCalls, Codes, GpuOps


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """All operations of a capture in one set of arrays, kinds one after the other."""

    ops: tuple[GpuOps, ...]
    kind: NDArray[np.int8]
    start_ns: Ints
    end_ns: Ints
    device: Codes
    process: Codes
    "Ordinal into `processes`, MISSING if unknown."
    launch: Codes
    "Index into the API calls, MISSING where no call of that id was recorded."
    processes: Ints
    "globalPid >> 24 of each ordinal, ascending."
    num_duplicate_ids: int
    "Calls that share process and correlation id with an earlier one."

    def __len__(self) -> int:
        return len(self.kind)

    def of(self, kind: int) -> slice:
        """Return where the operations of one kind lie."""
        first = sum(len(ops) for ops in self.ops if ops.kind < kind)
        return slice(first, first + sum(len(ops) for ops in self.ops if ops.kind == kind))

    @property
    def num_kernels(self) -> int:
        kernels = self.of(KERNEL)
        return kernels.stop - kernels.start


def join_work(
    ops: Sequence[GpuOps],
    calls: ApiCalls,
    range_threads: Ints,
    device_of: Mapping[tuple[int, int], int],
) -> GpuWork:
    """Return all operations with their launches.

    `range_threads` are the globalTids of the ranges: their processes get ordinals too.
    `device_of` maps (process id, CUDA ordinal) to the GPU where processes number devices apart.
    """
    processes = _processes(ops, calls, range_threads)
    call_process = np.searchsorted(processes, calls.thread >> TID_BITS)
    keys, owners, num_duplicate = _sorted_keys(call_process, calls.correlation)
    process, launch = [], []
    for part in ops:
        ordinal = _ordinals(part, processes)
        process.append(ordinal.astype(np.int32))
        launch.append(_find(keys, owners, ordinal, part.correlation))
    return GpuWork(
        ops=tuple(ops),
        kind=np.concatenate([np.full(len(part), part.kind, np.int8) for part in ops]),
        start_ns=np.concatenate([part.start_ns for part in ops]),
        end_ns=np.concatenate([part.end_ns for part in ops]),
        device=_devices(ops, processes, process, device_of),
        process=np.concatenate(process),
        launch=np.concatenate(launch),
        processes=processes,
        num_duplicate_ids=num_duplicate,
    )


def _processes(ops: Sequence[GpuOps], calls: ApiCalls, range_threads: Ints) -> Ints:
    found = [np.unique(part.process) for part in ops]
    found += [np.unique(thread) >> TID_BITS for thread in (calls.thread, range_threads)]
    every = np.unique(np.concatenate(found))
    return every[every != MISSING]


def _ordinals(part: GpuOps, processes: Ints) -> Ints:
    if len(processes) == 0:
        return np.full(len(part), MISSING, np.int64)
    if not part.has_process:
        # Exports without the column hold one process at a time; with several the owner is unknown.
        return np.full(len(part), 0 if len(processes) == 1 else MISSING, np.int64)
    ordinal = np.searchsorted(processes, part.process)
    return np.where(part.process == MISSING, MISSING, ordinal)


def _key(process: Ints, correlation: Ints) -> Ints:
    return (process.astype(np.int64) << 32) | correlation.astype(np.int64)


def _sorted_keys(process: Ints, correlation: Ints) -> tuple[Ints, NDArray[np.intp], int]:
    usable = np.flatnonzero(correlation)
    keys = _key(process[usable], correlation[usable])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    return keys, usable[order], int((keys[1:] == keys[:-1]).sum())


def _find(keys: Ints, owners: NDArray[np.intp], process: Ints, correlation: Ints) -> Codes:
    if len(keys) == 0:
        return np.full(len(process), MISSING, np.int32)
    wanted = _key(process, correlation)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    is_known = (keys[at] == wanted) & (process >= 0)
    is_known &= correlation > 0
    return np.where(is_known, owners[at], MISSING).astype(np.int32)


def _devices(
    ops: Sequence[GpuOps],
    processes: Ints,
    process: Sequence[Codes],
    device_of: Mapping[tuple[int, int], int],
) -> Codes:
    device = np.concatenate([part.device for part in ops])
    if not device_of:
        return device
    owner = np.concatenate(process)
    physical = device.copy()
    for (pid, ordinal), gpu in device_of.items():
        for index in np.flatnonzero((processes & ((1 << TID_BITS) - 1)) == pid):
            physical[(owner == index) & (device == ordinal)] = gpu
    return physical
