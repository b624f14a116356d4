"""How much of the program's time the GPU waits.

A profiler slows the host and hardly the kernels, so a profiled capture shows more idle time than
the program has. Where a clean pass measured the same iteration, its latency decides:

    idle = 1 - kernel time of an iteration [capture] / latency [clean pass], never below 0

The capture's own share (1 - busy / span) is kept beside it: about the most it can be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.runview import RunView
from analysis.span_file import SpanFile, is_whole

_COLUMNS = ["start_ns", "end_ns", "device"]
_BATCH_ROWS = 2**16
"""In blocks: memory that is touched for the first time costs more than the arithmetic."""


def median_gap_ns(spans: Sequence[pa.Table | SpanFile | Path]) -> float | None:
    """Return the median idle time between a device's successive GPU operations, in ns.

    A gap is start - the latest end before it, where positive. Takes each capture's spans, in order
    of start; None without any (a missing file is skipped) or without a gap.
    """
    gaps: list[np.ndarray] = []
    for capture in spans:
        ends: dict[int, int] = {}
        for batch in _batches(capture):
            start, end, device = (batch[name].to_numpy(False) for name in _COLUMNS)
            if len(start):
                gaps += _idle_ns(start, end, device, ends)
    merged = np.concatenate(gaps) if gaps else np.array([])
    return float(np.median(merged, overwrite_input=True)) if len(merged) else None


def _batches(spans: pa.Table | SpanFile | Path) -> Iterator[pa.RecordBatch]:
    if isinstance(spans, pa.Table):
        yield from spans.select(_COLUMNS).to_batches(_BATCH_ROWS)
        return
    if isinstance(spans, SpanFile):
        for table in spans.batches(_COLUMNS):
            yield from table.to_batches(_BATCH_ROWS)
    elif is_whole(spans):
        with pq.ParquetFile(spans) as file:
            yield from file.iter_batches(_BATCH_ROWS, columns=_COLUMNS)


def _idle_ns(
    start_ns: np.ndarray, end_ns: np.ndarray, device: np.ndarray, ends: dict[int, int]
) -> Iterator[np.ndarray]:
    """Give each device's idle times before operations in order of start; keeps `ends` for more."""
    devices = [device[0]] if device.min() == device.max() else np.unique(device)
    for key in map(int, devices):
        mine = slice(None) if len(devices) == 1 else device == key
        start, end = start_ns[mine], np.maximum.accumulate(end_ns[mine])
        before = np.append(ends.get(key, start[0]), end[:-1])
        idle = start - np.maximum(before, ends.get(key, before[0]))
        ends[key] = max(ends.get(key, 0), int(end[-1]))
        yield idle[idle > 0]


CLEAN = "clean"
MIN_STEPS = 2
"""Fewer regular steps than these say nothing of the usual one."""
PROFILED = "profiled"
STEPS = "steps"
"""Of the regular steps alone: the capture holds start-up or other work beside them."""
IDLE_FRAC = 0.3
"""From this idle share on, what the GPU waits for limits more than what its kernels do."""
SAME_FRAC = 0.02
"""Two shares closer than this are one: timers, clocks and medians differ by as much."""


def idle_figures(summary: Mapping[str, Any], iteration_kernel_ns: float | None) -> dict[str, Any]:
    """Return idle_frac, idle_source, and idle_bounds where one figure would claim too much.

    `summary` has profiled_idle_frac (without it there is no GPU time to speak of: {}), and, as far
    as known, latency_ms, kernel_time_ns and busy_ns. Bounds, by what widens them:

    * kernels that overlap count twice in the kernel time: busy / kernel time of the capture gives
      the other end;
    * kernels that take longer than the clean iteration, or a clean pass that waits more than the
      profiled one, are not the same work: the profiled share is the other end.
    """
    profiled = summary.get("profiled_idle_frac")
    if profiled is None:
        return {}
    latency_ms = (summary.get("latency_ms") or {}).get("median")
    if not latency_ms or not iteration_kernel_ns:
        return {"idle_frac": profiled, "idle_source": PROFILED}
    load = iteration_kernel_ns / (latency_ms * 1e6)
    kernel_ns, busy_ns = summary.get("kernel_time_ns"), summary.get("busy_ns")
    overlap = min(1.0, busy_ns / kernel_ns) if kernel_ns and busy_ns else 1.0
    idle = max(0.0, 1 - load)
    ends = [idle, max(0.0, 1 - load * overlap)]
    if load * overlap > 1 + SAME_FRAC or idle > profiled + SAME_FRAC:
        ends.append(profiled)
    figures: dict[str, Any] = {"idle_frac": idle, "idle_source": CLEAN}
    if max(ends) - min(ends) > SAME_FRAC:
        figures["idle_bounds"] = [min(ends), max(ends)]
    return figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The idle share of a run with its source and bounds, as pages and verdicts read it."""

    frac: float
    source: str
    low: float
    high: float
    profiled_frac: float | None

    @property
    def is_clean(self) -> bool:
        return self.source == CLEAN

    @property
    def is_of_steps(self) -> bool:
        return self.source == STEPS

    @property
    def waits(self) -> bool | None:
        """Whether waiting limits the run; None where the bounds lie on both sides of the limit."""
        if (self.low >= IDLE_FRAC) == (self.high >= IDLE_FRAC):
            return self.low >= IDLE_FRAC
        return None


def idle_of(summary: Mapping[str, Any]) -> Idle | None:
    """Return the idle share that a run's summary holds; None where it is unknown."""
    frac = summary.get("idle_frac")
    if frac is None:
        return None
    low, high = summary.get("idle_bounds") or (frac, frac)
    return Idle(
        frac=float(frac),
        source=summary.get("idle_source") or PROFILED,
        low=float(low),
        high=float(high),
        profiled_frac=summary.get("profiled_idle_frac"),
    )


def idle_of_run(view: RunView) -> Idle | None:
    """Return the idle share that says most about the program; None where it is unknown.

    The clean pass's; else that of the regular steps, since a capture holds start-up, compilation
    and warm-up beside them; else the capture's own.
    """
    return of_program(view.summary, view.by_step.facts)


def of_program(summary: Mapping[str, Any], step_facts: Mapping[str, Any]) -> Idle | None:
    """Return the idle share by the best source of a run's summary and its steps."""
    idle, step_frac = idle_of(summary), step_facts.get("idle_frac")
    if idle is None or idle.is_clean or step_frac is None:
        return idle
    if step_facts["count"] - step_facts["num_excluded"] < MIN_STEPS:
        return idle
    return Idle(
        frac=step_frac,
        source=STEPS,
        low=step_frac,
        high=step_frac,
        profiled_frac=idle.profiled_frac,
    )
