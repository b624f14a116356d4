"""Find loops in a launch sequence: short runs of launches that cut it into turns that are alike.

All of it is array work over one sort per length of anchor: 1.5 million launches take seconds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.trace.launches import LaunchSequence
from analysis.trace.model import Bools, Int64s
from analysis.trace.turns import (
    MAX_COMPARED,
    MIN_ALIKE,
    Marks,
    contents_of,
    contents_of_some,
    likeness,
    matches,
    usual_content,
)

MIN_OF_PAIR = 4
"""Launches of a turn that comes twice: fewer are two calls of one function, not a loop."""
MIN_COVERED = 0.5
"""Share of the launches, and of the GPU time, from its first turn on that a loop must explain."""
MIN_OF_ALL = 0.25
"""Share of the GPU time of the whole capture that a loop must explain."""
ANCHOR_LENGTHS = (1, 2, 4)
MAX_PER_COUNT = 3
MAX_TRIED = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The turns that one anchor cuts."""

    cuts: Int64s
    "Entries with the anchor."
    is_alike: Bools
    "Of each turn between two cuts."
    size: int
    "Entries of a usual turn."
    content: NDArray[np.float32]
    "Of a usual turn, by bucket."
    wraps: bool
    "What lies before the first and after the last cut makes one more usual turn."
    covered: float
    exact: float
    "Share of the similar turns that are equal to the usual one."

    @property
    def launched(self) -> tuple[int, int, float]:
        """Return how much its usual turns launch, in tenths of an order of magnitude, how many
        turns of any kind it cuts, in powers of two, and how equal the usual ones are.
        """
        much = round(10 * np.log10(max(self.num_turns * self.size, 1)))
        return much, round(np.log2(len(self.cuts))), self.exact

    @property
    def num_turns(self) -> int:
        return int(self.is_alike.sum()) + self.wraps


def find_loops(work: LaunchSequence, marks: Marks) -> list[Loop]:
    """Return the loops that anchors cut the sequence into, finest first."""
    loops = [
        loop
        for cuts in _anchors(work.code)
        if (loop := _loop(work, marks, cuts)) is not None
        and loop.num_turns >= 2
        and (loop.num_turns > 2 or loop.size >= MIN_OF_PAIR or work.is_graph.any())
        and (loop.num_turns > 2 or not loop.wraps or _continues(work.code, loop))
    ]
    return _one_of_each(loops)


def _anchors(code: Int64s) -> list[Int64s]:
    """Return the places of runs of launches that come at regular distances, most frequent first."""
    best: dict[tuple[int, int], list[tuple[float, int, Int64s]]] = {}
    for length in ANCHOR_LENGTHS:
        if len(code) < 2 * length:
            continue
        places, bounds = _places(_runs(code, length))
        count = np.diff(bounds)
        regular, distance = _regularity(places, bounds)
        for row in np.flatnonzero((count >= 2) & (regular >= 0.5)).tolist():
            alike = int(count[row]), int(np.log2(distance[row]))
            here = best.setdefault(alike, [])
            here.append((-regular[row], length, places[bounds[row] : bounds[row + 1]]))
    chosen = []
    for often in sorted(best, reverse=True):
        ranked = sorted(best[often], key=lambda entry: entry[:2])
        chosen += [(entry[0], -often[0], entry[2]) for entry in ranked[:MAX_PER_COUNT]]
    if len(chosen) > MAX_TRIED:
        chosen = sorted(chosen, key=lambda entry: entry[:2])[:MAX_TRIED]
    return [places for _, _, places in sorted(chosen, key=lambda entry: entry[1])]


def _runs(code: Int64s, length: int) -> Int64s:
    """Return a number for the `length` launches from each entry on."""
    mixed = code[: len(code) - length + 1].astype(np.uint64)
    for shift in range(1, length):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + code[
            shift : len(code) - length + 1 + shift
        ].astype(np.uint64)
    return mixed.astype(np.int64)


def _places(run: Int64s) -> tuple[Int64s, Int64s]:
    """Return the entries ordered by run, and the start of each run's entries."""
    order = np.argsort(run, kind="stable")
    is_new = np.append(True, run[order][1:] != run[order][:-1])
    return order, np.append(np.flatnonzero(is_new), len(run))


def _regularity(places: Int64s, bounds: Int64s) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each run, the share of its distances within a tenth of their median, and that."""
    group = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    is_inner = group[1:] == group[:-1]
    gap, group = np.diff(places)[is_inner], group[1:][is_inner]
    first = group * (int(gap.max(initial=0)) + 1)  # keeps the groups apart and in order
    in_order = np.sort(first + gap) - first
    num = np.bincount(group, minlength=len(bounds) - 1)
    begin = np.append(0, np.cumsum(num))[:-1]
    has = num > 0
    median = np.ones(len(num))
    median[has] = in_order[begin[has] + num[has] // 2]
    near = np.abs(gap - median[group]) <= np.maximum(median[group] * 0.1, 1)
    return np.bincount(group, near, minlength=len(num)) / np.maximum(num, 1), median


def _loop(work: LaunchSequence, marks: Marks, cuts: Int64s) -> Loop | None:
    """Return the loop that an anchor cuts; None where its turns differ."""
    digest = np.diff(marks.digest[cuts])
    usual, usual_digest = usual_content(marks.buckets, cuts, digest)
    equal = digest == usual_digest
    alike = equal.copy()
    others = np.flatnonzero(~equal)
    if len(others) > MAX_COMPARED:
        return None
    alike[others] = likeness(contents_of_some(marks.buckets, cuts, others), usual) >= MIN_ALIKE
    if not _has_kernels(work.is_kernel, cuts[np.append(alike, False)], cuts[1:][alike]):
        return None
    size = int(usual.sum())
    wraps, reach = _edge_turn(marks.buckets, cuts, usual)
    if not alike.any() or alike[np.flatnonzero(alike)[0] :].mean() < MIN_COVERED - 0.1:
        return None
    low, high = int(cuts[np.flatnonzero(alike)[0]]), int(cuts[-1])
    done = marks.gpu_ns
    time_in = float((done[cuts[1:]] - done[cuts[:-1]])[alike].sum())
    if wraps:
        low, high = min(max(int(cuts[0]) - reach, 0), low), min(high + reach, len(work))
        time_in += done[cuts[0]] - done[low] + done[high] - done[cuts[-1]]
    lengths = np.diff(cuts)[alike].sum() + (size if wraps else 0)
    covered = float(min(lengths / max(len(work) - low, 1), 1.0))
    least = max(MIN_COVERED * (done[-1] - done[low]), MIN_OF_ALL * done[-1])
    if covered < MIN_COVERED or time_in < least:
        return None
    return Loop(
        cuts=cuts,
        is_alike=alike,
        size=size,
        content=usual,
        wraps=wraps,
        covered=covered,
        exact=float(equal[alike].mean()),
    )


def _has_kernels(is_kernel: Bools, first: Int64s, last: Int64s) -> bool:
    """Tell whether most turns hold a kernel, where the capture holds any: copies are no step."""
    if not is_kernel.any() or not len(first):
        return True
    done = np.append(0, np.cumsum(is_kernel))
    return bool(((done[last] - done[first]) > 0).mean() >= MIN_COVERED)


def _continues(code: Int64s, loop: Loop) -> bool:
    """Tell whether a loop's one whole turn goes on, in its order, before and after it.

    Layers of a window that is cut at both edges have what a turn holds, at other places.
    """
    row = int(np.flatnonzero(loop.is_alike)[0])
    turn = code[int(loop.cuts[row]) : int(loop.cuts[row + 1])]
    before, after = code[: int(loop.cuts[0])][-len(turn) :], code[int(loop.cuts[-1]) :][: len(turn)]
    same = (before == turn[len(turn) - len(before) :]).sum() + (after == turn[: len(after)]).sum()
    return bool(same >= MIN_ALIKE * min(len(turn), len(before) + len(after)))


def _edge_turn(buckets: Int64s, cuts: Int64s, usual: NDArray[np.float32]) -> tuple[bool, int]:
    """Tell if a usual turn ends at the first cut or starts at the last, and how far one reaches.

    Or if what is left before and after the cuts makes one together.
    """
    size, num = int(usual.sum()), len(buckets)
    first, last = int(cuts[0]), int(cuts[-1])
    rest = contents_of(buckets, np.array([0, first])) + contents_of(buckets, np.array([last, num]))
    if likeness(rest, usual)[0] >= MIN_ALIKE:
        return True, max(first, num - last)
    windows = ((max(first - size, 0), first), (last, min(last + size, num)))
    is_turn = any(matches(buckets, np.array(window), usual) for window in windows)
    return is_turn, size if is_turn else 0


def _one_of_each(loops: list[Loop]) -> list[Loop]:
    """Return the best anchor of each loop, finest first."""
    best: list[Loop] = []
    for loop in sorted(loops, key=lambda candidate: candidate.size):
        twin = next((i for i, b in enumerate(best) if _is_same(b, loop)), None)
        if twin is None:
            best.append(loop)
        elif loop.launched > best[twin].launched:
            best[twin] = loop
    return best


def _is_same(a: Loop, b: Loop) -> bool:
    return abs(a.size - b.size) <= 0.1 * min(a.size, b.size)
