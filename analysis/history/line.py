"""A job's history as lines, one per metric, with their change points."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from analysis.definitions import DEFINITIONS
from analysis.history.changes import MIN_BEFORE, Step, find_steps, smallest_seen
from analysis.runview import Job, PastRun

SIDE_RUNS = 5
"""Runs on each side of a change that its comparison takes."""
MIN_RUNS = MIN_BEFORE + 2
"""Runs from which a change can be called at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One number that is followed over time."""

    name: str
    "As `trend --metric` takes it; a metric that runs are compared by has the same name there."
    label: str
    unit: str
    scale: float
    "From the stored number to `unit`."
    keys: tuple[str, ...]
    """Where the number is read, the first that all runs of the line have: of an iteration before
    that of a whole capture, which may hold another number of iterations."""
    is_exact: bool = False
    "A count or a size: it has no timing noise, and any change of it is one."


TRENDS: tuple[Trend, ...] = (
    Trend(
        name="latency",
        label="Latency",
        unit="ms",
        scale=1.0,
        keys=("latency_ms.median",),
    ),
    Trend(
        name="fast_latency",
        label="Latency, fastest quarter",
        unit="ms",
        scale=1.0,
        keys=("latency_ms.fast",),
    ),
    Trend(
        name="kernel_time",
        label="Kernel time",
        unit="ms",
        scale=1e-6,
        keys=("step.kernel_ns", "iteration_kernel_ns", "kernel_time_ns"),
    ),
    Trend(
        name="peak_memory",
        label="Peak memory",
        unit="GB",
        scale=1e-9,
        keys=("peak_memory_bytes",),
        is_exact=True,
    ),
    Trend(
        name="launches",
        label="Launches",
        unit="",
        scale=1.0,
        keys=("step.num_launches", "num_kernels"),
        is_exact=True,
    ),
)
"""All are better when smaller."""
TREND_NAMES = tuple(trend.name for trend in TRENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one run measured."""

    run_id: str
    name: str
    at: str
    value: float
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The line moved between two runs."""

    index: int
    "The first point at the new level."
    found_index: int
    "The point after which it was called."
    ratio: float
    "New level over old; above 1 is worse."
    before: tuple[str, ...]
    "The last runs at the old level, the newest last: side A of the change's comparison."
    after: tuple[str, ...]
    "The first runs at the new level: side B."

    @property
    def is_worse(self) -> bool:
        return self.ratio > 1

    @property
    def percent(self) -> float:
        return 100 * (self.ratio - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One metric of a job over time."""

    trend: Trend
    key: str
    "Which stored number it is: its definition says what it means."
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    levels: tuple[float, ...]
    "Median of each stretch between two changes; one more than changes."
    spread_frac: float
    "Standard deviation of single points around the level of their stretch."
    smallest_seen_frac: float | None
    "The smallest step that would be called within three more runs; None in too short a history."

    @property
    def level(self) -> float:
        """The present level."""
        return self.levels[-1]

    def since(self, num_new: int) -> Change | None:
        """Return what changed with the newest `num_new` points, their changes taken together.

        The ratio is that of the present level over the one in force before; None without a change.
        """
        new = [c for c in self.changes if c.found_index >= len(self.points) - num_new]
        if not new:
            return None
        old_level = self.levels[len(self.changes) - len(new)]
        return replace(new[0], ratio=self.level / old_level, after=new[-1].after)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A job over time."""

    job: Job
    lines: tuple[Line, ...]
    "One per metric that two runs and more have, in the order of TRENDS."
    floor_frac: float | None
    "Noise floor of single processes of this kind of work on this GPU; None if never measured."

    def line(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.trend.name == name), None)

    @property
    def changes(self) -> tuple[tuple[Line, Change], ...]:
        """Every change of every line, the newest first."""
        all_changes = [(line, change) for line in self.lines for change in line.changes]
        return tuple(sorted(all_changes, key=lambda f: f[0].points[f[1].index].at, reverse=True))


def make_history(job: Job, runs: Sequence[PastRun], floor_frac: float | None) -> History:
    """Return the lines of a job from its finished runs, the oldest first."""
    lines = (make_line(trend, runs, floor_frac) for trend in TRENDS)
    return History(job=job, lines=tuple(x for x in lines if x is not None), floor_frac=floor_frac)


def make_line(trend: Trend, runs: Sequence[PastRun], floor_frac: float | None) -> Line | None:
    """Return one metric over time; None where fewer than two runs have it."""
    key = _key(trend, runs)
    measured = [run for run in runs if key and run.figures.get(key, 0) > 0]
    if key is None or len(measured) < 2:
        return None
    points = tuple(
        Point(
            run_id=run.run_id,
            name=run.name,
            at=run.at,
            value=run.figures[key] * trend.scale,
            tags=run.tags,
        )
        for run in measured
    )
    values = [point.value for point in points]
    floor = floor_frac if trend.name == "latency" else None
    steps = find_steps(values, floor, exact=trend.is_exact)
    edges = [0, *(step.index for step in steps), len(points)]
    stretches = [values[a:b] for a, b in pairwise(edges)]
    return Line(
        trend=trend,
        key=key,
        points=points,
        changes=tuple(_change(step, edges, i, points) for i, step in enumerate(steps)),
        levels=tuple(float(np.median(stretch)) for stretch in stretches),
        spread_frac=_spread(stretches),
        smallest_seen_frac=smallest_seen(values, steps, floor, exact=trend.is_exact),
    )


def _key(trend: Trend, runs: Sequence[PastRun]) -> str | None:
    """Return the first key that every run with any of them has; else the one that most have."""
    with_any = [run for run in runs if any(key in run.figures for key in trend.keys)]
    counts = {key: sum(key in run.figures for run in with_any) for key in trend.keys}
    best = max(counts, key=lambda key: counts[key])
    return best if counts[best] else None


def _change(step: Step, edges: Sequence[int], i: int, points: Sequence[Point]) -> Change:
    before = points[max(edges[i], step.index - SIDE_RUNS) : step.index]
    after = points[step.index : min(edges[i + 2], step.index + SIDE_RUNS)]
    return Change(
        index=step.index,
        found_index=step.found_index,
        ratio=step.ratio,
        before=tuple(point.run_id for point in before),
        after=tuple(point.run_id for point in after),
    )


def _spread(stretches: Sequence[Sequence[float]]) -> float:
    logs = [np.log(stretch) for stretch in stretches]
    deviations = np.concatenate([log - np.median(log) for log in logs])
    freedom = max(1, len(deviations) - len(stretches))
    return float(np.sqrt((deviations**2).sum() / freedom))


def meaning(line: Line) -> str:
    """Return what the number of a line is, in the words of its definition."""
    return DEFINITIONS[line.key].meaning


def as_dict(history: History) -> Mapping[str, Any]:
    """Return a history as a document: `trend --json`, one of its jobs."""
    job = history.job
    return {
        "job": {
            "key": job.key,
            "gpu": job.gpu_model or None,
            "workload": job.workload,
            "params": dict(job.params),
            "name": job.name,
            "num_runs": job.num_runs,
        },
        "noise_floor_frac": history.floor_frac,
        "metrics": [_line_dict(line) for line in history.lines],
    }


def _line_dict(line: Line) -> dict[str, Any]:
    return {
        "name": line.trend.name,
        "key": line.key,
        "unit": line.trend.unit,
        "level": line.level,
        "spread_frac": line.spread_frac,
        "smallest_seen_frac": line.smallest_seen_frac,
        "points": [
            {"run_id": p.run_id, "name": p.name, "at": p.at, "value": p.value} for p in line.points
        ],
        "changes": [
            {
                "at": line.points[c.index].at,
                "run_id": line.points[c.index].run_id,
                "previous_run_id": line.points[c.index - 1].run_id,
                "found_run_id": line.points[c.found_index].run_id,
                "ratio": c.ratio,
                "is_worse": c.is_worse,
                "before": list(c.before),
                "after": list(c.after),
            }
            for c in line.changes
        ],
    }
