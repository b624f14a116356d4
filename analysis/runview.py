"""One run as everything above the database sees it: pages, command line, comparison and studies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from analysis.tables import CaptureWarning

T = TypeVar("T")
CLASSIFIED_KERNEL_COLUMNS = ("category", "origin", "confidence", "rule")
"""Added to KERNEL_COLUMNS (and, the first two, to COUNTER_COLUMNS) from the stored classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """What the database holds about a run besides its measurements."""

    id: str
    name: str
    source: str
    "`submitted`, `imported` or `demo`."
    status: str
    workload: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    gpu_model: str | None = None
    gpu_id: str | None = None
    profilers: tuple[str, ...] = ()
    repeats: int = 1
    sweep_id: str | None = None
    created_at: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    worker_id: str | None = None
    attempt: int = 0
    progress: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    oom: Mapping[str, Any] | None = None
    notes: str = ""
    tags: tuple[str, ...] = ()
    is_baseline: bool = False
    comparable_hash: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def job(self) -> dict[str, Any]:
        """Return what a job says of what is measured: workload, params and gpu."""
        return {"workload": self.workload, "params": self.params, "gpu": self.gpu_model}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """The steps of a run's timeline, and what a regular one is made of."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    "`CaptureTables.step_facts`; {} without a timeline."
    steps: pd.DataFrame = field(default_factory=pd.DataFrame)
    "STEP_COLUMNS."
    kernels: pd.DataFrame = field(default_factory=pd.DataFrame)
    "STEP_KERNEL_COLUMNS and `category`."
    operators: pd.DataFrame = field(default_factory=pd.DataFrame)
    "OPERATOR_COLUMNS."
    operator_kernels: pd.DataFrame = field(default_factory=pd.DataFrame)
    "OPERATOR_KERNEL_COLUMNS."
    idle_host: pd.DataFrame = field(default_factory=pd.DataFrame)
    "IDLE_COLUMNS."
    flame: pd.DataFrame = field(default_factory=pd.DataFrame)
    "FLAME_COLUMNS."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with its measurements. Frames are empty, and summary keys absent, where unknown."""

    run: RunRow
    summary: Mapping[str, Any]
    "The keys of the command line's `show --json` summary; `latency_ms` is a mapping."
    primary_pass: str | None
    "Which pass kernels, phases, api_calls, transfers and gaps come from: nsys, else trace."
    samples: pd.DataFrame
    "SAMPLE_COLUMNS of the clean pass."
    profiled_samples: pd.DataFrame
    "SAMPLE_COLUMNS plus `pass`: iterations under a profiler, for the overhead."
    kernels: pd.DataFrame
    "KERNEL_COLUMNS + CLASSIFIED_KERNEL_COLUMNS, largest total first."
    phases: pd.DataFrame
    api_calls: pd.DataFrame
    transfers: pd.DataFrame
    gaps: pd.DataFrame
    memory: Mapping[str, Any]
    memory_points: pd.DataFrame
    memory_at_peak: pd.DataFrame
    counters: pd.DataFrame
    "COUNTER_COLUMNS + category, origin."
    rules: pd.DataFrame
    captures: pd.DataFrame
    """id, pass, process, kind, tool, tool_version, file_name, bytes, sha256, spans_path,
    private_removed."""
    metrics: pd.DataFrame
    """pass, phase, name, value, unit, better, process_values: every stored number; the workload's
    own have a value of each process."""
    span_paths: tuple[Path, ...]
    "Parquet files (SPAN_COLUMNS) of the primary pass, `X.ranges.parquet` beside each `X.parquet`."
    warnings: tuple[CaptureWarning, ...]
    cost: Mapping[str, Any]
    "The workload's cost model: flops, bytes, flops_dtype, num_tokens per iteration; {} if none."
    peaks: Mapping[str, float]
    "Measured peaks of that GPU (gpu_peaks names), {} if not measured."
    noise_floor_frac: float | None
    "Relative difference between repeats of one job on that GPU, for any kind of work."
    noise_floors: Mapping[str, float | None] = field(default_factory=dict)
    "The same of each kind of work, `gpu_bound` and `launch_bound`; {} where not measured apart."
    counter_details: pd.DataFrame = field(default_factory=pd.DataFrame)
    "COUNTER_DETAIL_COLUMNS."
    counter_sources: pd.DataFrame = field(default_factory=pd.DataFrame)
    "COUNTER_SOURCE_COLUMNS."
    ranks: Mapping[str, Any] = field(default_factory=dict)
    "ranks, collectives, steps, exposed_by_kind, missing (`analysis.ranks`); {} without GPU work."
    by_step: StepView = field(default_factory=StepView)
    passes: tuple[Mapping[str, Any], ...] = ()
    "What became of each pass, as its bundle says: pass, process, clocks, duration_s; () of files."
    worked_out: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    "What was read from this run's frames once: many tables ask for the same sums."

    def once(self, key: tuple[str, ...], work_out: Callable[[], T]) -> T:
        """Return what `work_out` gives; it is asked once for each key."""
        if key not in self.worked_out:
            self.worked_out[key] = work_out()
        result: T = self.worked_out[key]
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was measured, on which GPU: the name under which a history is one line."""

    key: str
    "`comparable_hash`; of files without a workload `name:` and the run's name."
    gpu_model: str
    workload: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    "Of the newest run."
    name: str = ""
    "Of the newest run."
    num_runs: int = 0
    "Finished runs."
    num_timed: int = 0
    "Those with a latency."
    newest_at: str = ""
    "When the newest of them ran."


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One finished run of a job, as far as a history needs it."""

    run_id: str
    name: str
    at: str
    "When it ran; of files that do not say, when they were imported."
    figures: Mapping[str, float] = field(default_factory=dict)
    "Numbers of the summary and, as `step.NAME`, of a regular step; absent where unknown."
    tags: tuple[str, ...] = ()
