"""Separate the ranks of a merged trace: which process launched an event, and on which GPU.

PyTorch writes one process into a trace, with correlation ids and device numbers of its own. Tools
merge the traces of several ranks into one file and tell them apart by a `rank` argument, by a text
around the process ids (`[TP01] 4711`), or by a number added to them; the GPU's process id, which
PyTorch makes the device's number, is changed alike.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.readers.torch_trace.columns import Column, EventColumns
from analysis.trace.calls import counted_anew, last_before
from analysis.trace.model import MISSING, Int32s, Int64s, Process, Thread

_RANK = re.compile(r"(?i)rank\W*(\d{1,9})(?!\d)")
_MAX_ID = (1 << 63) - 1
_DIGITS = re.compile(r"\d+")
_CLOCK_SLACK_NS = 1_000_000
_MIN_CAUSAL_FRAC = 0.9
"""Part of the operations that must follow their launch before a guess at it is believed."""

Marks = tuple[list[Hashable], list[Hashable]]
"""What tells the rank of each thread and of each stream; the same for all if nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the events of a trace come from."""

    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    thread: Int32s
    "Row of `threads` of each thread number of the columns."
    launch: Int64s
    "Host call (row of the columns) of each GPU operation; MISSING where none is sure."
    process: Int32s
    "Process of each GPU operation; MISSING where unknown."
    device: Int32s
    stream: Int32s
    "Of each GPU operation, unique over all ranks."
    recorded_devices: dict[int, int]
    "Device -> its number in its own rank."
    device_of: dict[tuple[int, int], int]
    "(process, number in its rank) -> device."
    num_colliding: int
    "Host calls that share a correlation id with another and cannot be distinguished from it."


def places_of(
    events: EventColumns,
    gpu: dict[str, Column],
    calls: dict[str, Column],
    ranges: dict[str, Column],
    rank: int | None,
) -> Places:
    """Return where each GPU operation and thread comes from; `rank` is the one in the header.

    Processes and threads are in order of their first event.
    """
    threads, streams = events.threads.values, events.streams.values
    pids = [pid for pid, _, _ in threads]
    marks = _written_marks(threads, streams)
    owners = list(zip(pids, marks[0], strict=True))
    first_ns = _first_times(len(threads), (calls, ranges))
    in_time = np.argsort(first_ns, kind="stable").tolist()
    row_of = {owner: row for row, owner in enumerate(dict.fromkeys(owners[i] for i in in_time))}
    process_of_thread = np.array([row_of[owner] for owner in owners], np.int32)
    call_process = process_of_thread[calls["thread"]].astype(np.int64)
    launch, num_colliding = _join(gpu, calls, call_process, marks)
    offsets = _offsets(streams)
    if num_colliding and len(set(offsets)) > 1:
        marks = _marks_in_order(calls, process_of_thread, gpu, offsets)
        launch, num_colliding = _better(gpu, calls, call_process, marks, (launch, num_colliding))
    process = np.append(call_process, MISSING)[launch]
    process = _fill(process, gpu["stream"], [(pid, rank) for _, _, pid, rank in streams])
    device, stream, numbers = _devices(streams, offsets, gpu["stream"], process)
    places = list(row_of)
    ranks = _ranks(places, rank, process, [offsets[i] for i in gpu["stream"].tolist()])
    keys = list(zip(process_of_thread.tolist(), [tid for _, tid, _ in threads], strict=True))
    rows = {key: row for row, key in enumerate(dict.fromkeys(keys[i] for i in in_time))}
    return Places(
        processes=tuple(
            Process(pid=_id(pid), name=events.process_names.get(pid), rank=ranks[row])
            for (pid, _), row in row_of.items()
        ),
        thread=np.array([rows[key] for key in keys], np.int32),
        threads=tuple(
            Thread(
                process=row,
                tid=_id(tid),
                name=events.thread_names.get((places[row][0], tid)),
            )
            for row, tid in rows
        ),
        launch=launch,
        process=process.astype(np.int32),
        device=device,
        stream=stream,
        recorded_devices={number: place[0] for place, number in numbers.items()},
        device_of={(owner, at): n for (at, owner, *_), n in numbers.items() if owner >= 0},
        num_colliding=num_colliding,
    )


def _first_times(num_threads: int, tables: tuple[dict[str, Column], ...]) -> Int64s:
    first_ns = np.full(num_threads, np.iinfo(np.int64).max)
    for table in tables:
        np.minimum.at(first_ns, table["thread"], table["start"])
    return first_ns


def _id(value: Hashable) -> int | str:
    return value if isinstance(value, int) and abs(value) <= _MAX_ID else str(value)


def _written_marks(
    threads: Sequence[tuple[Any, Any, Any]], streams: Sequence[tuple[Any, Any, Any, Any]]
) -> Marks:
    """Return the ranks that arguments or process ids name.

    They count where every GPU operation shares its mark with some host thread.
    """
    by_argument: Marks = [rank for _, _, rank in threads], [rank for *_, rank in streams]
    by_text: Marks = (
        [_text_mark(pid) for pid, _, _ in threads],
        [_text_mark(pid) for _, _, pid, _ in streams],
    )
    for of_threads, of_streams in (by_argument, by_text):
        ranks = set(of_threads)
        if len(ranks) > 1 and None not in ranks and set(of_streams) <= ranks:
            return of_threads, of_streams
    return [None] * len(threads), [None] * len(streams)


def _text_mark(pid: Hashable) -> str:
    """Return what a process id says of its rank: `[TP01] 7` -> `[TP01] `, `rank1/7` -> `rank1`."""
    if not isinstance(pid, str):
        return ""
    named = _RANK.search(pid)
    return f"rank{int(named[1])}" if named else pid.rstrip("0123456789")


def _offsets(streams: Sequence[tuple[Any, Any, Any, Any]]) -> list[int]:
    """Return the offset that was added to the GPU's process id of each stream."""
    return [
        pid - device if isinstance(pid, int) and device >= 0 and abs(pid) < 1 << 62 else 0
        for device, _, pid, _ in streams
    ]


def _marks_in_order(
    calls: dict[str, Column], process_of_thread: Int32s, gpu: dict[str, Column], offsets: list[int]
) -> Marks:
    """Pair the processes that launch with the numbers added to the GPU's, as they come in the file.

    Merging tools write one rank after the other.
    """
    order = _in_file(process_of_thread[calls["thread"]])
    groups = _in_file(np.array(offsets, np.int64)[gpu["stream"]])
    of_streams: list[Hashable] = [groups[offset] for offset in offsets]
    of_threads: list[Hashable] = [
        order.get(process, -1 - process) for process in process_of_thread.tolist()
    ]
    return of_threads, of_streams


def _in_file(values: Column) -> dict[int, int]:
    """Return the place of each value in order of its first row."""
    distinct, first = np.unique(values, return_index=True)
    return {value: place for place, value in enumerate(distinct[np.argsort(first)].tolist())}


def _better(
    gpu: dict[str, Column],
    calls: dict[str, Column],
    call_process: Int64s,
    marks: Marks,
    plain: tuple[Int64s, int],
) -> tuple[Int64s, int]:
    """Return the join by the marks where it holds more launches, and kernels follow theirs."""
    if not set(marks[1]) <= set(marks[0]):
        return plain
    launch, num_colliding = _join(gpu, calls, call_process, marks)
    has = launch >= 0
    follows = gpu["start"][has] + _CLOCK_SLACK_NS >= calls["start"][launch[has]]
    is_better = has.sum() > (plain[0] >= 0).sum() and follows.mean() >= _MIN_CAUSAL_FRAC
    return (launch, num_colliding) if is_better else plain


def _join(
    gpu: dict[str, Column], calls: dict[str, Column], call_process: Int64s, marks: Marks
) -> tuple[Int64s, int]:
    """Return the call of each operation by correlation id, which only a process keeps unique."""
    launch = np.full(len(gpu["start"]), MISSING, np.int64)
    known = np.flatnonzero(calls["correlation"] > 0)
    if not len(known) or not len(launch):
        return launch, 0
    numbers = {mark: i for i, mark in enumerate(dict.fromkeys(marks[0]))}
    of_threads = np.array([numbers[m] for m in marks[0]], np.int64)
    of_streams = np.array([numbers[m] for m in marks[1]], np.int64)
    both = np.concatenate([calls["correlation"][known], gpu["correlation"]])
    dense = np.unique(both, return_inverse=True)[1] * len(numbers)
    ids = dense[: len(known)] + of_threads[calls["thread"][known]]
    wanted = dense[len(known) :] + of_streams[gpu["stream"]]
    order = np.argsort(ids, kind="stable")
    ids, rows = ids[order], known[order]
    is_repeated = ids[1:] == ids[:-1]
    is_torn = is_repeated & (call_process[rows[1:]] != call_process[rows[:-1]])
    torn = np.unique(ids[1:][is_torn])
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    is_sure = (ids[at] == wanted) & ~np.isin(wanted, torn)
    launch, num_colliding = np.where(is_sure, rows[at], MISSING), int(is_repeated.sum())
    if not num_colliding:
        return launch, 0
    start = calls["start"][rows]
    again = counted_anew(ids, start, start + calls["dur"][rows])
    again = again[~np.isin(ids[again], torn)]
    if len(again):
        num_colliding -= len(again) - len(np.unique(ids[again]))
        last = last_before((ids[again], start[again]), (wanted, gpu["start"]))
        launch = np.where(last >= 0, rows[again][last], launch)
    return launch, num_colliding


def _fill(process: Int64s, stream: Int32s, gpus: list[Hashable]) -> Int64s:
    """Give operations without a launch to the one process that launches on their stream.

    Where a stream has no launch at all: on their GPU (its process id), or in the whole trace.
    """
    number = {gpu: i for i, gpu in enumerate(dict.fromkeys(gpus))}
    gpu_of_stream = np.array([number[gpu] for gpu in gpus], np.int64)
    for group in (stream, gpu_of_stream[stream], np.zeros(len(stream), np.int64)):
        has = process >= 0
        if has.all() or not has.any():
            return process
        size = int(group.max()) + 1
        low, high = np.full(size, len(process) + 1), np.full(size, MISSING)
        np.minimum.at(low, group[has], process[has])
        np.maximum.at(high, group[has], process[has])
        process = np.where(~has & (low == high)[group], high[group], process)
    return process


def _devices(
    streams: Sequence[tuple[Any, Any, Any, Any]],
    offsets: list[int],
    stream: Int32s,
    process: Int64s,
) -> tuple[Int32s, Int32s, dict[tuple[int, int, Hashable], int]]:
    """Return device and stream of each operation, of 32 bits, all distinct.

    A device that several ranks call by one number gets a free number in each further rank; a stream
    whose id is not a small number (a handle, a text) is keyed by its place in the file.
    """
    pairs = stream.astype(np.int64) * (int(process.max(initial=0)) + 2) + process + 1
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    numbers: dict[tuple[int, int, Hashable], int] = {}
    free = 1 + max((device for device, *_ in streams), default=-1)
    device_of, stream_of = np.zeros(len(first), np.int32), np.zeros(len(first), np.int32)
    for pair in np.argsort(stream[first], kind="stable").tolist():
        place, owner = int(stream[first[pair]]), int(process[first[pair]])
        device, name, pid, rank = streams[place]
        of_rank = None if owner >= 0 else (_text_mark(pid), rank, offsets[place])
        key = (device, owner, of_rank)
        if key not in numbers:
            is_taken = device in numbers.values()
            numbers[key] = free if is_taken else device
            free += is_taken
        device_of[pair] = numbers[key]
        is_small = isinstance(name, int) and 0 <= name < 1 << 31
        is_digits = isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 10
        stream_of[pair] = int(name) if is_small or is_digits else place
    return device_of[inverse], stream_of[inverse], numbers


def _ranks(
    owners: list[tuple[Hashable, Hashable]],
    header_rank: int | None,
    process: Int64s,
    offsets: list[int],
) -> list[int | None]:
    """Return the rank of each process: as marked, by the number added to its GPU's process id, or
    the header's; None for all where two would have the same one."""
    marks = [mark for _, mark in owners]
    num_launching = len(np.unique(process[process >= 0]))
    if any(mark is not None for mark in marks):
        ranks = [_only_number(mark) for mark in marks]
    elif num_launching > 1:
        ranks = _ranks_by_offset(len(owners), process, np.array(offsets, np.int64))
    else:
        return [header_rank] * len(owners)
    known = [rank for rank in ranks if rank is not None]
    is_clear = len(set(zip(marks, ranks, strict=True))) == len(set(known)) or not marks[0]
    return ranks if is_clear else [None] * len(owners)


def _only_number(mark: Hashable) -> int | None:
    numbers = _DIGITS.findall(str(mark))
    return int(numbers[0]) if len(numbers) == 1 else None


def _ranks_by_offset(num_processes: int, process: Int64s, offsets: Int64s) -> list[int | None]:
    """Return offset / step where each process that launches has an offset of its own.

    Unknown where none is 0: whether a tool counted from 1 or left rank 0 out is unknown.
    """
    pairs = np.unique(np.stack([process, offsets])[:, process >= 0], axis=1)
    steps = pairs[1][pairs[1] > 0]
    ranks: list[int | None] = [None] * num_processes
    step = int(steps.min()) if len(steps) else 0
    is_one_each = len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1]
    if step and is_one_each and not (pairs[1] % step).any() and (pairs[1] == 0).any():
        for row, offset in pairs.T.tolist():
            ranks[row] = offset // step
    return ranks
