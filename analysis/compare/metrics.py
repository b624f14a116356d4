"""The numbers that two runs can be compared by, and their samples grouped by process."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.compare.records import Side
from analysis.compare.statistics import Groups, centre
from analysis.definitions import COMPARED
from analysis.iterations import at_path, iteration_of, normalise, tail
from analysis.per_step import Per, num_of
from analysis.runview import RunView
from core.errors import UserError

PHASE_METRICS = {"host": "host_ns", "projected": "projected_ns", "kernel": "kernel_ns"}
"""`host:forward`: time of a phase per iteration; the path may be any tail of its full path."""
PROFILED_ITERATION = "profiled_iteration"
"""One iteration under the profiler: GPU projection of its range, else the range on the host."""
TELLING = ("latency", PROFILED_ITERATION, "span", "kernel_time", "busy", "peak_memory")
"""What to compare by, the most telling first: what has no clean latency still has the others."""
HIGHER_IS_BETTER = re.compile(
    r"(/|_per_|\bper )s(ec(ond)?)?\b|^(mfu|mbu)$|throughput|speedup|t?flops\b|accuracy", re.I
)
_NOISY_UNIT = re.compile(r"[num]?s$|$|.*/s(ec(ond)?)?$")
"""Times, rates, and numbers whose unit is not known: no two measurements of them are equal."""
NS_PER_MS = 1e6
MIN_RUNS_AS_GROUPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One comparable number."""

    name: str
    unit: str
    better: str | None = None
    "`higher` or `lower` where the run says so; else its name and unit tell."

    @property
    def higher_is_better(self) -> bool:
        if self.better is not None:
            return self.better == "higher"
        return bool(HIGHER_IS_BETTER.search(self.unit) or HIGHER_IS_BETTER.search(self.name))

    @property
    def is_noisy(self) -> bool:
        """Say whether it varies between processes of the same program."""
        return self.unit == "ms" or (
            self.name not in COMPARED and bool(_NOISY_UNIT.match(self.unit))
        )

    @property
    def is_profiled(self) -> bool:
        """Say whether it was measured under a profiler, so that the tool's settings matter."""
        if self.name in COMPARED:
            return COMPARED[self.name].is_profiled
        return self.name == PROFILED_ITERATION or self.name.split(":", 1)[0] in PHASE_METRICS


def resolve(name: str, a: Sequence[RunView], b: Sequence[RunView]) -> Metric:
    """Return the metric called `name`; UserError lists those that both sides have."""
    if name == "latency":
        return Metric(name=name, unit="ms")
    unit = _union((*b, *a)).get(name)
    if unit is None:
        unit = _phase_unit(name, (*a, *b))
    if unit is None:
        names = ", ".join(common(a, b)) or "none"
        raise UserError(f"metric: {name!r} is not measured on both sides; available: {names}")
    return Metric(name=name, unit=unit, better=_better(name, (*a, *b)))


def _better(name: str, views: Sequence[RunView]) -> str | None:
    """Return the direction that was declared better for the metric, if any."""
    base = name.partition(":")[0]
    for view in views:
        if "better" in view.metrics:
            better = view.metrics.loc[view.metrics["name"] == base, "better"].dropna()
            if len(better):
                return str(better.iloc[0])
    return None


def available(view: RunView) -> dict[str, str]:
    """Return name -> unit of every metric of one run."""
    units = {"latency": "ms"} if len(view.samples) else {}
    if _iteration_values(view) is not None:
        units[PROFILED_ITERATION] = "ms"
    for name, definition in COMPARED.items():
        if name != "latency" and definition.value(view.summary) is not None:
            units[name] = definition.compared_unit
    for kind, column in PHASE_METRICS.items():
        if len(view.phases):
            known = set(view.phases["path"][view.phases[column].notna()])
            paths = {t for t in map(tail, known) if not t.endswith("iteration_*")}
            units |= {f"{kind}:{path}": "ms" for path in sorted(paths)}
    for row in view.metrics.itertuples() if len(view.metrics) else ():
        units.setdefault(row.name if not row.phase else f"{row.name}:{row.phase}", row.unit)
    return units


def common(a: Sequence[RunView], b: Sequence[RunView]) -> list[str]:
    """Return the metrics that both sides have, the most telling first."""
    both = set(_union(a)) & set(_union(b))
    return [*(n for n in TELLING if n in both), *sorted(both - set(TELLING))]


def groups(view: RunView, metric: Metric, *, per: Per = "capture") -> list[np.ndarray]:
    """Return the samples of each process of one run, in order; [] when the run lacks them.

    Times in ms. `per`: what whole-capture times are brought to; of a step, each regular one is a
    sample.
    """
    if metric.name == "latency":
        return [
            rows.sort_values("iteration")["latency_ns"].to_numpy(dtype=float) / NS_PER_MS
            for _, rows in view.samples.groupby("process", sort=True)
        ]
    if metric.name in COMPARED:
        if per == "step" and (values := _step_values(view, metric.name)) is not None:
            return [values]
        definition = COMPARED[metric.name]
        value = definition.value(view.summary)
        if value is None:
            return []
        scale = NS_PER_MS if definition.unit == "ns" else 1.0
        if metric.name in OF_STEP and per != "step":
            scale *= num_of(view, per)
        return [np.array([float(value) / scale])]
    if metric.name == PROFILED_ITERATION:
        values = _iteration_values(view)
        return [] if values is None else [values]
    kind, _, path = metric.name.partition(":")
    if kind in PHASE_METRICS and (values := _phase_values(view, kind, path)) is not None:
        return [values]
    return _stored(view, metric.name)


OF_STEP = {"kernel_time": "kernel_ns", "busy": "busy_ns", "span": "period_ns"}
"""Totals of a capture that a step has too."""


def _step_values(view: RunView, name: str) -> np.ndarray | None:
    """Return the figure of each regular step of the leading process in ms."""
    steps, column = view.by_step.steps, OF_STEP.get(name)
    if column is None or steps.empty:
        return None
    own = steps[(steps["process"] == steps["process"].iloc[0]) & steps["is_regular"]]
    values = own[column].dropna().to_numpy(float)
    return values / NS_PER_MS if len(values) else None


def profiled_iterations(view: RunView) -> tuple[np.ndarray, str] | None:
    """Return the time of each iteration under the profiler in ms, and the kind of phase time.

    `projected` (first to last of its GPU work) where the capture has it, else `host`; None without
    such ranges. The one definition of a profiled iteration: a run's page and comparisons show it.
    """
    for kind in ("projected", "host"):
        if (values := _phase_values(view, kind, "iteration_*")) is not None:
            return values, kind
    return None


def _iteration_values(view: RunView) -> np.ndarray | None:
    iterations = profiled_iterations(view)
    return None if iterations is None else iterations[0]


def _phase_values(view: RunView, kind: str, path: str) -> np.ndarray | None:
    """Return one value per iteration: the sum over that iteration's ranges at the path."""
    if not len(view.phases):
        return None
    wanted = normalise(path)
    times = view.phases[PHASE_METRICS[kind]].to_numpy(dtype=float, na_value=np.nan)
    places = zip(
        *(view.phases[name].to_list() for name in ("process", "path", "first_start_ns")),
        times.tolist(),
        strict=True,
    )
    sums: dict[tuple[int, str], float] = {}
    starts: dict[tuple[int, str], int] = {}
    chosen = at_path(view.phases["path"].to_list(), wanted)
    for (process, full, start_ns, value_ns), is_there in zip(places, chosen, strict=True):
        if is_there and value_ns == value_ns:
            key = (process, iteration_of(full))
            sums[key] = sums.get(key, 0.0) + value_ns
            starts[key] = min(starts.get(key, start_ns), start_ns)
    in_time = sorted(sums, key=lambda key: starts[key])
    return np.array([sums[key] for key in in_time]) / NS_PER_MS if sums else None


def _phase_unit(name: str, views: Sequence[RunView]) -> str | None:
    kind, _, path = name.partition(":")
    if kind in PHASE_METRICS and any(_phase_values(v, kind, path) is not None for v in views):
        return "ms"
    return None


def _stored(view: RunView, name: str) -> list[np.ndarray]:
    """Return a stored number, of each process where it has one of each."""
    if not len(view.metrics):
        return []
    phases = view.metrics["phase"]
    full = view.metrics["name"].where(phases == "", view.metrics["name"] + ":" + phases)
    rows = view.metrics[full == name]
    if not len(rows):
        return []
    values = rows["process_values"].iloc[0] if "process_values" in rows else None
    if isinstance(values, list) and values:
        return [np.array([float(v)]) for v in values]
    return [rows["value"].to_numpy(dtype=float)[:1]]


def _union(views: Sequence[RunView]) -> dict[str, str]:
    units: dict[str, str] = {}
    for view in views:
        units |= available(view)
    return units


def side_groups(
    views: Sequence[RunView], metric: Metric, *, per: Per
) -> tuple[list[np.ndarray], str]:
    """Return the independent groups of one side and what one is: `process`, or `run`.

    The highest level that was repeated decides: with at least four runs of several processes a
    run is the unit, with the samples of all its processes.
    """
    by_run = [groups(v, metric, per=per) for v in _in_time(views)]
    by_run = [g for g in by_run if g]
    if len(by_run) >= MIN_RUNS_AS_GROUPS and any(len(g) > 1 for g in by_run):
        return [np.concatenate(run) for run in by_run], "run"
    return [process for run in by_run for process in run], "process"


def _in_time(views: Sequence[RunView]) -> list[RunView]:
    return sorted(views, key=lambda v: v.run.started_at or v.run.created_at)


def describe_side(
    label: str, views: Sequence[RunView], processes: Groups, group: str, num_samples: int
) -> Side:
    """Return the record of one side."""
    medians = tuple(float(np.median(g)) for g in processes)
    return Side(
        label=label,
        run_ids=tuple(v.run.id for v in views),
        n_processes=len(processes),
        n_samples=num_samples,
        median=centre(processes) if processes else None,
        process_medians=medians,
        group=group,
    )
