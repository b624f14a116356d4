"""Find the steps of a program by the repetition of its launch sequence alone.

Repetition is nested: a training run repeats a step, a step repeats a block (its layers), a block
may repeat something smaller. A short run of launches (an anchor) that comes once in each turn cuts
the sequence into turns. Anchors are tried from the most frequent to the rarest; one is a loop where
its turns are alike; a rarer loop that holds several turns of a finer one, and more, takes the finer
one as its block. The turn that no further loop takes is the step.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.trace.blocks import Block, find_block
from analysis.trace.launches import LaunchSequence
from analysis.trace.loops import Loop, find_loops
from analysis.trace.model import Bools, Int64s
from analysis.trace.turns import (
    MIN_ALIKE,
    Marks,
    contents_of,
    likeness,
    matches,
    usual_content,
)

MIN_ENTRIES = 8
"""Fewer launches than this are not a loop, unless some are graphs."""
MIN_OF_ONE_NAME = 4
"""Fewer launches of one name and nothing else are not a loop."""
MIN_EXTRA = 0.03
"""What a turn launches beside its block, in blocks, to count as more than an occasional extra."""
MIN_STEP = 0.25
"""Share of a usual turn's launches below which a turn is not a step."""
MAX_FIRST = 2.0
"""A first step has at most this many times the launches of a usual one."""
MAX_TO_FIND = 8
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroSteps:
    """Forward and backward passes whose gradients a training step accumulates."""

    num_entries: int
    "Launches of one."
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
    marks = Marks.of(work)
    loops = find_loops(work, marks)
    if not loops:
        return None
    step, micro = _outermost(work, loops)
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


def _outermost(work: LaunchSequence, loops: list[Loop]) -> tuple[Loop, MicroSteps | None]:
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


def _adds_optimizer(work: LaunchSequence, outer: Loop, inner: Loop) -> bool:
    has_optimizer = _share_with(work.is_optimizer, outer) > 0.9
    return has_optimizer and _share_with(work.is_optimizer, inner) < 0.5


def _typical(repetition: Repetition) -> tuple[int, int]:
    """Return the entries of one regular step, from the middle of them."""
    rows = np.flatnonzero(repetition.is_alike)
    row = rows[len(rows) // 2] if len(rows) else 0
    return int(repetition.first[row]), int(repetition.last[row])


def _takes(work: LaunchSequence, outer: Loop, inner: Loop) -> bool:
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


def _beside(outer: Loop, inner: Loop) -> float:
    """Return how much a usual turn of `outer` launches that no whole number of `inner` turns does.

    Two places that chance finds a number of layers apart cut turns with nothing beside the layers.
    """
    turns = round(outer.size / inner.size)
    return float(np.maximum(outer.content - turns * inner.content, 0).sum())


def _has_own_names(outer: Loop, inner: Loop) -> bool:
    """Tell whether a usual turn of `outer` launches what none of `inner` does, and seldom.

    Layers that differ from one to the next leave a rest in any few turns, of names that they have.
    """
    turns = round(outer.size / inner.size)
    own = outer.content[inner.content == 0]
    return bool(((own > 0) & (own < turns / 2)).any())


def _is_plain(work: LaunchSequence, loop: Loop) -> bool:
    """Tell whether a turn repeats nothing inside itself: a layer may, a step of layers does."""
    row = int(np.flatnonzero(loop.is_alike)[0])
    return find_block(work, int(loop.cuts[row]), int(loop.cuts[row + 1])) is None


def _repeats(outer: Loop, inner: Loop) -> float:
    """Return how many usual turns of `inner` a usual turn of `outer` holds."""
    starts = inner.cuts[:-1][inner.is_alike]
    starts = np.append(starts, inner.cuts[-1]) if inner.wraps else starts
    held = np.diff(np.searchsorted(starts, outer.cuts))[outer.is_alike]
    return float(np.median(held)) if len(held) else 0.0


def _share_with(flag: Bools, loop: Loop) -> float:
    """Return the share of the loop's usual turns that have a launch of the kind."""
    done = np.append(0, np.cumsum(flag))
    in_turn = np.diff(done[loop.cuts])[loop.is_alike]
    if not len(in_turn):
        return float(flag.any())
    return float((in_turn > 0).mean())


def _turning_point(work: LaunchSequence, step: Loop) -> int:
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


def _regular_from(work: LaunchSequence, step: Loop) -> int:
    """Return the first entry from which on the sequence equals itself a step later."""
    turns = np.flatnonzero(step.is_alike & (np.diff(step.cuts) == step.size))
    reference = int(step.cuts[turns[0]])
    at = reference
    if at + step.size > len(work):
        return at
    same = work.code[:at] == work.code[step.size : at + step.size]
    broken = np.flatnonzero(~same)
    return int(broken[-1]) + 1 if len(broken) else 0


def _turns(work: LaunchSequence, buckets: Int64s, step: Loop, offset: int) -> Repetition:
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
    content = contents_of(buckets, bounds)
    alike = likeness(content, step.content) >= MIN_ALIKE
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
        recurs = (likeness(content, content[row]) >= MIN_ALIKE).sum() > 1
        is_step[row] = recurs or held >= MIN_ALIKE
    return is_step


def _with_edges(buckets: Int64s, step: Loop, bounds: Int64s) -> Int64s:
    """Add the step before the first bound and the one after the last, if they are known steps."""
    content = contents_of(buckets, bounds)
    others = content[likeness(content, step.content) < MIN_ALIKE]
    known = np.concatenate([step.content[None], others[-8:]])
    for usual in known:
        size = int(usual.sum())
        slack = max(int(size * (1 - MIN_ALIKE)), 1)
        edge = max(int(bounds[0]) - size, 0)
        window = np.array([edge, bounds[0]])
        if edge - (bounds[0] - size) <= slack and matches(buckets, window, usual):
            bounds = np.append(edge, bounds)
            break
    for usual in known:
        size = int(usual.sum())
        slack = max(int(size * (1 - MIN_ALIKE)), 1)
        edge = min(int(bounds[-1]) + size, len(buckets))
        window = np.array([bounds[-1], edge])
        if bounds[-1] + size - edge <= slack and matches(buckets, window, usual):
            bounds = np.append(bounds, edge)
            break
    return bounds


def _with_first(code: Int64s, buckets: Int64s, step: Loop, bounds: Int64s) -> Int64s:
    """Add a first step that launches all of a usual one and more, as when it sets up its state."""
    if len(bounds) < 2:
        return bounds
    begin = code[bounds[1] : bounds[1] + MAX_TO_FIND]
    floor = max(int(bounds[0] - MAX_FIRST * step.size), 0)
    for at in range(int(bounds[0] - step.size), floor - 1, -1):
        if (code[at : at + len(begin)] == begin).all():
            content = contents_of(buckets, np.array([at, bounds[0]]))[0]
            held = np.minimum(content, step.content).sum() / step.content.sum()
            return np.append(at, bounds) if held >= MIN_ALIKE else bounds
    return bounds


def with_first_step(sequence: LaunchSequence, bounds: Int64s) -> Int64s:
    """Add where the first step starts to the ends of all, found by the usual step's launches."""
    if len(bounds) < 2:
        return bounds
    marks = Marks.of(sequence)
    buckets = marks.buckets
    content = contents_of(buckets, bounds)
    usual, _ = usual_content(buckets, bounds, np.diff(marks.digest[bounds]))
    step = Loop(
        cuts=bounds,
        is_alike=likeness(content, usual) >= MIN_ALIKE,
        size=int(usual.sum()),
        content=usual,
        wraps=False,
        covered=1.0,
        exact=1.0,
    )
    front = int(bounds[0]) - step.size
    if front >= 0 and matches(buckets, np.array([front, bounds[0]]), usual):
        return np.append(front, bounds)
    if bounds[0] < step.size and matches(buckets, np.array([0, bounds[0]]), usual):
        return np.append(0, bounds)
    return _with_first(sequence.code, buckets, step, bounds)
