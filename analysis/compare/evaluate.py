"""Compare one side with another by one metric: comparability, statistics, verdict.

With it: the order in which the processes of both sides ran, as far as the runs say, and flags for
samples that look odd, which are counted and never dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from analysis.compare import fields, metrics
from analysis.compare.labels import WORDS, device_of
from analysis.compare.records import Difference, Mark, Side, Verdict
from analysis.compare.statistics import Groups, Order
from analysis.compare.verdict import ASSUMED_FLOOR_FRAC, Judgement, judge
from analysis.idle import idle_of
from analysis.pass_clocks import pass_clocks
from analysis.per_step import Per, common_basis
from analysis.runview import RunView
from analysis.verdict import VerdictKind, run_verdict
from core.plain_text import some_of
from core.states import Pass

LOST = ("oom", "failed", "cancelled", "interrupted")
MAX_NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """B compared with A by one metric, before captures explain the difference."""

    a: Side
    b: Side
    differs: tuple[Difference, ...]
    comparable: bool
    banner: str | None
    judgement: Judgement
    noise_floor_frac: float | None
    marks: tuple[Mark, ...]

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict if self.comparable else "not_comparable"

    @property
    def reason(self) -> str:
        return self.judgement.reason if self.comparable else self.banner or ""

    @property
    def next_step(self) -> str | None:
        return (
            self.judgement.next_step if self.comparable else "compare runs that differ in one field"
        )


def evaluate_pair(a: Sequence[RunView], b: Sequence[RunView], metric: metrics.Metric) -> PairResult:
    """Judge side B against side A; neither is empty."""
    differs = fields.find_differences(a, b, metric)
    side_a, side_b, groups_a, groups_b = _sides(a, b, metric)
    floor = _noise_floor(a, b) if metric.name == "latency" else None
    when = find_order(a, b, len(groups_a), len(groups_b))
    judgement = _judge(a, b, groups_a, groups_b, when, floor, metric)
    if {v.run.id for v in a} == {v.run.id for v in b}:
        reason = f"both sides are the same: {judgement.reason}"
        judgement = replace(judgement, reason=reason, next_step="choose another run for one side")
    return PairResult(
        a=side_a,
        b=side_b,
        differs=differs,
        comparable=fields.is_comparable(differs),
        banner=fields.make_banner(differs),
        judgement=judgement,
        noise_floor_frac=floor,
        marks=(*_marks(groups_a, groups_b, when), *_throttled(a, b)),
    )


def _sides(
    a: Sequence[RunView], b: Sequence[RunView], metric: metrics.Metric
) -> tuple[Side, Side, Groups, Groups]:
    """Return both sides and their groups, of a step where captures hold more or other numbers."""
    per = common_basis((*a, *b))
    groups_a, unit_a = metrics.side_groups(a, metric, per=per)
    groups_b, unit_b = metrics.side_groups(b, metric, per=per)
    side_a = _side("A", a, groups_a, unit_a, metric, per)
    side_b = _side("B", b, groups_b, unit_b, metric, per)
    return side_a, side_b, groups_a, groups_b


def _side(
    label: str,
    views: Sequence[RunView],
    groups: Groups,
    unit: str,
    metric: metrics.Metric,
    per: Per,
) -> Side:
    raw = [metrics.groups(v, metric, per=per) for v in views]
    num_samples = sum(len(process) for run in raw for process in run)
    names = sorted({v.run.name for v in views})
    shown = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return metrics.describe_side(shown or label, views, groups, unit, num_samples)


def _judge(
    a: Sequence[RunView],
    b: Sequence[RunView],
    groups_a: Groups,
    groups_b: Groups,
    when: Order,
    floor: float | None,
    metric: metrics.Metric,
) -> Judgement:
    sides = [("A", a, groups_a), ("B", b, groups_b)]
    sides.sort(key=lambda side: not any(v.run.status in LOST for v in side[1]))
    for label, views, groups in sides:  # a side that broke off says why before one never measured
        if not groups:
            return _missing(_why_missing(label, views, metric), _instead(a, b, metric))
        if min(float(np.median(g)) for g in groups) <= 0:
            why = f"{metric.name} is zero on side {label}: no ratio"
            return _missing(why, _instead(a, b, metric))
    if when == "block" and ran_first(a, b) == "b":
        groups_a, groups_b = groups_a[::-1], groups_b[::-1]  # A then B, with time running backwards
    return judge(
        groups_a,
        groups_b,
        order=when,
        lead=order_bias(a, b) if when == "paired" else 1.0,
        noise_floor_frac=floor,
        assumed_floor_frac=ASSUMED_FLOOR_FRAC if metric.is_noisy else 0.0,
        higher_is_better=metric.higher_is_better,
        device=WORDS[device_of((*a, *b))].device,
    )


def _missing(reason: str, next_step: str) -> Judgement:
    return Judgement(verdict="not_enough_samples", reason=reason, next_step=next_step)


def _instead(a: Sequence[RunView], b: Sequence[RunView], metric: metrics.Metric) -> str:
    """Return what to do where a side lacks the metric: repeats, or what both sides have."""
    both = [n for n in metrics.common(a, b) if n != metric.name]
    if not both:
        return "run the side that lacks it, with 5 repeats"
    names = some_of(both, MAX_NAMED)
    return f"run the side that lacks it, with 5 repeats, or compare what both have: {names}"


def _why_missing(label: str, views: Sequence[RunView], metric: metrics.Metric) -> str:
    for view in views:
        if view.run.status == "oom":
            return f"side {label} ran out of memory: no {metric.name}"
        if view.run.status in LOST:
            return f"side {label} {view.run.status}: no {metric.name}"
    why = "not enough repeats: no clean pass, so " if metric.name == "latency" else ""
    return f"{why}no {metric.name} on side {label}"


def _noise_floor(a: Sequence[RunView], b: Sequence[RunView]) -> float | None:
    """Return the largest known floor of the runs involved: the noisier one decides."""
    known = [floor for v in (*a, *b) if (floor := noise_floor_of(v)) is not None]
    return max(known) if known else None


def noise_floor_of(view: RunView) -> float | None:
    """Return the floor of this run's kind of work on its GPU, where both kinds were measured.

    GPU-bound is a run whose GPU seldom waits, or where that is unknown one that reaches half of a
    peak; of any other kind the launch-bound floor holds, which is the larger one.
    """
    floor = view.noise_floors.get("gpu_bound" if _keeps_its_gpu_busy(view) else "launch_bound")
    return view.noise_floor_frac if floor is None else floor


def _keeps_its_gpu_busy(view: RunView) -> bool:
    idle = idle_of(view.summary)
    if idle is not None:
        return idle.waits is False
    return run_verdict(view).kind in (VerdictKind.MEMORY_BOUND, VerdictKind.COMPUTE_BOUND)


def _throttled(a: Sequence[RunView], b: Sequence[RunView]) -> tuple[Mark, ...]:
    """Mark a side whose GPU lowered its clocks while the samples were taken."""
    marks = []
    for side, views in (("A", a), ("B", b)):
        passes = [p for v in views for p in pass_clocks(v) if p.pass_name == Pass.CLEAN]
        slowed = [p for p in passes if p.is_throttled]
        if not slowed:
            continue
        why = ", ".join(dict.fromkeys(reason for p in slowed for reason in p.reason_texts))
        text = f"the GPU throttled in {len(slowed)} of {len(passes)} processes ({why})"
        marks.append(Mark(code="throttled", side=side, message=text, count=len(slowed)))
    return tuple(marks)


def _marks(a: Groups, b: Groups, when: Order) -> tuple[Mark, ...]:
    marks = (*find_flags(a, "A"), *find_flags(b, "B"))
    if when == "block" and min(len(a), len(b)) > 1:
        text = (
            "all of one side ran before the other: drift of the machine is part of the difference"
        )
        marks = (*marks, Mark(code="block_order", side="A, B", message=text, count=1))
    return marks


MIN_FOR_DRIFT = 12
DRIFT_FRAC = 0.03
OUTLIER_SIGMAS = 5.0
SPREAD_FACTOR = 3.0
LEVEL_FRAC = 0.05
SIGMA_PER_MAD = 1.4826  # normal distribution


def find_flags(groups: Groups, side: str) -> tuple[Mark, ...]:
    """Return drift, outliers, noisy_process and trend marks of one side's processes.

    A group is the samples of one process in the order they were taken. Drift: the first and the
    last quarter's medians differ by over 3 % and over three standard errors. Outlier: over five
    robust standard deviations from its process's median. Noisy: a spread three times the others',
    or a level over five robust deviations and 5 % from theirs.
    """
    marks: list[Mark] = []
    if drifts := [d for d in map(_drift_frac, groups) if d is not None]:
        text = (
            f"{len(drifts)} of {len(groups)} processes drift from their first to their last "
            f"quarter, at most {max(drifts, key=abs):+.1%}"
        )
        marks.append(Mark(code="drift", side=side, count=len(drifts), message=text))
    if num_outliers := sum(int(_outliers(g).sum()) for g in groups):
        text = (
            f"{num_outliers} of {sum(map(len, groups))} samples lie over {OUTLIER_SIGMAS:.0f} "
            "robust standard deviations from their process's median; they are kept"
        )
        marks.append(Mark(code="outliers", side=side, count=num_outliers, message=text))
    if noisy := _noisy_processes(groups):
        named = ", ".join(map(str, noisy))
        text = f"process {named} of {len(groups)} differs in level or spread"
        marks.append(Mark(code="noisy_process", side=side, count=len(noisy), message=text))
    return tuple(marks)


def _drift_frac(samples: np.ndarray) -> float | None:
    if len(samples) < MIN_FOR_DRIFT:
        return None
    quarter = len(samples) // 4
    first, last = samples[:quarter], samples[-quarter:]
    level = float(np.median(first))
    change = float(np.median(last)) - level
    sigma = max(_sigma(first), _sigma(last))
    error = 1.2533 * sigma * np.sqrt(2.0 / quarter)  # standard error of two medians
    if level <= 0 or abs(change) <= DRIFT_FRAC * level or abs(change) <= 3 * error:
        return None
    return change / level


def _sigma(samples: np.ndarray) -> float:
    return SIGMA_PER_MAD * float(np.median(np.abs(samples - np.median(samples))))


def _outliers(samples: np.ndarray) -> np.ndarray:
    centre = float(np.median(samples))
    sigma = max(_sigma(samples), 1e-3 * abs(centre))
    return np.abs(samples - centre) > OUTLIER_SIGMAS * sigma


def _noisy_processes(groups: Groups) -> list[int]:
    if len(groups) < 3:
        return []
    medians = np.array([np.median(g) for g in groups])
    spreads = np.array([_sigma(g) / abs(np.median(g)) if np.median(g) else 0.0 for g in groups])
    level, sigma = float(np.median(medians)), _sigma(medians)
    far = np.abs(medians - level) > max(OUTLIER_SIGMAS * sigma, LEVEL_FRAC * abs(level))
    typical = float(np.median(spreads))
    wide = (spreads > SPREAD_FACTOR * typical) & (spreads > 0.02)
    return [int(i) for i in np.flatnonzero(far | wide)]


def find_order(a: Sequence[RunView], b: Sequence[RunView], n_a: int, n_b: int) -> Order:
    """Return `paired` for runs taken in turn (one group a run), `block` for one side first.

    Times of imported files say when they were imported, if anything, so only runs with both a
    start and an end that differ count; `unknown` otherwise. n_a, n_b: groups a side.
    """
    windows_a, windows_b = _windows(a), _windows(b)
    if windows_a is None or windows_b is None:
        return "unknown"
    if len(windows_a) == len(windows_b) == n_a == n_b and _alternates(windows_a, windows_b):
        return "paired"
    last_a, last_b = max(w[1] for w in windows_a), max(w[1] for w in windows_b)
    first_a, first_b = min(w[0] for w in windows_a), min(w[0] for w in windows_b)
    return "block" if last_a <= first_b or last_b <= first_a else "unknown"


def ran_first(a: Sequence[RunView], b: Sequence[RunView]) -> str:
    """Return the side whose first run started first: `a` or `b`."""
    starts = [min(v.run.started_at or v.run.created_at for v in side) for side in (a, b)]
    return "a" if starts[0] <= starts[1] else "b"


def order_bias(a: Sequence[RunView], b: Sequence[RunView]) -> float:
    """Return the share of A/B pairs in which A ran first minus the share in which B did."""
    pairs = zip(_starts(a), _starts(b), strict=True)
    return sum(1 if start_a <= start_b else -1 for start_a, start_b in pairs) / len(a)


def _starts(views: Sequence[RunView]) -> list[str]:
    return sorted(v.run.started_at or v.run.created_at for v in views)


def _windows(views: Sequence[RunView]) -> list[tuple[datetime, datetime]] | None:
    windows = []
    for view in views:
        run = view.run
        if run.source == "imported" or not run.started_at or not run.finished_at:
            return None
        start, end = _parse(run.started_at), _parse(run.finished_at)
        if start is None or end is None or end <= start:
            return None
        windows.append((start, end))
    return windows or None


def _parse(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=None) if moment.tzinfo else moment


def _alternates(
    a: Sequence[tuple[datetime, datetime]], b: Sequence[tuple[datetime, datetime]]
) -> bool:
    """True when the runs in time order split into neighbours, one of each side."""
    tagged = sorted([(start, "a") for start, _ in a] + [(start, "b") for start, _ in b])
    sides = [side for _, side in tagged]
    return all(set(pair) == {"a", "b"} for pair in zip(sides[::2], sides[1::2], strict=True))
