"""Find the steps of a program by the repetition of its launch sequence alone.

Repetition is nested: a training run repeats a step, a step repeats a block (its layers), a block
may repeat something smaller. A short run of launches (an anchor) that comes once in each turn cuts
the sequence into turns. Anchors are tried from the most frequent to the rarest; one is a loop where
its turns are alike; a rarer loop that holds several turns of a finer one, and more, takes the finer
one as its block. The turn that no further loop takes is the step.

All of it is array work over one sort per length of anchor: 1.5 million launches take seconds.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.trace.launches import LaunchSequence
from analysis.trace.model import Bools, Int64s

MIN_ENTRIES = 8
"""Fewer launches than this are not a loop, unless some are graphs."""
MIN_OF_ONE_NAME = 4
"""Fewer launches of one name and nothing else are not a loop."""
MIN_ALIKE = 0.9
"""Share of their launches that two turns of one loop have in common."""
MIN_COVERED = 0.5
"""Share of the launches, and of the GPU time, from its first turn on that a loop must explain."""
MIN_OF_ALL = 0.25
"""Share of the GPU time of the whole capture that a loop must explain."""
MIN_EXTRA = 0.03
"""What a turn launches beside its block, in blocks, to count as more than an occasional extra."""
ANCHOR_LENGTHS = (1, 2, 4)
MAX_PER_COUNT = 3
MAX_TRIED = 48
MAX_COMPARED = 20_000
"""Turns that differ from the usual one and are still compared with it."""
MIN_STEP = 0.25
"""Share of a usual turn's launches below which a turn is not a step."""
MAX_FIRST = 2.0
"""A first step has at most this many times the launches of a usual one."""
MAX_TO_FIND = 8
MIN_BLOCK = 3
MIN_IN_BLOCK = 0.4
"""Share of a step's launches that its block must explain."""
MAX_IN_BLOCK = 20_000
MAX_FEW = 4
"""So few turns of a finer loop with anything more are one step, not steps that log now and then."""
MIN_EQUAL = 0.6
"""Share of equal turns below which the turns of a loop vary."""
MIN_EXACT = 3
"""So many equal turns of a coarser loop make a single launch that each adds to layers a step's."""
MAX_MICRO = 256
MIN_IN_MICRO = 0.8
MIN_REPEATS = 1.5
_FLAGS = (
    "is_wait", "is_copy_back", "is_graph", "is_optimizer", "is_once", "is_product", "is_kernel",
    "is_autotuning",
)  # fmt: skip
NUM_BUCKETS = 128
"""Number of buckets into which names are hashed to compare the contents of turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a step repeats inside itself: its layers."""

    num_kernels: int
    "GPU operations of one turn."
    count: int
    "How often a step repeats it."


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroSteps:
    """Forward and backward passes whose gradients a training step accumulates."""

    num_entries: int
    count: int
    "How many a step holds."


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Where a launch sequence turns."""

    first: Int64s
    "Entry at which each step starts, in order."
    last: Int64s
    "Entry after the end of each step."
    is_alike: Bools
    "It launches what most steps do."
    block: Block | None
    micro: "MicroSteps | None"
    covered: float
    "Share of the launches from the first step on that regular steps explain."
    varies: bool = False
    "Steps launch the same in other numbers."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """Running totals over the sequence, each with a 0 before."""

    buckets: Int64s
    "The group of names of each entry; no total."
    digest: Int64s
    "A random weight of each group: equal contents have equal differences."
    gpu_ns: Int64s

    @classmethod
    def of(cls, work: LaunchSequence) -> "_Marks":
        buckets = (work.code % NUM_BUCKETS).astype(np.int64)
        weights = np.random.default_rng(3).integers(1, 1 << 40, NUM_BUCKETS)
        return cls(
            buckets=buckets,
            digest=np.append(0, np.cumsum(weights[buckets])),
            gpu_ns=np.append(0, np.cumsum(work.gpu_ns)),
        )


def find_repetition(sequence: LaunchSequence) -> Repetition | None:
    """Return the steps of the sequence; None where nothing repeats.

    Where no turns are alike because each launches something another number of times in a row
    (chunks, experts), runs of equal launches are taken as one.
    """
    start = _after_autotuning(sequence)
    work = _cut(sequence, start)
    repetition, at = _find(work), np.arange(len(work) + 1)
    if repetition is None and len(work):
        heads = np.flatnonzero(np.append(True, work.code[1:] != work.code[:-1]))
        repetition, at = _find(_merged(work, heads)), np.append(heads, len(work))
        repetition = repetition and replace(repetition, varies=True, block=None)
    return repetition and replace(
        repetition, first=at[repetition.first] + start, last=at[repetition.last] + start
    )


def _merged(work: LaunchSequence, heads: Int64s) -> LaunchSequence:
    """Return the sequence with each stretch from head to head as one entry."""
    sums = {n: np.add.reduceat(getattr(work, n), heads) for n in ("gpu_ns", "num_ops")}
    return replace(
        work, **{n: getattr(work, n)[heads] for n in ("code", "time_ns", *_FLAGS)}, **sums
    )


def _find(work: LaunchSequence) -> Repetition | None:
    if len(work) < _fewest(work) or not work.num_ops.any():
        return None
    marks = _Marks.of(work)
    loops = [
        loop
        for cuts in _anchors(work.code)
        if (loop := _loop(work, marks, cuts)) is not None
        and loop.num_turns >= 2
        and (loop.num_turns > 2 or not loop.wraps or _continues(work.code, loop))
    ]
    if not loops:
        return None
    step, micro = _outermost(work, _one_of_each(loops))
    turns = _turns(work, marks.buckets, step, _turning_point(work, step))
    return replace(turns, block=find_block(work, *_typical(turns)), micro=micro)


def _fewest(work: LaunchSequence) -> int:
    """Return how many entries a loop needs at least: fewer where each is a graph or the same."""
    if work.is_graph.any():
        return 2
    is_one = len(np.unique(work.code[work.num_ops > 0])) == 1
    return MIN_OF_ONE_NAME if is_one else MIN_ENTRIES


def _after_autotuning(sequence: LaunchSequence) -> int:
    """Return the entry after the last launch that only an autotuner makes."""
    tuned = np.flatnonzero(sequence.is_autotuning)
    return int(tuned[-1]) + 1 if len(tuned) else 0


def _cut(sequence: LaunchSequence, start: int) -> LaunchSequence:
    if not start:
        return sequence
    names = ("code", "time_ns", "gpu_ns", "num_ops", *_FLAGS)
    return replace(sequence, **{name: getattr(sequence, name)[start:] for name in names})


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
    gap = np.diff(places)
    group = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))[1:]
    is_inner = np.diff(np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))) == 0
    gap, group = gap[is_inner], group[is_inner]
    order = np.lexsort((gap, group))
    num = np.bincount(group, minlength=len(bounds) - 1)
    begin = np.append(0, np.cumsum(num))[:-1]
    has = num > 0
    median = np.ones(len(num))
    median[has] = gap[order][begin[has] + num[has] // 2]
    near = np.abs(gap - median[group]) <= np.maximum(median[group] * 0.1, 1)
    return np.bincount(group, near, minlength=len(num)) / np.maximum(num, 1), median


def _loop(work: LaunchSequence, marks: _Marks, cuts: Int64s) -> _Loop | None:
    """Return the loop that an anchor cuts; None where its turns differ."""
    digest = np.diff(marks.digest[cuts])
    usual, usual_digest = _usual(marks.buckets, cuts, digest)
    equal = digest == usual_digest
    alike = equal.copy()
    others = np.flatnonzero(~equal)
    if len(others) > MAX_COMPARED:
        return None
    alike[others] = _likeness(_turn_contents(marks.buckets, cuts, others), usual) >= MIN_ALIKE
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
    return _Loop(
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


def _continues(code: Int64s, loop: _Loop) -> bool:
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
    rest = _contents(buckets, np.array([0, first])) + _contents(buckets, np.array([last, num]))
    if _likeness(rest, usual)[0] >= MIN_ALIKE:
        return True, max(first, num - last)
    windows = ((max(first - size, 0), first), (last, min(last + size, num)))
    is_turn = any(_matches(buckets, np.array(window), usual) for window in windows)
    return is_turn, size if is_turn else 0


def _contents(buckets: Int64s, bounds: Int64s) -> NDArray[np.float32]:
    """Return how many launches of each bucket lie between each two bounds."""
    if len(bounds) < 2:
        return np.zeros((0, NUM_BUCKETS), np.float32)
    turn = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    key = turn * NUM_BUCKETS + buckets[bounds[0] : bounds[-1]]
    flat = np.bincount(key, minlength=(len(bounds) - 1) * NUM_BUCKETS)
    return flat.reshape(-1, NUM_BUCKETS).astype(np.float32)


def _turn_contents(buckets: Int64s, bounds: Int64s, turns: Int64s) -> NDArray[np.float32]:
    """Return the contents of some of the turns between bounds."""
    if len(turns) == len(bounds) - 1:
        return _contents(buckets, bounds)
    length = bounds[turns + 1] - bounds[turns]
    offset = np.append(0, np.cumsum(length))
    place = np.arange(offset[-1]) - np.repeat(offset[:-1] - bounds[turns], length)
    return _contents(buckets[place], offset)


def _usual(
    buckets: Int64s, bounds: Int64s, digest: Int64s
) -> tuple[NDArray[np.float32], int | None]:
    """Return the most frequent content of turns and its digest.

    The median content, without a digest, where no two turns are equal.
    """
    values, row, count = np.unique(digest, return_index=True, return_counts=True)
    if count.max() < 2 and len(digest) > 2:
        some = np.arange(len(digest))[:MAX_COMPARED]
        content = _turn_contents(buckets, bounds, some)
        return np.median(content, axis=0).astype(np.float32), None
    size = np.diff(bounds)[row]
    best = int(np.lexsort((size, -count))[0])
    return _turn_contents(buckets, bounds, row[[best]])[0], int(values[best])


def _likeness(content: NDArray[np.float32], usual: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the share of launches that each turn has in common with the usual one."""
    total = content.sum(axis=1) + usual.sum()
    apart = np.abs(content - usual).sum(axis=1)
    return 1 - apart / np.maximum(total, 1)


def _one_of_each(loops: list[_Loop]) -> list[_Loop]:
    """Return the best anchor of each loop, finest first."""
    best: list[_Loop] = []
    for loop in sorted(loops, key=lambda candidate: candidate.size):
        twin = next((i for i, b in enumerate(best) if _is_same(b, loop)), None)
        if twin is None:
            best.append(loop)
        elif loop.launched > best[twin].launched:
            best[twin] = loop
    return best


def _is_same(a: _Loop, b: _Loop) -> bool:
    return abs(a.size - b.size) <= 0.1 * min(a.size, b.size)


def _outermost(work: LaunchSequence, loops: list[_Loop]) -> tuple[_Loop, MicroSteps | None]:
    """Return the loop whose turns are the steps: no coarser one takes it."""
    step, micro = loops[0], None
    for outer in loops[1:]:
        if not _takes(work, outer, step):
            continue
        repeats = _repeats(outer, step)
        # A layer is not a micro-step: those are most of a step, and the optimizer is the rest.
        if _adds_optimizer(work, outer, step) and MIN_REPEATS < repeats <= MAX_MICRO:
            share = repeats * step.size / outer.size
            is_micro = share > MIN_IN_MICRO
            micro = MicroSteps(num_entries=step.size, count=round(repeats)) if is_micro else None
        step = outer
    return step, micro


def _adds_optimizer(work: LaunchSequence, outer: _Loop, inner: _Loop) -> bool:
    has_optimizer = _share_with(work.is_optimizer, outer) > 0.9
    return has_optimizer and _share_with(work.is_optimizer, inner) < 0.5


def _typical(repetition: Repetition) -> tuple[int, int]:
    """Return the entries of one regular step, from the middle of them."""
    rows = np.flatnonzero(repetition.is_alike)
    row = rows[len(rows) // 2] if len(rows) else 0
    return int(repetition.first[row]), int(repetition.last[row])


def _takes(work: LaunchSequence, outer: _Loop, inner: _Loop) -> bool:
    """Tell whether the turns of `outer` are the steps, and those of `inner` parts of them."""
    repeats = _repeats(outer, inner)
    if repeats < MIN_REPEATS:
        # Two cuts of one loop: the one that leaves less between its turns.
        is_whole = outer.exact == 1.0 and outer.num_turns >= inner.num_turns
        return outer.covered > inner.covered + (MIN_EXTRA if is_whole else 0.1)
    extra = min(outer.size - repeats * inner.size, _beside(outer, inner))
    if _adds_optimizer(work, outer, inner):
        return True
    if _share_with(work.is_optimizer, inner) > 0.9:
        return False
    if _share_with(work.is_copy_back | work.is_wait, inner) > 0.9:
        return False
    waits = _share_with(work.is_copy_back | work.is_wait, outer) > 0.9
    if not waits and outer.num_turns <= MAX_FEW and inner.exact < MIN_EQUAL:
        return _has_own_names(outer, inner)
    if waits or repeats <= MAX_FEW:
        return extra >= 1
    if outer.exact == 1.0 and outer.num_turns >= MIN_EXACT and _is_plain(work, inner):
        return extra >= 1
    return extra >= max(MIN_EXTRA * inner.size, 2)


def _beside(outer: _Loop, inner: _Loop) -> float:
    """Return how much a usual turn of `outer` launches that no whole number of `inner` turns does.

    Two places that chance finds a number of layers apart cut turns with nothing beside the layers.
    """
    turns = round(outer.size / inner.size)
    return float(np.maximum(outer.content - turns * inner.content, 0).sum())


def _has_own_names(outer: _Loop, inner: _Loop) -> bool:
    """Tell whether a usual turn of `outer` launches what none of `inner` does, and seldom.

    Layers that differ from one to the next leave a rest in any few turns, of names that they have.
    """
    turns = round(outer.size / inner.size)
    own = outer.content[inner.content == 0]
    return bool(((own > 0) & (own < turns / 2)).any())


def _is_plain(work: LaunchSequence, loop: _Loop) -> bool:
    """Tell whether a turn repeats nothing inside itself: a layer may, a step of layers does."""
    row = int(np.flatnonzero(loop.is_alike)[0])
    return find_block(work, int(loop.cuts[row]), int(loop.cuts[row + 1])) is None


def _repeats(outer: _Loop, inner: _Loop) -> float:
    """Return how many usual turns of `inner` a usual turn of `outer` holds."""
    starts = inner.cuts[:-1][inner.is_alike]
    starts = np.append(starts, inner.cuts[-1]) if inner.wraps else starts
    held = np.diff(np.searchsorted(starts, outer.cuts))[outer.is_alike]
    return float(np.median(held)) if len(held) else 0.0


def _share_with(flag: Bools, loop: _Loop) -> float:
    """Return the share of the loop's usual turns that have a launch of the kind."""
    done = np.append(0, np.cumsum(flag))
    in_turn = np.diff(done[loop.cuts])[loop.is_alike]
    if not len(in_turn):
        return float(flag.any())
    return float((in_turn > 0).mean())


def _turning_point(work: LaunchSequence, step: _Loop) -> int:
    """Return how many entries after the anchor a step starts.

    After the optimizer's last launch and what the host reads back then; else after the wait that
    ends most of the GPU work; else where the regular part of the capture starts, if the host pauses
    there too; else where the host pauses longest.
    """
    turns = np.flatnonzero(step.is_alike & (np.diff(step.cuts) == step.size))[:64]
    if not len(turns):
        return 0
    rows = step.cuts[turns][:, None] + np.arange(step.size)
    is_optimizer = work.is_optimizer[rows].mean(axis=0) > 0.5
    if is_optimizer.any() and not is_optimizer.all():
        ends_step = (work.is_wait | work.is_copy_back)[rows].mean(axis=0) > 0.5
        begin = (_longest_run_end(is_optimizer) + 1) % step.size
        while ends_step[begin] and not is_optimizer[begin]:
            begin = (begin + 1) % step.size
        return int(begin)
    wait = _main_wait(work.is_wait[rows].mean(axis=0) > 0.5, np.median(work.gpu_ns[rows], axis=0))
    if wait is not None:
        return (wait + 1) % step.size
    before = np.maximum(rows - 1, 0)
    pause = np.median(work.time_ns[rows] - work.time_ns[before], axis=0)
    longest = int(np.argmax(pause))
    begin = (_regular_from(work, step) - int(step.cuts[turns[0]])) % step.size
    return begin if pause[begin] >= 0.25 * pause[longest] else longest


def _main_wait(is_wait: Bools, gpu_ns: NDArray[np.float64]) -> int | None:
    """Return the position of the wait that ends over half of the turn's GPU work."""
    waits = np.flatnonzero(is_wait)
    if not len(waits) or len(waits) == len(is_wait):
        return None
    done = np.cumsum(gpu_ns)
    work = np.diff(done[waits], prepend=done[waits[-1]] - done[-1])
    most = int(np.argmax(work))
    return int(waits[most]) if work[most] > 0.5 * done[-1] else None


def _longest_run_end(marked: Bools) -> int:
    """Return the last position of the cyclically longest run."""
    ends = np.flatnonzero(marked & ~np.roll(marked, -1))
    starts = np.flatnonzero(marked & ~np.roll(marked, 1))
    lengths = [(int(e - starts[np.searchsorted(starts, e, side="right") - 1]), e) for e in ends]
    if ends[0] < starts[0]:
        lengths[0] = (int(ends[0] + len(marked) - starts[-1]), ends[0])
    return int(max(lengths)[1])


def _regular_from(work: LaunchSequence, step: _Loop) -> int:
    """Return the first entry from which on the sequence equals itself a step later."""
    turns = np.flatnonzero(step.is_alike & (np.diff(step.cuts) == step.size))
    reference = int(step.cuts[turns[0]])
    at = reference
    if at + step.size > len(work):
        return at
    same = work.code[:at] == work.code[step.size : at + step.size]
    broken = np.flatnonzero(~same)
    return int(broken[-1]) + 1 if len(broken) else 0


def _turns(work: LaunchSequence, buckets: Int64s, step: _Loop, offset: int) -> Repetition:
    """Return the steps, `offset` entries after each anchor, with those at both edges."""
    offset = offset if offset <= step.size // 2 else offset - step.size
    bounds = step.cuts + offset
    limits = np.append(step.cuts[1:], len(work))
    if offset > 0:
        bounds = np.minimum(bounds, limits)
    elif offset < 0:
        bounds = np.maximum(bounds, np.append(0, step.cuts[:-1]))
    bounds = np.unique(bounds[(bounds >= 0) & (bounds < len(work))])
    bounds = _with_first(work.code, buckets, step, _with_edges(buckets, step, bounds))
    content = _contents(buckets, bounds)
    alike = _likeness(content, step.content) >= MIN_ALIKE
    inside = np.diff(bounds)[alike].sum()
    first = int(bounds[np.flatnonzero(alike)[0]]) if alike.any() else 0
    is_step = _steps_of(content, step.content, alike)
    return Repetition(
        first=bounds[:-1][is_step],
        last=bounds[1:][is_step],
        is_alike=alike[is_step],
        block=None,
        micro=None,
        covered=float(inside / max(len(work) - first, 1)),
    )


def _steps_of(content: NDArray[np.float32], usual: NDArray[np.float32], alike: Bools) -> Bools:
    """Tell which turns are steps at all: not what a program does once before, between or after.

    From the first to the last usual turn all that launch a fair share of a usual one are; outside
    only those that recur, or hold all that a usual one does, as the first when it sets up.
    """
    size = content.sum(axis=1)
    is_step = alike | (size >= MIN_STEP * usual.sum())
    rows = np.flatnonzero(alike)
    if not len(rows):
        return is_step
    outside = np.ones(len(alike), bool)
    outside[rows[0] : rows[-1] + 1] = False
    for row in np.flatnonzero(outside & is_step).tolist():
        held = np.minimum(content[row], usual).sum() / usual.sum()
        recurs = (_likeness(content, content[row]) >= MIN_ALIKE).sum() > 1
        is_step[row] = recurs or held >= MIN_ALIKE
    return is_step


def _with_edges(buckets: Int64s, step: _Loop, bounds: Int64s) -> Int64s:
    """Add the step before the first bound and the one after the last, if they are known steps."""
    content = _contents(buckets, bounds)
    others = content[_likeness(content, step.content) < MIN_ALIKE]
    known = np.concatenate([step.content[None], others[-8:]])
    for usual in known:
        size = int(usual.sum())
        slack = max(int(size * (1 - MIN_ALIKE)), 1)
        edge = max(int(bounds[0]) - size, 0)
        window = np.array([edge, bounds[0]])
        if edge - (bounds[0] - size) <= slack and _matches(buckets, window, usual):
            bounds = np.append(edge, bounds)
            break
    for usual in known:
        size = int(usual.sum())
        slack = max(int(size * (1 - MIN_ALIKE)), 1)
        edge = min(int(bounds[-1]) + size, len(buckets))
        window = np.array([bounds[-1], edge])
        if bounds[-1] + size - edge <= slack and _matches(buckets, window, usual):
            bounds = np.append(bounds, edge)
            break
    return bounds


def _with_first(code: Int64s, buckets: Int64s, step: _Loop, bounds: Int64s) -> Int64s:
    """Add a first step that launches all of a usual one and more, as when it sets up its state."""
    if len(bounds) < 2:
        return bounds
    begin = code[bounds[1] : bounds[1] + MAX_TO_FIND]
    floor = max(int(bounds[0] - MAX_FIRST * step.size), 0)
    for at in range(int(bounds[0] - step.size), floor - 1, -1):
        if (code[at : at + len(begin)] == begin).all():
            content = _contents(buckets, np.array([at, bounds[0]]))[0]
            held = np.minimum(content, step.content).sum() / step.content.sum()
            return np.append(at, bounds) if held >= MIN_ALIKE else bounds
    return bounds


def with_first_step(sequence: LaunchSequence, bounds: Int64s) -> Int64s:
    """Add where the first step starts to the ends of all, found by the usual step's launches."""
    if len(bounds) < 2:
        return bounds
    marks = _Marks.of(sequence)
    buckets = marks.buckets
    content = _contents(buckets, bounds)
    usual, _ = _usual(buckets, bounds, np.diff(marks.digest[bounds]))
    step = _Loop(
        cuts=bounds,
        is_alike=_likeness(content, usual) >= MIN_ALIKE,
        size=int(usual.sum()),
        content=usual,
        wraps=False,
        covered=1.0,
        exact=1.0,
    )
    front = int(bounds[0]) - step.size
    if front >= 0 and _matches(buckets, np.array([front, bounds[0]]), usual):
        return np.append(front, bounds)
    if bounds[0] < step.size and _matches(buckets, np.array([0, bounds[0]]), usual):
        return np.append(0, bounds)
    return _with_first(sequence.code, buckets, step, bounds)


def _matches(buckets: Int64s, window: Int64s, usual: NDArray[np.float32]) -> bool:
    if window[1] <= window[0]:
        return False
    return bool(_likeness(_contents(buckets, window), usual)[0] >= MIN_ALIKE)


def find_block(work: LaunchSequence, first: int, last: int) -> Block | None:
    """Return what a step repeats most of its launches in, such as its layers; None if nothing.

    A distance is a period where nine of ten launches equal those one period later; each stretch
    where it holds repeats what lies within one period. The shortest of the best counts: a multiple
    of a period holds as well.
    """
    rows = np.arange(first, last)
    rows = rows[work.num_ops[rows] > 0][:MAX_IN_BLOCK]
    code, kernels = work.code[rows], work.num_ops[rows]
    best: tuple[float, int, int] | None = None
    for period in _distances(code):
        lengths = _stretches(code, period)
        covered = float(sum(lengths)) + period * len(lengths)
        if lengths and (best is None or covered > 1.05 * best[0]):
            best = (covered, period, sum(round((n + period) / period) for n in lengths))
    if best is None or best[0] < MIN_IN_BLOCK * len(code):
        return None
    return Block(num_kernels=round(best[1] * float(kernels.mean())), count=best[2])


def _distances(code: Int64s) -> list[int]:
    """Return the commonest distances between equal launches, shortest first."""
    order = np.argsort(code, kind="stable")
    is_same = code[order][1:] == code[order][:-1]
    count = np.bincount(np.diff(order)[is_same], minlength=1)
    count[: MIN_BLOCK if len(count) > MIN_BLOCK else 0] = 0
    common = np.argsort(-count, kind="stable")[:MAX_TRIED]
    return sorted(int(d) for d in common if count[d] > 0 and 2 * d <= len(code))


def _stretches(code: Int64s, period: int) -> list[int]:
    """Return the lengths of the stretches where nine of ten launches in a period are equal.

    Those of what the longest one repeats: a period of the backward pass may hold two forward ones.
    """
    is_equal = code[:-period] == code[period:]
    if len(is_equal) < period:
        return []
    done = np.append(0, np.cumsum(is_equal))
    holds = done[period:] - done[:-period] >= MIN_ALIKE * period
    edges = np.diff(np.concatenate([[0], holds.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
    if not len(starts):
        return []
    turns = [np.sort(code[s : s + period]) for s in starts.tolist()]
    longest = turns[int(np.argmax(ends - starts))]
    return [
        int(e - s - 1 + period)
        for s, e, turn in zip(starts.tolist(), ends.tolist(), turns, strict=True)
        if (turn == longest).mean() >= 0.5
    ]
