"""Find host calls by process and correlation id, a chunk of the calls at a time.

Correlation ids are counted per process: two ranks in one file share hundreds of them, so a join by
the id alone invents launches (design/cases.md 18).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.readers.nsys_calls import ApiCalls
from analysis.readers.nsys_columns import MISSING, Ints
from analysis.readers.nsys_events import TID_BITS, Codes

KEPT_CHUNKS = 8
NO_ID = np.iinfo(np.uint32).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """The launch call of each operation asked for; MISSING and 0 where none was recorded."""

    row: Ints
    "Number of the call in its table."
    first_ns: Ints
    last_ns: Ints
    kind: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The calls of one chunk by key (process ordinal, id), sorted."""

    keys: Ints
    row: Ints
    first_ns: Ints
    last_ns: Ints
    kind: Codes


class LaunchIndex:
    """The calls by process and id. `answered` counts the calls found so far, by kind."""

    def __init__(self, calls: ApiCalls, processes: Ints) -> None:
        self._calls = calls
        self._process_of_kind = np.searchsorted(processes, calls.thread_of_kind >> TID_BITS)
        self._is_found = np.zeros(len(calls), bool)
        self._kept: dict[int, _Part] = {}
        self.answered = np.zeros(len(calls.kinds), np.int64)
        num_chunks = calls.rows.num_chunks
        self._least = np.full((num_chunks, len(processes)), NO_ID, np.uint32)
        self._most = np.zeros((num_chunks, len(processes)), np.uint32)
        self.num_duplicate_ids = 0
        """Calls that share process and id with an earlier one."""
        self._measure()

    def _measure(self) -> None:
        """Note the ids of each process in each chunk, and count those that come twice."""
        is_rising = np.ones(self._least.shape[1], bool)
        reached = np.zeros(self._least.shape[1], np.uint32)
        for index in range(self._calls.rows.num_chunks):
            for process, ids in self._ids_by_process(index):
                self._least[index, process] = ids.min()
                self._most[index, process] = ids.max()
                in_order = bool((ids[1:] > ids[:-1]).all()) and ids[0] > reached[process]
                is_rising[process] &= in_order
                reached[process] = max(reached[process], self._most[index, process])
        self.num_duplicate_ids = sum(map(self._count_twice, np.flatnonzero(~is_rising).tolist()))

    def _ids_by_process(self, index: int) -> list[tuple[int, NDArray[np.uint32]]]:
        """Return the ids that a chunk holds of each process, in the order of the table."""
        rows = self._calls.rows.read(index, ["correlation", "kind"])
        ids = rows["correlation"]
        process = self._process_of_kind[rows["kind"]]
        found = []
        for ordinal in np.flatnonzero(np.bincount(process)).tolist():
            own = ids[(process == ordinal) & (ids > 0)]
            if len(own):
                found.append((ordinal, own))
        return found

    def _count_twice(self, process: int) -> int:
        parts = [
            ids
            for index in np.flatnonzero(self._most[:, process] > 0).tolist()
            for ordinal, ids in self._ids_by_process(index)
            if ordinal == process
        ]
        ids = np.concatenate(parts)
        del parts
        ids.sort()
        return int((ids[1:] == ids[:-1]).sum())

    def find(self, process: Codes, ids: NDArray[np.uint32]) -> Launches:
        """Return the launches of operations by their process ordinals and correlation ids."""
        keys = _key(process, ids)
        is_known = (process >= 0) & (ids > 0)
        order = np.flatnonzero(is_known)
        wanted = keys[order]
        if (wanted[1:] < wanted[:-1]).any():
            by_key = np.argsort(wanted, kind="stable")
            order, wanted = order[by_key], wanted[by_key]
        found = self._find_sorted(wanted)
        self._count_answered(wanted, found)
        if len(order) == len(keys) and (order[1:] > order[:-1]).all():
            return found
        return _placed(found, order, len(keys))

    def _find_sorted(self, wanted: Ints) -> Launches:
        row = np.full(len(wanted), MISSING, np.int64)
        first, last = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
        kind = np.full(len(wanted), MISSING, np.int32)
        for index in self._chunks_with(wanted):
            part = self._part(index)
            low, high = np.searchsorted(wanted, (part.keys[0], part.keys[-1] + 1))
            at = np.searchsorted(part.keys, wanted[low:high])
            np.minimum(at, len(part.keys) - 1, out=at)
            # The first call of an id in the table is the launch.
            hit = (part.keys[at] == wanted[low:high]) & (row[low:high] < 0)
            if not hit.any():
                continue
            at = at[hit]
            where = np.flatnonzero(hit) + low
            row[where], kind[where] = part.row[at], part.kind[at]
            first[where], last[where] = part.first_ns[at], part.last_ns[at]
            if (row >= 0).all():
                break
        return Launches(row=row, first_ns=first, last_ns=last, kind=kind)

    def _chunks_with(self, wanted: Ints) -> list[int]:
        """Return the chunks that may hold any of the sorted keys, in the order of the table."""
        if not len(wanted):
            return []
        process = wanted >> 32
        starts = np.flatnonzero(np.append(True, process[1:] != process[:-1]))
        ends = np.append(starts[1:], len(wanted)) - 1
        may_hold = np.zeros(len(self._least), bool)
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
            owner = int(process[first])
            low, high = wanted[first] & 0xFFFFFFFF, wanted[last] & 0xFFFFFFFF
            may_hold |= (self._least[:, owner] <= high) & (self._most[:, owner] >= low)
        return np.flatnonzero(may_hold).tolist()

    def _part(self, index: int) -> _Part:
        if index in self._kept:
            return self._kept[index]
        if len(self._kept) >= KEPT_CHUNKS:
            del self._kept[next(iter(self._kept))]
        rows = self._calls.rows.read(index, ["start", "end", "correlation", "kind"])
        ids = rows["correlation"]
        keys = _key(self._process_of_kind[rows["kind"]], ids)
        order = np.flatnonzero(ids)
        if len(order) < len(ids):
            keys = keys[order]
        if (keys[1:] < keys[:-1]).any():
            by_key = np.argsort(keys, kind="stable")
            order, keys = order[by_key], keys[by_key]
        part = _Part(
            keys=keys,
            row=order + self._calls.rows.first_row(index),
            first_ns=rows["start"][order],
            last_ns=rows["end"][order],
            kind=rows["kind"][order],
        )
        self._kept[index] = part
        return part

    def _count_answered(self, wanted: Ints, found: Launches) -> None:
        """Count each call once, however many operations it launched."""
        is_new = np.append(True, wanted[1:] != wanted[:-1])[: len(wanted)] & (found.row >= 0)
        is_new[is_new] = ~self._is_found[found.row[is_new]]
        self._is_found[found.row[is_new]] = True
        self.answered += np.bincount(found.kind[is_new], minlength=len(self.answered))


def _key(process: NDArray[np.integer], ids: NDArray[np.uint32]) -> Ints:
    keys = process.astype(np.int64)
    keys <<= 32
    keys |= ids
    return keys


def _placed(found: Launches, order: NDArray[np.intp], size: int) -> Launches:
    """Return the answers where the questions stood; MISSING and 0 elsewhere."""
    row, kind = np.full(size, MISSING, np.int64), np.full(size, MISSING, np.int32)
    first, last = np.zeros(size, np.int64), np.zeros(size, np.int64)
    row[order], kind[order] = found.row, found.kind
    first[order], last[order] = found.first_ns, found.last_ns
    return Launches(row=row, first_ns=first, last_ns=last, kind=kind)
