"""Join GPU operations to the host calls that launched them, by process and correlation id.

Correlation ids are counted per process: two ranks in one file share hundreds of them, so a join by
the id alone invents launches (design/cases.md 18).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, TID_BITS, ApiCalls, Codes, GpuOps


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
    process = [_ordinals(part, processes) for part in ops]
    keys, owners, num_duplicate = _sorted_keys(calls, processes)
    launch = [
        _find(keys, owners, ordinal, part.correlation)
        for part, ordinal in zip(ops, process, strict=True)
    ]
    del keys, owners
    start_ns = np.concatenate([part.start_ns for part in ops])
    end_ns = np.concatenate([part.end_ns for part in ops])
    return GpuWork(
        ops=_as_views(ops, start_ns, end_ns),
        kind=np.concatenate([np.full(len(part), part.kind, np.int8) for part in ops]),
        start_ns=start_ns,
        end_ns=end_ns,
        device=_devices(ops, processes, process, device_of),
        process=np.concatenate(process),
        launch=np.concatenate(launch),
        processes=processes,
        num_duplicate_ids=num_duplicate,
    )


def _as_views(ops: Sequence[GpuOps], start_ns: Ints, end_ns: Ints) -> tuple[GpuOps, ...]:
    """Return the parts with their times as views of the whole, and without what the join used."""
    nothing = np.empty(0, np.int64)
    parts, first = [], 0
    for part in ops:
        where = slice(first, first + len(part))
        first = where.stop
        parts.append(
            replace(
                part,
                start_ns=start_ns[where],
                end_ns=end_ns[where],
                process=nothing,
                correlation=nothing.astype(np.uint32),
            )
        )
    return tuple(parts)


def without_recorded_graphs(ops: Sequence[GpuOps]) -> list[GpuOps]:
    """Leave out graph launches whose kernels were recorded one by one: their time counts once."""
    kernels = next(part for part in ops if part.kind == KERNEL)
    graphs = next(part for part in ops if part.kind == GRAPH)
    if not len(graphs) or not len(kernels):
        return list(ops)
    launched = _launch_key(kernels)
    is_recorded = np.isin(_launch_key(graphs), launched) & (graphs.correlation > 0)
    if not is_recorded.any():
        return list(ops)
    names = ("start_ns", "end_ns", "device", "stream", "process", "correlation", "detail")
    left = replace(graphs, **{n: getattr(graphs, n)[~is_recorded] for n in names})
    return [left if part is graphs else part for part in ops]


def _launch_key(part: GpuOps) -> Ints:
    # globalPid >> 24 needs more than 32 bits in theory: the multiplication may wrap, alike for all.
    return part.process * np.int64(1 << 32) + part.correlation


def _processes(ops: Sequence[GpuOps], calls: ApiCalls, range_threads: Ints) -> Ints:
    found = [np.unique(part.process) for part in ops]
    found += [np.unique(t) >> TID_BITS for t in (calls.thread_of_kind, range_threads)]
    every = np.unique(np.concatenate(found))
    return every[every != MISSING]


def _ordinals(part: GpuOps, processes: Ints) -> Codes:
    if len(processes) == 0:
        return np.full(len(part), MISSING, np.int32)
    if not part.has_process:
        # Exports without the column hold one process at a time; with several the owner is unknown.
        return np.full(len(part), 0 if len(processes) == 1 else MISSING, np.int32)
    ordinal = np.searchsorted(processes, part.process).astype(np.int32)
    ordinal[part.process == MISSING] = MISSING
    return ordinal


def _key(process: NDArray[np.integer], correlation: NDArray[np.uint32]) -> Ints:
    keys = process.astype(np.int64)
    keys <<= 32
    keys |= correlation
    return keys


def _sorted_keys(calls: ApiCalls, processes: Ints) -> tuple[Ints, NDArray[np.int32], int]:
    """Return the sorted (process, id) keys, the call of each, and how many repeat another."""
    process_of_kind = np.searchsorted(processes, calls.thread_of_kind >> TID_BITS)
    usable = np.flatnonzero(calls.correlation).astype(np.int32)
    keys = _key(process_of_kind[calls.kind[usable]], calls.correlation[usable])
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        keys, usable = keys[order], usable[order]
    return keys, usable, int((keys[1:] == keys[:-1]).sum())


def _find(
    keys: Ints,
    owners: NDArray[np.int32],
    process: Codes,
    correlation: NDArray[np.uint32],
) -> Codes:
    if len(keys) == 0:
        return np.full(len(process), MISSING, np.int32)
    wanted = _key(process, correlation)
    at = np.searchsorted(keys, wanted)
    np.minimum(at, len(keys) - 1, out=at)
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
