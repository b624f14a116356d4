"""Join GPU operations to the host calls that launched them, and note what the join shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import GRAPH, KERNEL, TID_BITS, Codes, GpuOps
from analysis.readers.nsys_launch_index import Launches, LaunchIndex

_COLUMNS = ("start", "end", "device", "process", "correlation")


@dataclass(slots=True, kw_only=True)
class GpuWork:
    """All operations of a capture with their launches.

    The rows of `ops` have these columns more: gpu (int32, the device as the GPU table names it),
    owner (int32, ordinal into `processes`, MISSING if unknown), call (int32, kind of the launch
    call, MISSING where none was recorded), first and last (start and end of that call [ns], 0 where
    there is none).
    """

    ops: tuple[GpuOps, ...]
    processes: Ints
    "globalPid >> 24 of each ordinal, ascending."
    num_duplicate_ids: int
    "Calls that share process and correlation id with an earlier one."
    answered: Ints
    "By kind of call: how many launched an operation that was recorded."
    launches_kernels: NDArray[np.bool_]
    "By kind of call: whether any launched a kernel or a graph."
    kernels_of: Ints
    "By kind of call: how many kernels it launched."
    owners: set[int] = field(default_factory=set)
    "Processes that had GPU operations, as ordinals."
    owners_of: dict[int, set[int]] = field(default_factory=dict)
    "The same by device, of kernels and graphs alone."
    num_early: int = 0
    "Operations that start before their launch."
    num_late: int = 0
    "Operations that end after the time given to `join_work`."
    num_unlaunched: int = 0
    "Kernels without a recorded launch."
    unlaunched_ns: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.ops))

    @property
    def num_kernels(self) -> int:
        return len(self.ops[KERNEL])

    @property
    def num_graphs(self) -> int:
        return len(self.ops[GRAPH])

    def total_ns(self, kind: int) -> int:
        """Return the sum of the durations of one kind."""
        return int(self.ops[kind].sums.total.sum())


def join_work(
    ops: Sequence[GpuOps],
    calls: ApiCalls,
    range_threads: Ints,
    device_of: Mapping[tuple[int, int], int],
    late_ns: int,
) -> GpuWork:
    """Return all operations with their launches.

    `range_threads` are the globalTids of the ranges: their processes get ordinals too.
    `device_of` maps (process id, CUDA ordinal) to the GPU where processes number devices apart.
    Operations that end after `late_ns` are counted.
    """
    processes = _processes(ops, calls, range_threads)
    index = LaunchIndex(calls, processes)
    work = GpuWork(
        ops=tuple(ops),
        processes=processes,
        num_duplicate_ids=index.num_duplicate_ids,
        answered=index.answered,
        launches_kernels=np.zeros(len(calls.kinds), bool),
        kernels_of=np.zeros(len(calls.kinds), np.int64),
    )
    for part in work.ops:
        for chunk in range(part.rows.num_chunks):
            rows = part.rows.read(chunk, _COLUMNS)
            owner = _ordinals(part, rows["process"], processes)
            launch = index.find(owner, rows["correlation"])
            device = _physical(rows["device"], owner, processes, device_of)
            added: dict[str, NDArray[Any]] = {
                "first": launch.first_ns,
                "last": launch.last_ns,
                "call": launch.kind,
            }
            part.rows.add_columns(chunk, {"gpu": device, "owner": owner, **added})
            _note(work, part.kind, rows, launch, late_ns)
            _note_owners(work, part.kind, device, owner)
    return work


def _note(
    work: GpuWork,
    kind: int,
    rows: Mapping[str, NDArray[Any]],
    launch: Launches,
    late_ns: int,
) -> None:
    start, end = rows["start"], rows["end"]
    is_alone = launch.kind < 0
    work.num_early += int(((start < launch.first_ns) & ~is_alone).sum())
    work.num_late += int((end > late_ns).sum())
    if kind == KERNEL:
        work.num_unlaunched += int(is_alone.sum())
        work.unlaunched_ns += int((end - start)[is_alone].sum())
    if kind in (KERNEL, GRAPH):
        found = np.bincount(launch.kind + 1, minlength=len(work.launches_kernels) + 1)[1:]
        work.launches_kernels |= found > 0
        if kind == KERNEL:
            work.kernels_of += found


def _note_owners(work: GpuWork, kind: int, device: Codes, owner: Codes) -> None:
    work.owners |= set(np.flatnonzero(np.bincount(owner + 1)[1:]).tolist())
    if kind not in (KERNEL, GRAPH):
        return
    for gpu in _distinct(device):
        here = owner if (device == gpu).all() else owner[device == gpu]
        known = np.flatnonzero(np.bincount(here + 1)[1:])
        work.owners_of.setdefault(gpu, set()).update(known.tolist())


def _distinct(values: Codes) -> list[int]:
    if (values == values[0]).all():
        return [int(values[0])]
    return np.unique(values).tolist()


def _processes(ops: Sequence[GpuOps], calls: ApiCalls, range_threads: Ints) -> Ints:
    found = [np.unique(t) >> TID_BITS for t in (calls.thread_of_kind, range_threads)]
    for part in ops:
        for chunk in range(part.rows.num_chunks):
            process = part.rows.read(chunk, ["process"])["process"]
            is_one = (process == process[0]).all()
            found.append(process[:1] if is_one else np.unique(process))
    every = np.unique(np.concatenate(found))
    return every[every != MISSING]


def _ordinals(part: GpuOps, process: Ints, processes: Ints) -> Codes:
    if len(processes) == 0:
        return np.full(len(process), MISSING, np.int32)
    if not part.has_process:
        # Exports without the column hold one process at a time; with several the owner is unknown.
        return np.full(len(process), 0 if len(processes) == 1 else MISSING, np.int32)
    ordinal = np.searchsorted(processes, process).astype(np.int32)
    ordinal[process == MISSING] = MISSING
    return ordinal


def _physical(
    device: Codes, owner: Codes, processes: Ints, device_of: Mapping[tuple[int, int], int]
) -> Codes:
    if not device_of:
        return device
    physical = device.copy()
    pids = processes & ((1 << TID_BITS) - 1)
    for (pid, ordinal), gpu in device_of.items():
        for index in np.flatnonzero(pids == pid):
            physical[(owner == index) & (device == ordinal)] = gpu
    return physical
