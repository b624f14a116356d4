"""Find what a step repeats inside itself: its layers."""

from dataclasses import dataclass

import numpy as np

from analysis.trace.launches import LaunchSequence
from analysis.trace.model import Int64s
from analysis.trace.turns import MIN_ALIKE

MIN_BLOCK = 3
MIN_IN_BLOCK = 0.4
"""Share of a step's launches that its block must explain."""
MAX_IN_BLOCK = 20_000
"""Launches of a step in which its block is looked for; it is counted in all of them."""
MAX_PERIODS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a step repeats inside itself: its layers."""

    num_kernels: int
    "GPU operations of one turn."
    count: int
    "How often a step repeats it."


def find_block(work: LaunchSequence, first: int, last: int) -> Block | None:
    """Return what a step repeats most of its launches in, such as its layers; None if nothing.

    A distance is a period where nine of ten launches equal those one period later; each stretch
    where it holds repeats what lies within one period. The shortest of the best counts: a multiple
    of a period holds as well.
    """
    rows = np.arange(first, last)
    rows = rows[work.num_ops[rows] > 0]
    code, kernels = work.code[rows], work.num_ops[rows]
    best: tuple[float, int, int] | None = None
    for period in _distances(code[:MAX_IN_BLOCK]):
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
    common = np.argsort(-count, kind="stable")[:MAX_PERIODS]
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
