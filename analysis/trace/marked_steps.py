"""Steps between marks, where turns differ too much to be found by what they launch.

A training step ends with the optimizer's kernels, a step of inference with a result that the host
reads. What lies between two marks is a step where most of it is of the same families of kernels:
requests of other lengths choose other kernels for the same products, and draft other numbers of
tokens.
"""

from dataclasses import dataclass

import numpy as np

from analysis.trace.launches import LaunchSequence
from analysis.trace.model import Int64s
from analysis.trace.turns import MIN_ALIKE, NUM_BUCKETS, contents_of, likeness

MIN_MARKED = 4
MIN_LAUNCHES = 8
"""Launches of a usual step at least: fewer between two results may be anything."""
MIN_OF_MARKED = 0.75
"""Share of what lies between marks, and of the GPU time, that must be of the same families."""
MIN_BETWEEN = 0.25
"""Marks follow each other at once, or after this share of a long stretch between two at least."""
MAX_FIRST = 2.0
"""What precedes the first mark is a step up to this many times the launches of a usual one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedSteps:
    """Stretches of a launch sequence that marks end."""

    first: Int64s
    last: Int64s
    covered: float
    "Share of the GPU time, from the first step on, of those that are alike."


def find_marked(sequence: LaunchSequence, family: Int64s) -> MarkedSteps | None:
    """Return the steps that end at marks; None where what lies between marks differs.

    `family`: what each entry launched, the same for kernels of one family.
    """
    bounds = run_ends(sequence)
    if len(bounds) <= MIN_MARKED:
        return None
    buckets = family % NUM_BUCKETS
    usual_size = float(np.median(np.diff(bounds)))
    if bounds[0] <= MAX_FIRST * usual_size:
        bounds = np.append(0, bounds)
    sets = np.minimum(contents_of(buckets, bounds), 1)
    alike = likeness(sets, (sets.mean(axis=0) > 0.5).astype(np.float32)) >= MIN_ALIKE
    done = np.append(0, np.cumsum(sequence.gpu_ns))
    gpu_ns = np.diff(done[bounds])
    num_ops = np.diff(np.append(0, np.cumsum(sequence.num_ops))[bounds])
    if alike.mean() < MIN_OF_MARKED or np.median(num_ops[alike]) < MIN_LAUNCHES:
        return None
    chosen = slice(int(np.flatnonzero(alike)[0]), int(np.flatnonzero(alike)[-1]) + 1)
    covered = float(gpu_ns[alike].sum() / max(done[-1] - done[bounds[chosen.start]], 1))
    if covered < MIN_OF_MARKED:
        return None
    first, last = bounds[:-1][chosen], bounds[1:][chosen]
    return MarkedSteps(first=first, last=last, covered=covered)


def run_ends(sequence: LaunchSequence) -> Int64s:
    """Return the entries after each run of marks, with what the host reads and waits for then.

    Marks are the optimizer's kernels where there are any, else results that the host reads.
    """
    trains = sequence.is_optimizer.any()
    is_mark = sequence.is_optimizer if trains else sequence.is_copy_back
    marks = np.flatnonzero(is_mark)
    if not len(marks):
        return marks
    others = np.flatnonzero(~(is_mark | sequence.is_wait | sequence.is_copy_back))
    last = np.append(others, len(sequence))
    ends = np.unique(last[np.searchsorted(last, marks)])
    starts = marks[np.minimum(np.searchsorted(marks, ends), len(marks) - 1)]
    between = np.maximum(starts - ends, 0)[:-1]
    if not len(between):
        return ends
    is_long = between >= MIN_BETWEEN * np.quantile(between, 0.9)
    return ends[np.append(is_long, True)]
