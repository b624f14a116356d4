"""One run as it was read from its files, before it is stored; and the same with numbers added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.tables import CaptureTables, CaptureWarning
from core.spec import JobSpec

if TYPE_CHECKING:
    import pandas as pd

RUN_SAMPLE_COLUMNS = ("pass", "process", "iteration", "latency_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What was added to a capture's processes and moments to put it beside others of its pass."""

    first_process: int = 0
    "Number that its process 0 has there."
    offset_ns: int = 0
    "Added to a time at `origin_ns`."
    drift: float = 0.0
    "Seconds gained a second after `origin_ns`."
    origin_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCapture:
    """One file of a run and what was read from it."""

    pass_name: str
    process: int
    tables: CaptureTables
    file_name: str
    "Name under which it is stored; unique inside the run."
    path: Path
    "Where the file to store lies now: after removal of private fields."
    num_bytes: int
    sha256: str
    source_sha256: str
    "SHA-256 before anything was removed."
    private_removed: tuple[str, ...] = ()
    rank: int | None = None
    "Of the job, as its manifest says; what the file itself says comes first."
    shift: Shift = Shift()
    "Of its records, once they stand among those of the run."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetric:
    """One number with a unit."""

    pass_name: str
    phase: str
    name: str
    value: float
    unit: str
    better: str | None = None
    "`higher` or `lower`, where declared."
    process_values: tuple[float, ...] = ()
    "Of each process, in the order they ran; () for a number of the run as a whole."


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWarning:
    """A warning and the pass it belongs to (empty: the whole run)."""

    pass_name: str
    warning: CaptureWarning


def pass_warning(pass_name: str, code: str, message: str) -> PassWarning:
    """Return a warning about a pass of this code and text."""
    return PassWarning(pass_name=pass_name, warning=CaptureWarning(code=code, message=message))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """Everything the files of one run say. Absent (None, {}, empty) is unknown."""

    status: str
    "done, oom, failed or cancelled."
    job: JobSpec | None = None
    run_id: str | None = None
    "The id under which a worker ran it; None for files."
    captures: tuple[RunCapture, ...] = ()
    samples: pd.DataFrame
    "RUN_SAMPLE_COLUMNS of every pass that measured."
    metrics: tuple[RunMetric, ...] = ()
    gpu: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    memory_peaks: Mapping[str, int] = field(default_factory=dict)
    "peak_allocated_bytes, peak_reserved_bytes of the clean pass."
    passes: tuple[Mapping[str, Any], ...] = ()
    "What became of each pass: pass, process, status, outcome, duration_s, command, clocks."
    oom: Mapping[str, Any] | None = None
    error: str | None = None
    warnings: tuple[PassWarning, ...] = ()
    started_at: str | None = None
    finished_at: str | None = None
    content_hash: str
    "Names these files: the same files give the same hash."


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedClass:
    """The class under which a kernel name is stored."""

    name: str
    short_name: str
    category: str
    origin: str
    confidence: float
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledRun:
    """A run with the classes of its kernels and its summary: what `db.ingest` stores."""

    data: RunData
    "Without its captures."
    captures: tuple[RunCapture, ...]
    "The captures; tables that another capture of the pass already gives are left out."
    classes: tuple[NamedClass, ...]
    summary: Mapping[str, Any]
    "The `summary` of the command line's `show --json`."
    memory: Mapping[str, Any]
    metrics: tuple[RunMetric, ...]
    warnings: tuple[PassWarning, ...]
    ranks: Mapping[str, Any] = field(default_factory=dict)
    "ranks, collectives, steps, exposed_by_kind, missing (`analysis.ranks`); {} without GPU work."
    peaks: Mapping[str, float] = field(default_factory=dict)
    "The measured peaks by which `summary` judges the run; {} where none were known."
    columns: Mapping[str, Any] = field(default_factory=dict)
    "The numbers of `summary` that the run's row holds, by column (`analysis.definitions`)."
